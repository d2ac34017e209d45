"""The nodes of a local cluster, from a file: written as in scenario files, the first one is the head.

nodes:
  - {name: head, resources: {CPU: 1}}
  - {name: gpu, count: 2, resources: {CPU: 2, GPU: 1}, labels: {zone: "z{i}"}, taints: {gpu_node: "true"}}
rare_resource_isolation: [gpu]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from remora.errors import InvalidInputError, InvalidResourceError
from remora.machine.label_keys import NODE_GROUP
from remora.machine.written import isolation_of, parse_node_labels
from remora.model.labels import show_labels, validate_label_value
from remora.model.resources import UNIT, show_amount
from remora.model.taints import taint_label
from remora.sim.entries import NodeSpec, read_nodes
from remora.sim.fields import Fields, at_path, is_template
from remora.sim.scenario import load_yaml

MOST_NODES = 64
_EXAMPLE = "{nodes: [{name: head, resources: {CPU: 1}}]}"
_OBJECT_STORE_BYTES = 100_000_000
_FLAGS = {
    "CPU": "--num-cpus",
    "GPU": "--num-gpus",
    "memory": "--memory",
    "object_store_memory": "--object-store-memory",
}


@dataclass(frozen=True)
class LocalNode:
    """One node to start; ``labels`` hold its taints too, as Ray will see them."""

    name: str
    resources: Mapping[str, int]
    labels: Mapping[str, str]

    def arguments(self) -> list[str]:
        """What ``ray start`` is told about this node."""
        whole = {"CPU": 0, "GPU": 0, "object_store_memory": _OBJECT_STORE_BYTES, **self.resources}
        custom = {name: amount for name, amount in whole.items() if name not in _FLAGS}
        flags = [f"{_FLAGS[name]}={amount}" for name, amount in whole.items() if name in _FLAGS]
        return [
            f"--node-name={self.name}",
            f"--labels={show_labels(self.labels)}",
            *flags,
            *([f"--resources={json.dumps(custom)}"] if custom else []),
        ]


def load_nodes(path: Path | None) -> list[LocalNode]:
    """The nodes of a file, or the built-in ones."""
    if path is None:
        ready = resources.files("remora.machine") / "default-nodes.yaml"
        return parse_nodes(ready.read_text(encoding="utf-8"), "default-nodes.yaml")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"--nodes {str(path)!r} cannot be read ({error}); it is a file such as {_EXAMPLE}") from None
    return parse_nodes(text, str(path))


def parse_nodes(text: str, source: str) -> list[LocalNode]:
    value = load_yaml(text, source)
    try:
        return _read(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{source}: {error}") from None


def _read(value: Any) -> list[LocalNode]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"it holds {value!r:.80}, not a mapping; for example {_EXAMPLE}")
    fields = Fields(value, "", ("nodes", "rare_resource_isolation"), _EXAMPLE)
    found: list[LocalNode] = []
    for path, entry in fields.items("nodes", "[{name: head, resources: {CPU: 1}}]"):
        for spec in read_nodes(_with_id(entry, path), path):
            found.append(_node(spec, path, _group(entry) if found else "head"))
    if not 0 < len(found) <= MOST_NODES:
        raise InvalidInputError(f"nodes: there are {len(found)}, not 1 to {MOST_NODES}; for example {_EXAMPLE}")
    names = [node.name for node in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"nodes: two are named {twice!r}: names are unique; for example {twice}-2")
    rare = isolation_of(fields.texts("rare_resource_isolation", "[gpu]"), "rare_resource_isolation")
    return [replace(found[0], labels={**found[0].labels, **rare}), *found[1:]]


def _node(spec: NodeSpec, path: str, group: str | None) -> LocalNode:
    for name, units in spec.resources.items():
        if units % UNIT:
            raise InvalidResourceError(
                f"{path}.resources: {show_amount(units)} {name} is not whole, and Ray nodes have whole amounts; for example "
                f"{{{name}: 1}}"
            )
    with at_path(f"{path}.labels"):
        parse_node_labels(spec.labels)
    default = {} if group is None else {NODE_GROUP: group}
    taints = {taint_label(key): value for key, value in spec.taints.items()}
    amounts = {name: units // UNIT for name, units in spec.resources.items()}
    return LocalNode(spec.node_id, amounts, {**default, **spec.labels, **taints})


def _with_id(entry: Any, path: str) -> Any:
    """``name`` and ``id`` are one key: people write the first, scenarios the second."""
    if not isinstance(entry, Mapping) or "id" in entry:
        return entry
    if "name" not in entry:
        raise InvalidInputError(f"{path}.name: it is missing; for example {{name: gpu, resources: {{CPU: 1, GPU: 1}}}}")
    return {"id" if key == "name" else key: value for key, value in entry.items()}


def _group(entry: Any) -> str | None:
    """The name of an entry is the group of its copies, where it can be a label."""
    name = entry.get("name", entry.get("id")) if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or is_template(name):
        return None
    try:
        return validate_label_value(name)
    except InvalidInputError:
        return None
