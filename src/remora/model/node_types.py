"""Node types: the machines that an autoscaler can start, as the kernel reads them and as files spell them.

    max_workers: 10                     # of all types together; leave it out for no limit
    node_types:
      cpu: {resources: {CPU: 8}, labels: {zone: a}, max_workers: 20}
      gpu: {resources: {CPU: 8, GPU: 1}, taints: {gpu_node: "true"}, min_workers: 0, max_workers: 4, cost: 2.5}

A cluster file of ``ray up`` is read as it is (``available_node_types``, its taints as labels, its head left out). A type that
cannot be read is left out and named in ``problems``: the others go on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remora.errors import InvalidInputError, InvalidNodeTypeError
from remora.model.labels import Labels, parse_labels
from remora.model.resources import Resources
from remora.model.taints import parse_taints, rare_taints, split_taints

COST_LABEL = "remora.io/cost"
"""The label of a type, or of its nodes, that says what a machine costs; the unit is the reader's, only ratios count."""

_EXAMPLE = "gpu: {resources: {CPU: 8, GPU: 1}, max_workers: 4}"
_FILE = "{node_types: {gpu: {resources: {CPU: 8, GPU: 1}, max_workers: 4}}}"
_KEYS = (
    "resources",
    "labels",
    "taints",
    "min_workers",
    "max_workers",
    "cost",
    "priority",
    "start_seconds",
    "idle_seconds",
)
# What cluster files of ``ray up`` say of a type beside that; how a machine is made is the provider's business.
_OF_RAY = ("node_config", "docker", "initialization_commands", "worker_setup_commands", "idle_timeout_s")
_ONE_NODE_ONLY = frozenset(("ray.io/node-id",))
_SLIPS = {"cpu": "CPU", "cpus": "CPU", "num_cpus": "CPU", "gpu": "GPU", "gpus": "GPU", "num_gpus": "GPU"}
_SLIPS |= {"mem": "memory", "ram": "memory", "object_store": "object_store_memory"}


@dataclass(frozen=True)
class NodeType:
    """One type of machine. ``most`` None is no limit of its own; ``cost`` None is not known; of types that are equally good
    the one with the higher ``priority`` is started. ``start_seconds`` and ``idle_seconds`` are for the simulator, which has
    no provider to ask."""

    name: str
    resources: Resources
    labels: Labels = ()
    taints: Labels = ()
    least: int = 0
    most: int | None = None
    cost: float | None = None
    priority: int = 0
    start_seconds: float = 0.0
    idle_seconds: float | None = None

    def as_seen(self, total: Resources, labels: Mapping[str, str]) -> NodeType:
        """Return the type as one of its live nodes shows it: no larger than that node, and with the labels and taints that
        the node was started with beside those that are declared. What was put on a node later is no part of its type."""
        smaller = {name: min(units, total.get(name, 0)) for name, units in self.resources.items()}
        plain, taints = split_taints({key: value for key, value in labels.items() if key not in _ONE_NODE_ONLY})
        return replace(
            self,
            resources=Resources(smaller),
            labels=tuple(sorted({**plain, **dict(self.labels)}.items())),
            taints=tuple(sorted({**taints, **dict(self.taints)}.items())),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "resources": self.resources.to_dict(),
            "labels": dict(self.labels),
            "taints": dict(self.taints),
            "min_workers": self.least,
            "max_workers": self.most,
            "cost": self.cost,
            "priority": self.priority,
        }


@dataclass(frozen=True)
class NodeTypes:
    """All types, and how many machines of them there may be together. ``problems`` are types that could not be read,
    ``source`` is where they were declared."""

    types: tuple[NodeType, ...] = ()
    most: int | None = None
    problems: tuple[str, ...] = field(default=(), compare=False)
    source: str = field(default="", compare=False)

    def __iter__(self) -> Iterator[NodeType]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __contains__(self, name: object) -> bool:
        return any(each.name == name for each in self.types)

    def get(self, name: str) -> NodeType | None:
        return next((each for each in self.types if each.name == name), None)

    def isolating(self, rare: frozenset[str]) -> NodeTypes:
        """Return the types with the taints that machines with these rare resources get when they join."""
        return replace(self, types=tuple(_isolating(each, rare) for each in self.types))

    def seen(self, nodes: Iterable[tuple[str, Resources, Mapping[str, str]]]) -> NodeTypes:
        """Return the types as their live nodes show them (type, total, labels): the least that any has, and the labels that
        all of them agree on."""
        found: dict[str, list[NodeType]] = {}
        for name, total, labels in nodes:
            declared = self.get(name)
            if declared is not None:
                found.setdefault(name, []).append(declared.as_seen(total, labels))
        return replace(self, types=tuple(_agreed(each, found.get(each.name, [])) for each in self.types))


def parse_node_types(value: Any) -> NodeTypes:
    """Return the node types of a mapping as files spell it; raise an InvalidNodeTypeError only when nothing of it can be
    read."""
    if not isinstance(value, Mapping):
        raise InvalidNodeTypeError(f"{_show(value)} is not a mapping with node_types; for example {_FILE}")
    key = next((key for key in ("node_types", "available_node_types") if key in value), None)
    if key is None:
        raise InvalidNodeTypeError(
            f"there is no node_types among {', '.join(map(str, value)) or 'nothing'}; for example {_FILE}"
        )
    listed, head = value[key], value.get("head_node_type")
    if not isinstance(listed, Mapping):
        raise InvalidNodeTypeError(f"{key}: {_show(listed)} is not a mapping of type names; for example {key}: {{{_EXAMPLE}}}")
    most = _whole(value, "max_workers", None, "max_workers")
    minutes = _number(value, "idle_timeout_minutes", None, "idle_timeout_minutes")
    types, problems = [], []
    for name, entry in listed.items():
        if name == head:
            continue
        try:
            types.append(parse_node_type(name, entry, f"{key}.{name}", None if minutes is None else minutes * 60))
        except InvalidInputError as error:
            problems.append(str(error))
    return NodeTypes(tuple(types), most, tuple(problems))


def parse_node_type(name: Any, value: Any, path: str, idle_seconds: float | None = None) -> NodeType:
    """Return one type; a refusal begins with ``path`` and names the value, the rule and an example."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidNodeTypeError(f"{path}: the name {_show(name)} is not a non-empty text; for example {_EXAMPLE}")
    if not isinstance(value, Mapping):
        raise InvalidNodeTypeError(f"{path}: {_show(value)} is not a mapping; for example {_EXAMPLE}")
    unknown = next((str(key) for key in value if key not in _KEYS and key not in _OF_RAY), None)
    if unknown is not None:
        raise InvalidNodeTypeError(f"{path}.{unknown}: a node type has no such key: it has {', '.join(_KEYS)}")
    resources = _resources(value.get("resources"), f"{path}.resources")
    labels, as_labels = _labels(value.get("labels"), f"{path}.labels")
    with _at(f"{path}.taints"):
        taints = parse_taints({**as_labels, **dict(parse_taints(value.get("taints")))})
    least = _whole(value, "min_workers", 0, f"{path}.min_workers") or 0
    most = _whole(value, "max_workers", None, f"{path}.max_workers")
    if most is not None and least > most:
        raise InvalidNodeTypeError(
            f"{path}.min_workers: {least} is above its max_workers of {most}: the least is at most the most; for example "
            f"min_workers: {most}"
        )
    idle_seconds = _number(value, "idle_timeout_s", idle_seconds, f"{path}.idle_timeout_s")
    return NodeType(
        name=name,
        resources=resources,
        labels=labels,
        taints=taints,
        least=least,
        most=most,
        cost=_cost(value, labels, path),
        priority=_priority(value, path),
        start_seconds=_number(value, "start_seconds", 0.0, f"{path}.start_seconds") or 0.0,
        idle_seconds=_number(
            value, "idle_seconds", _number(value, "idle_timeout_s", idle_seconds, path), f"{path}.idle_seconds"
        ),
    )


@contextlib.contextmanager
def _at(path: str) -> Iterator[None]:
    """Put the place in the file in front of an error of the model."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidNodeTypeError(f"{path}: {error}") from None


def _resources(value: Any, path: str) -> Resources:
    if value is None:
        raise InvalidNodeTypeError(f"{path}: it is missing: a type says what its machines have; for example {{CPU: 8}}")
    with _at(path):
        parsed = Resources.parse(value)
    slip = next((name for name in parsed if name not in _SLIPS.values() and name.lower() in _SLIPS), None)
    if slip is not None:
        right = _SLIPS[slip.lower()]
        raise InvalidNodeTypeError(
            f"{path}: Ray knows no resource {slip!r}: it is spelled {right!r}; for example {{{right}: {value[slip]!r}}}"
        )
    return parsed


def _labels(value: Any, path: str) -> tuple[Labels, dict[str, str]]:
    """Return the labels of a type, and the taints among them."""
    with _at(path):
        parsed = dict(parse_labels(value))
    plain, taints = split_taints(parsed)
    return tuple(sorted(plain.items())), taints


def _cost(value: Mapping[str, Any], labels: Labels, path: str) -> float | None:
    """Return what a machine costs: the field, else the label."""
    if value.get("cost") is not None:
        return _number(value, "cost", None, f"{path}.cost")
    written = dict(labels).get(COST_LABEL)
    if written is None:
        return None
    try:
        cost = float(written)
    except ValueError:
        cost = -1.0
    if not 0 <= cost < math.inf:
        raise InvalidNodeTypeError(
            f'{path}.labels: {COST_LABEL}={written!r} is not a number from zero; for example {{{COST_LABEL}: "2.5"}}'
        )
    return cost


def _priority(value: Mapping[str, Any], path: str) -> int:
    priority = value.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidNodeTypeError(
            f"{path}.priority: {_show(priority)} is not a whole number (more goes first); for example priority: 10"
        )
    return priority


def _whole(value: Mapping[str, Any], key: str, default: int | None, path: str) -> int | None:
    number = value.get(key)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidNodeTypeError(f"{path}: {_show(number)} is not a whole number from zero; for example {key}: 4")
    return number


def _number(value: Mapping[str, Any], key: str, default: float | None, path: str) -> float | None:
    number = value.get(key)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
        raise InvalidNodeTypeError(f"{path}: {_show(number)} is not a number from zero; for example {key}: 30")
    return float(number)


def _isolating(each: NodeType, rare: frozenset[str]) -> NodeType:
    added = dict.fromkeys(rare_taints(each.resources, rare), "true")
    return replace(each, taints=tuple(sorted({**added, **dict(each.taints)}.items()))) if added else each


def _agreed(declared: NodeType, seen: list[NodeType]) -> NodeType:
    if not seen:
        return declared
    amounts = {name: min(each.resources.get(name, 0) for each in seen) for name in declared.resources}
    labels = {*seen[0].labels}.intersection(*(each.labels for each in seen[1:]))
    taints = {*seen[0].taints}.intersection(*(each.taints for each in seen[1:]))
    return replace(declared, resources=Resources(amounts), labels=tuple(sorted(labels)), taints=tuple(sorted(taints)))


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
