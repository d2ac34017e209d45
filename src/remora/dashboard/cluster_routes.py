"""Virtual clusters, and the queue of those that wait for their minimum."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from remora.dashboard.rest_models import Closed, ClusterRow, NewMaximum, NewPriority
from remora.dashboard.routing import Asked, Dashboard, answer, asked, dashboard_of, errors
from remora.errors import ConflictError, UnknownNameError
from remora.protocol import changes
from remora.wire.calls import GetClusters

router = APIRouter()

ClusterId = Annotated[str, Path(min_length=1, max_length=100)]
Here = Annotated[Dashboard, Depends(dashboard_of)]
By = Annotated[Asked, Depends(asked)]


@router.get("/clusters", tags=["virtual clusters"], responses={200: {"model": list[ClusterRow]}, **errors()})
def clusters(dashboard: Here) -> Response:
    """Return the tree of virtual clusters, parents first."""
    return answer(dashboard.backend.ask(GetClusters()))


@router.get("/clusters/{cluster_id}", tags=["virtual clusters"], responses={200: {"model": ClusterRow}, **errors(404, 422)})
def cluster(dashboard: Here, cluster_id: ClusterId) -> Response:
    """Return one virtual cluster with its virtual nodes."""
    return answer(_row(dashboard, cluster_id))


@router.patch(
    "/clusters/{cluster_id}", tags=["virtual clusters"], responses={200: {"model": ClusterRow}, **errors(404, 409, 422)}
)
def resize(by: By, cluster_id: ClusterId, wanted: NewMaximum) -> Response:
    """Give it another maximum. Of what it has above a lower one it gives back what is idle at once, and the rest as its work
    ends (``lowering`` says to what)."""

    def change(ask: str) -> Any:
        return by.dashboard.backend.ask(changes.resize_cluster(cluster_id, wanted.max, ask, by.by))

    return by.once(wanted.max, change)


@router.delete("/clusters/{cluster_id}", tags=["virtual clusters"], responses={200: {"model": Closed}, **errors(404, 409, 422)})
def close(by: By, cluster_id: ClusterId) -> Response:
    """Close it: its minimum is given back, and what runs in it finishes."""

    def change(ask: str) -> Any:
        return by.dashboard.backend.ask(changes.end_cluster(cluster_id, ask, by.by))

    return by.once(None, change)


@router.get("/queue", tags=["queue"], responses={200: {"model": list[ClusterRow]}, **errors()})
def queue(dashboard: Here) -> Response:
    """Return the virtual clusters that wait for their minimum, each with its ``position`` among those with the same parent and
    the ``reason``."""
    rows = [row for row in dashboard.backend.ask(GetClusters()) if row["position"]]
    return answer(sorted(rows, key=lambda row: (row["parent"] or "", row["position"])))


@router.get("/queue/{cluster_id}", tags=["queue"], responses={200: {"model": ClusterRow}, **errors(404, 409, 422)})
def place_in_queue(dashboard: Here, cluster_id: ClusterId) -> Response:
    """Return one that waits."""
    row = _row(dashboard, cluster_id)
    if not row["position"]:
        raise ConflictError(f"the virtual cluster {cluster_id!r} does not wait, it is {row['state']}: see GET /clusters")
    return answer(row)


@router.patch("/queue/{cluster_id}", tags=["queue"], responses={200: {"model": ClusterRow}, **errors(404, 409, 422)})
def prioritize(by: By, cluster_id: ClusterId, wanted: NewPriority) -> Response:
    """Give one that waits another priority: more goes first."""

    def change(ask: str) -> Any:
        return by.dashboard.backend.ask(changes.set_priority(cluster_id, wanted.priority, ask, by.by))

    return by.once(wanted.priority, change)


@router.delete("/queue/{cluster_id}", tags=["queue"], responses={200: {"model": Closed}, **errors(404, 409, 422)})
def withdraw(by: By, cluster_id: ClusterId) -> Response:
    """Take one out of the queue. Whoever waits for it hears by whom and why."""

    def change(ask: str) -> Any:
        return by.dashboard.backend.ask(changes.end_cluster(cluster_id, ask, by.by, queued=True))

    return by.once(None, change)


def _row(dashboard: Dashboard, cluster_id: str) -> dict[str, Any]:
    rows = {row["cluster_id"]: row for row in dashboard.backend.ask(GetClusters())}
    if cluster_id not in rows:
        some = ", ".join(sorted(rows)[:3]) or "none"
        raise UnknownNameError(f"there is no virtual cluster {cluster_id!r}: the live ones are {some}")
    found: dict[str, Any] = rows[cluster_id]
    return found
