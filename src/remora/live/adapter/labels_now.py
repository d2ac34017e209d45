"""The labels and taints of nodes as they hold now: those that a node was started with, and what was said since.

What was said since is in the cluster's store, where the controller remembers it; so nobody has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.errors import UnreadableEntryError
from remora.live.adapter import unpatched
from remora.live.adapter.kv import Kv
from remora.model.requests import NodeClass
from remora.model.taints import rare_resources, rare_taints, split_taints, taint_label
from remora.wire.keys import OVERRIDES, Overrides

Labels = dict[str, str]


def overrides(node_ids: Iterable[str] | None = None) -> dict[str, Overrides]:
    """Return what was said at run time of these nodes, or of all."""
    kv = Kv()
    known = kv.keys(OVERRIDES.prefix) if node_ids is None else [OVERRIDES.key(node_id) for node_id in node_ids]
    found = {}
    for key in known:
        data = kv.get(key)
        if data is not None:
            try:
                found[OVERRIDES.parts(key)[0]] = OVERRIDES.read(data)
            except UnreadableEntryError:
                continue
    return found


def shown(labels: Mapping[str, str], said: Overrides | None) -> Labels:
    """Return a node's labels as they hold now; a taint is a label with a prefix, also one that was set since."""
    if said is None:
        return dict(labels)
    now = {**labels, **said.labels, **{taint_label(key): value for key, value in said.taints.items()}}
    return {key: value for key, value in now.items() if value is not None}


def of_node(node_id: str, labels: Mapping[str, str]) -> Labels:
    """Return the labels of one node, which it was started with, as they hold now."""
    return shown(labels, overrides([node_id]).get(node_id))


def admits(choice: NodeClass, node_id: str) -> bool:
    """Return whether a living node is what a class asks for, by its labels and taints."""
    nodes = unpatched.nodes()
    found = next((node for node in nodes if node["NodeID"] == node_id and node["Alive"]), None)
    if found is None:
        return False
    labels, taints = split_taints(of_node(node_id, found["Labels"]))
    head: Labels = next((node["Labels"] for node in nodes if "node:__internal_head__" in node["Resources"]), {})
    taints = {**dict.fromkeys(rare_taints(found["Resources"], rare_resources(head)), "true"), **taints}
    any_of = not choice.any_of or all(any(term.matches(labels) for term in terms) for terms in choice.any_of)
    return any_of and choice.selector.matches(labels) and choice.tolerations.tolerates(taints)
