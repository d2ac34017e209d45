"""How machines are asked for in the language of Ray's cluster resource constraint: one bundle for each wanted node.

    bundle    {an implicit resource: 1}       every node has exactly one of it, also one that is not started yet
    selector  what tells the type from others, not one of the nodes that are there, and a mark

So many bundles are so many different nodes, which take nothing from anybody: the user's own request and ours are met by the
same nodes. A node that joined and that nobody has seen yet meets its bundle. There is one constraint for all; the
mark tells ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from remora.model.node_types import NodeType, NodeTypes
from remora.model.resources import from_units
from remora.model.taints import taint_label
from remora.port.scaler import Request

MARK = "remora.io/asked"
"""No node has this label, so every node meets that it has not some value: that is the type asked for, for whoever reads it."""

_IMPLICIT = "node:__internal_implicit_resource_remora-node"
_NODE = "ray.io/node-id"
_COMPANION = "none"
_MOST_OF_MEMORY = 0.9


class Bundle(NamedTuple):
    """An entry of the constraint: what each of so many ``nodes``, or places on them, has to have."""

    amounts: dict[str, float]
    selector: dict[str, str]
    nodes: int


def spell(types: NodeTypes, wanted: Mapping[str, int], nodes: Mapping[str, str], head: str) -> list[Bundle]:
    """Return the bundles that ask for so many machines of each type beside these nodes.

    One more, which the head meets, is for releases of Ray that take no node for counted when there are implicit resources only.
    """
    bundles = []
    for each in types:
        if wanted.get(each.name):
            alike = [other for other in types if other.name != each.name and labels_of(other) == labels_of(each)]
            names = {each.name, "", *(other.name for other in alike)}
            known = sorted(node_id for node_id, node_type in nodes.items() if node_type in names)
            selector = {**_selector(types, each), MARK: f"!{each.name}"}
            if known:
                selector[_NODE] = f"!in({','.join(known)})"
            bundles.append(Bundle({_IMPLICIT: 1.0, **_shape(each, alike)}, selector, wanted[each.name]))
    if bundles and head:
        bundles.append(Bundle({"memory": 1.0}, {_NODE: head, MARK: f"!{_COMPANION}"}, 1))
    return bundles


def is_ours(bundle: Bundle) -> bool:
    return MARK in bundle.selector


def read(bundles: Iterable[Bundle]) -> dict[str, Request]:
    """Return what was asked for in our name: the opposite of ``spell``."""
    found: dict[str, Request] = {}
    for bundle in filter(is_ours, bundles):
        if _IMPLICIT in bundle.amounts:
            (name,) = values_in(bundle.selector[MARK])
            known = frozenset(values_in(bundle.selector.get(_NODE, "")))
            found[name] = Request(bundle.nodes, known)
    return found


def labels_of(each: NodeType) -> dict[str, str]:
    """Return the labels of a type's nodes as Ray knows them: taints are labels too."""
    return {**dict(each.labels), **{taint_label(key): value for key, value in each.taints}}


def condition(values: Iterable[str], *, negated: bool) -> str:
    """Return a condition of a selector as it is written."""
    listed = list(values)
    plain = listed[0] if len(listed) == 1 else f"in({','.join(listed)})"
    return f"!{plain}" if negated else plain


def values_in(written: str) -> list[str]:
    """Return the values that a condition names."""
    plain = written.removeprefix("!")
    inner = plain[3:-1] if plain.startswith("in(") and plain.endswith(")") else plain
    return [value for value in inner.split(",") if value]


def _selector(types: NodeTypes, each: NodeType) -> dict[str, str]:
    """Return what tells a type from the others: its own labels, and none of those that only others have."""
    mine, others = labels_of(each), [labels_of(other) for other in types]
    found = dict(mine)
    for key in sorted({key for labels in others for key in labels} - mine.keys()):
        found[key] = condition(sorted({labels[key] for labels in others if key in labels}), negated=True)
    return found


def _shape(each: NodeType, alike: list[NodeType]) -> dict[str, float]:
    """Return what a bundle asks for beside the node itself, where labels do not tell the types apart: Ray takes the type that
    it fits best. How much memory a machine has is known roughly, so it is named only where nothing else differs."""
    if not alike:
        return {}
    shape = {name: from_units(units) for name, units in each.resources.items() if "memory" not in name}
    if any({name: units for name, units in other.resources.items() if name in shape} == _plain(each) for other in alike):
        shape |= {name: from_units(units) * _MOST_OF_MEMORY for name, units in each.resources.items() if name == "memory"}
    return shape


def _plain(each: NodeType) -> dict[str, int]:
    return {name: units for name, units in each.resources.items() if "memory" not in name}
