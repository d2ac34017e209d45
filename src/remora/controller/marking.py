"""Which node is meant, and the labels and taints that people set on it while it runs: all that is asked for, or nothing.

A label with the prefix of taints is a taint, here as where a node is started with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.controller.controller import Controller
from remora.errors import ConflictError, UnknownNameError
from remora.model.labels import show_labels
from remora.model.taints import split_taints, taint_key
from remora.wire.calls import FindNode, LabelNode, TaintNode
from remora.wire.keys import Overrides

_MOST_ASKS = 8
"""Of so many of the last changes of a node it is known for which question each was made."""

_MOST_NAMED = 8


def find_node(controller: Controller, call: FindNode) -> str:
    """Return the id of the one node that is meant."""
    views = controller.picture.views
    if call.word is not None:
        what = f"id, name or address {call.word!r}"
        exact = {known for known, view in views.items() if call.word in (known, view.name, view.address)}
        found = [*exact] or _with_beginning(views, call.word)
    elif call.node_id is not None:
        what, found = f"id {call.node_id!r}", _with_beginning(views, call.node_id)
    else:
        what, found = f"address {call.address!r}", [known for known, view in views.items() if view.address == call.address]
    if len(found) == 1:
        return found[0]
    shown = found or list(views)
    some = ", ".join(f"{known[:12]} ({views[known].name or views[known].address})" for known in shown[:_MOST_NAMED])
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    if found:
        raise UnknownNameError(f"{len(found)} nodes have the {what}: say which, by the beginning of its id: {some}{more}")
    raise UnknownNameError(f"no node has the {what}: the nodes are {some}{more}")


def mark(controller: Controller, call: LabelNode | TaintNode) -> tuple[str, bool]:
    """Do what is asked, unless it was done for this question before; return the node, and whether its taints are concerned."""
    node_id = call.node_id
    if node_id not in controller.picture.views:
        node_id = find_node(controller, FindNode(node_id, None))
    labels, taints = _sorted_out(call)
    overrides = controller.picture.overrides(node_id)
    if call.ask not in overrides.asks:
        node = controller.cluster.nodes.get(node_id)
        _check(node_id, "label", node.labels, labels.drop)
        _check(node_id, "taint", node.taints, taints.drop)
        asks = [*overrides.asks, call.ask][-_MOST_ASKS:] if call.ask else overrides.asks
        marked = Overrides(labels.over(overrides.labels), taints.over(overrides.taints), asks)
        controller.picture.set_overrides(node_id, marked)
        for what, changes in (("label", labels), ("taint", taints)):
            if changes:
                controller.context.note(what, node_id, changes.text, call.by)
        controller.round()
    return node_id, bool(taints)


class _Changes:
    """What is to be set, and what is to be taken away, with the value that it must have or None."""

    def __init__(self, set_: Mapping[str, str], drop: Mapping[str, str | None]) -> None:
        self.set_ = set_
        self.drop = drop

    def __bool__(self) -> bool:
        return bool(self.set_ or self.drop)

    def over(self, before: Mapping[str, str | None]) -> dict[str, str | None]:
        return {**before, **self.set_, **dict.fromkeys(self.drop)}

    @property
    def text(self) -> str:
        return ", ".join([*(f"{key}={value}" for key, value in self.set_.items()), *(f"{key}-" for key in self.drop)])


def _sorted_out(call: LabelNode | TaintNode) -> tuple[_Changes, _Changes]:
    """Return the changes of labels and those of taints."""
    set_, values = dict(call.set_), dict(call.only_if)
    drop = {key: values.get(key) for key in call.drop}
    if isinstance(call, TaintNode):
        return _Changes({}, {}), _Changes(set_, drop)
    plain, taints = split_taints(set_)
    keys = {label: taint_key(label) for label in drop}
    return (
        _Changes(plain, {label: drop[label] for label, key in keys.items() if key is None}),
        _Changes(taints, {key: drop[label] for label, key in keys.items() if key is not None}),
    )


def _check(node_id: str, what: str, has: Mapping[str, str], drop: Mapping[str, str | None]) -> None:
    """Raise unless all that is to be taken away is there."""
    for key, value in drop.items():
        if key not in has:
            there = f"its {what}s are {show_labels(has)}" if has else f"it has no {what}s"
            raise ConflictError(f"the node {node_id[:12]} has no {what} {key!r}: {there}; nothing was changed")
        if value is not None and value != has[key]:
            raise ConflictError(
                f"the node {node_id[:12]} has the {what} {key}={has[key]}, not {key}={value}; nothing was changed; to take it "
                f"away whatever its value is, name only the key, for example '{key}-'"
            )


def _with_beginning(views: Iterable[str], beginning: str) -> list[str]:
    return [known for known in views if known.startswith(beginning)] if beginning else []
