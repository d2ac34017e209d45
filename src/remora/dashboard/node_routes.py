"""Nodes, their labels and their taints."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path
from starlette.responses import Response

from remora.dashboard.rest_models import Changes, Marks, NodeInDepth, NodeRow, Pairs, Preview, Previewed
from remora.dashboard.routing import Asked, Dashboard, answer, asked, dashboard_of, errors, node_of
from remora.errors import InvalidLabelError
from remora.protocol import changes
from remora.wire.calls import GetNode, GetStatus

router = APIRouter(prefix="/nodes", tags=["nodes"])

NodeId = Annotated[str, Path(min_length=1, max_length=100, description="The id of a node, or a beginning of it.")]
Here = Annotated[Dashboard, Depends(dashboard_of)]
By = Annotated[Asked, Depends(asked)]


@router.get("", responses={200: {"model": list[NodeRow]}, **errors()})
def nodes(dashboard: Here) -> Response:
    """Return every node with its labels, taints, and what of it is used."""
    return answer(dashboard.backend.ask(GetStatus())["nodes"])


@router.get("/taints/{node_id}", responses={200: {"model": Marks}, **errors(404, 422)})
def taints(dashboard: Here, node_id: NodeId) -> Response:
    """Return the taints of a node."""
    return answer(_marks(dashboard, node_of(dashboard, node_id)))


@router.post("/taints/{node_id}", responses={200: {"model": Marks}, **errors(404, 409, 422)})
def append_taints(by: By, node_id: NodeId, pairs: Annotated[Pairs, Body()]) -> Response:
    """Append taints. When this is answered nothing that does not tolerate them starts there any more; what runs finishes."""

    def change(ask: str) -> Any:
        call = changes.taint_node(node_of(by.dashboard, node_id), pairs, ask, by.by)
        by.dashboard.backend.ask(call)
        return _marks(by.dashboard, call.node_id)

    return by.once(pairs, change)


@router.delete("/taints/{node_id}", responses={200: {"model": Marks}, **errors(404, 409, 422)})
def delete_taints(by: By, node_id: NodeId, pairs: Annotated[Pairs, Body()]) -> Response:
    """Delete taints that have these values; an empty value stands for any. Where one has another value nothing is done."""

    def change(ask: str) -> Any:
        call = changes.untaint_node(node_of(by.dashboard, node_id), pairs, ask, by.by)
        by.dashboard.backend.ask(call)
        return _marks(by.dashboard, call.node_id)

    return by.once(pairs, change)


@router.get("/labels/{node_id}", responses={200: {"model": Marks}, **errors(404, 422)})
def labels(dashboard: Here, node_id: NodeId) -> Response:
    """Return the labels of a node."""
    return answer(_marks(dashboard, node_of(dashboard, node_id)))


@router.post("/labels/{node_id}", responses={200: {"model": Marks}, **errors(404, 409, 422)})
def set_labels(by: By, node_id: NodeId, pairs: Annotated[Changes, Body(min_length=1)]) -> Response:
    """Set labels of a node; null takes one away. What waits for such a label starts."""
    return _label(by, node_id, pairs)


@router.delete("/labels/{node_id}", responses={200: {"model": Marks}, **errors(404, 409, 422)})
def drop_labels(by: By, node_id: NodeId, pairs: Annotated[Changes, Body(min_length=1)]) -> Response:
    """Take labels of a node away, whatever their values."""
    return _label(by, node_id, dict.fromkeys(pairs))


@router.post("/preview/{node_id}", responses={200: {"model": Preview}, **errors(404, 422)})
def preview(dashboard: Here, node_id: NodeId, wanted: Previewed) -> Response:
    """Say what would start if the node had other labels and taints, and what stays as it is. Changes nothing."""
    call = changes.preview_node(node_of(dashboard, node_id), wanted.labels, wanted.taints)
    return answer(dashboard.backend.ask(call))


@router.get("/{node_id}", responses={200: {"model": NodeInDepth}, **errors(404, 422)})
def node(dashboard: Here, node_id: NodeId) -> Response:
    """Return one node: what runs there, and its tokens in words."""
    return answer(dashboard.backend.ask(GetNode(node_of(dashboard, node_id))))


def _label(by: Asked, node_id: str, pairs: dict[str, str | None]) -> Response:
    if not pairs:
        raise InvalidLabelError("no label was given: name at least one; for example {'zone': 'a'}")

    def change(ask: str) -> Any:
        call = changes.label_node(node_of(by.dashboard, node_id), pairs, ask, by.by)
        by.dashboard.backend.ask(call)
        return _marks(by.dashboard, call.node_id)

    return by.once(pairs, change)


def _marks(dashboard: Dashboard, node_id: str) -> dict[str, Any]:
    found = dashboard.backend.ask(GetNode(node_id))
    return {"node_id": node_id, "labels": found["labels"], "taints": found["taints"]}
