"""What waits and why, what happened, and the stream of what changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response, StreamingResponse

from remora.dashboard.hub import MOST_PAGES
from remora.dashboard.problems import problem
from remora.dashboard.rest_models import Entry, Explained, Health, Lines, WaitingRow
from remora.dashboard.routing import Dashboard, answer, dashboard_of, errors
from remora.errors import UnknownNameError
from remora.wire.calls import GetEvents, GetStatus

router = APIRouter(tags=["looking"])

Here = Annotated[Dashboard, Depends(dashboard_of)]


@router.get("/waiting", responses={200: {"model": list[WaitingRow]}, **errors()})
def waiting(dashboard: Here) -> Response:
    """Return what waits, how many of each kind, why, and the smallest changes that would help."""
    return answer(dashboard.backend.ask(GetStatus())["waiting"])


@router.get("/explain/{id_or_name:path}", responses={200: {"model": list[Explained]}, **errors(404, 422)})
def explain(dashboard: Here, id_or_name: Annotated[str, Path(min_length=1, max_length=200)]) -> Response:
    """Return why a task, actor or placement group waits, or where it is; for a job everything of it that has not ended."""
    found = dashboard.backend.explain(id_or_name)
    if not found:
        raise UnknownNameError(f"no task, actor, group or running job has the id or name {id_or_name!r}: see 'ray list'")
    return answer(found)


@router.get("/events", responses={200: {"model": list[Entry]}, **errors(422)})
def events(
    dashboard: Here,
    since: Annotated[int, Query(ge=0, le=2**53, description="Only those after the entry with this number.")] = 0,
    kind: Annotated[str, Query(max_length=40)] = "",
    subject: Annotated[str, Query(max_length=100, description="The node, actor or virtual cluster.")] = "",
) -> Response:
    """Return what happened lately, oldest first: who did what, from where and why."""
    found = dashboard.backend.ask(GetEvents(since))
    return answer([each for each in found if kind in ("", each["kind"]) and subject in ("", each["subject"])])


@router.post("/controller", responses={200: {"model": Health}, **errors()})
def start_controller(dashboard: Here) -> Response:
    """Start the controller of this cluster, if there is none. To look at a cluster starts nothing."""
    dashboard.backend.start()
    dashboard.hub.wake()
    return answer({"state": "starting", "message": ""})


@router.get("/history", responses={200: {"model": Lines}, **errors()})
def history(dashboard: Here) -> Response:
    """Return the last 15 minutes of every virtual cluster, as far as this server has seen them."""
    return answer(dashboard.hub.history.to_dict())


@router.get("/stream", responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **errors()})
async def stream(dashboard: Here) -> Response:
    """Server-sent events: ``snapshot`` with everything, then ``changes``, and ``state`` when the controller goes away or comes
    back."""
    if dashboard.hub.pages >= MOST_PAGES:
        return problem(503, f"{MOST_PAGES} pages are open already: close one", headers={"Retry-After": "10"})
    return StreamingResponse(dashboard.hub.stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
