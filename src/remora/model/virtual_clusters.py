"""Virtual cluster specs, as the virtual cluster proposal defines them: values, mappings or JSON.

Rulings where the proposal is silent: a resource that ``flexible_resource_max`` does not name is unlimited. A spec with
fixed-size nodes and no flexible field at all has no flexible part *for the resources that its nodes name* (the
proposal's own walk-through: the third task waits); what they do not name (the CPU beside a GPU) is borrowed freely.
"""

from __future__ import annotations

import enum
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from remora.errors import InvalidResourceError, InvalidStrategyError, InvalidVirtualClusterError
from remora.model.labels import NODE_ID, RESERVED_PREFIX, Labels, parse_labels
from remora.model.live_clusters import LiveClusters, live_clusters
from remora.model.resources import EMPTY, Resources, from_units, show_amount
from remora.model.topology import Levels, parse_levels

VNODE_LABEL = "ray.io/vnode_id"
VCLUSTER_LABEL = "ray.io/vcluster_id"

IDLE_SECONDS = 5.0
"""How long a virtual cluster keeps what it borrowed and does not use."""


_T = TypeVar("_T")


class SchedulingPolicy(str, enum.Enum):
    """How the nodes of one set lie relative to the parent's virtual nodes."""

    PACK = "PACK"
    SPREAD = "SPREAD"
    STRICT_SPREAD = "STRICT_SPREAD"


PACK = SchedulingPolicy.PACK
SPREAD = SchedulingPolicy.SPREAD
STRICT_SPREAD = SchedulingPolicy.STRICT_SPREAD


@dataclass(frozen=True, init=False)
class FixedSizeNode:
    """One virtual node: its resources, and labels on top of those of the node it lies on."""

    resources: Resources
    labels: Labels

    def __init__(self, resources: Any = None, labels: Mapping[str, str] | None = None) -> None:
        parsed = _resources(resources, "resources of a fixed-size node")
        if not parsed:
            raise InvalidVirtualClusterError(
                f"a fixed-size node has the resources {resources!r}: name at least one; for example FixedSizeNode({{'GPU': 1}})"
            )
        checked = parse_labels(labels)
        reserved = next((key for key, _ in checked if key.startswith(RESERVED_PREFIX)), None)
        if reserved:
            raise InvalidVirtualClusterError(f"the label {reserved!r} is reserved for Ray; for example {{'bundle_index': '0'}}")
        object.__setattr__(self, "resources", parsed)
        object.__setattr__(self, "labels", checked)

    def to_dict(self) -> dict[str, Any]:
        return {"resources": self.resources.to_dict(), "labels": dict(self.labels)}


@dataclass(frozen=True, init=False)
class FixedSizeNodes:
    """A set of virtual nodes that is reserved as one. ``topology`` says how they lie over zones or racks, from the widest down:
    ``[{"zone": "SPREAD"}, {"rack": "STRICT_PACK"}]``."""

    nodes: tuple[FixedSizeNode, ...]
    scheduling_policy: SchedulingPolicy
    topology: Levels

    def __init__(
        self, nodes: Iterable[FixedSizeNode | Mapping[str, Any]], scheduling_policy: Any = PACK, topology: Any = None
    ) -> None:
        parsed = tuple(_build(node, FixedSizeNode) for node in _sequence(nodes, "nodes"))
        if not parsed:
            raise InvalidVirtualClusterError(
                "fixed_size_nodes has a set without nodes: name at least one, or leave the set out"
            )
        object.__setattr__(self, "nodes", parsed)
        object.__setattr__(self, "scheduling_policy", _policy(scheduling_policy))
        object.__setattr__(self, "topology", _topology(topology))

    def to_dict(self) -> dict[str, Any]:
        out = {"nodes": [node.to_dict() for node in self.nodes], "scheduling_policy": self.scheduling_policy.value}
        return {**out, "topology": [{label: how} for label, how in self.topology]} if self.topology else out


@dataclass(frozen=True, init=False)
class VirtualCluster:
    """A share of a cluster: reserved minimum, elastic up to a maximum, and fixed-size nodes.

    ``with`` makes one inside the current one, on a live Ray. ``timeout`` is how long to wait for its minimum (None: as long as
    it takes), ``priority`` its place in the queue, ``idle_seconds`` how long it keeps what it borrowed and does not use; with
    ``cancel`` its work is stopped at the end of the ``with`` instead of being left to finish.

    Examples:
        ``VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 8})``
    """

    flexible_resource_min: Resources
    flexible_resource_max: Mapping[str, int] | None
    fixed_size_nodes: tuple[FixedSizeNodes, ...]
    timeout: float | None = field(compare=False)
    cancel: bool = field(compare=False)
    priority: int = field(compare=False)
    idle_seconds: float = field(compare=False)

    def __init__(
        self,
        flexible_resource_min: Any = None,
        flexible_resource_max: Any = None,
        fixed_size_nodes: Iterable[FixedSizeNodes | Mapping[str, Any]] | None = None,
        *,
        timeout: float | None = None,
        cancel: bool = False,
        priority: int = 0,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        lowest = _resources(flexible_resource_min, "flexible_resource_min")
        highest = None if flexible_resource_max is None else _Limits.parse(flexible_resource_max)
        for name, units in lowest.pairs:
            if highest is not None and units > highest.get(name, units):
                raise InvalidVirtualClusterError(
                    f"flexible_resource_min asks for {show_amount(units)} {name}, above its flexible_resource_max of "
                    f"{show_amount(highest[name])} {name}: the minimum is at most the maximum; for example min {{'CPU': 1}} "
                    "and max {'CPU': 8}"
                )
        object.__setattr__(self, "flexible_resource_min", lowest)
        object.__setattr__(self, "flexible_resource_max", highest)
        sets = tuple(_build(nodes, FixedSizeNodes) for nodes in _sequence(fixed_size_nodes or (), "fixed_size_nodes"))
        object.__setattr__(self, "fixed_size_nodes", sets)
        object.__setattr__(self, "timeout", _seconds(timeout, "timeout"))
        object.__setattr__(self, "cancel", bool(cancel))
        object.__setattr__(self, "priority", _whole(priority, "priority"))
        object.__setattr__(self, "idle_seconds", _seconds(idle_seconds, "idle_seconds") or 0.0)

    def __enter__(self) -> VirtualCluster:
        """Reserve it, and wait for that; inside, everything that this thread or coroutine submits runs in it."""
        _live().enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        _live().leave(self)

    async def __aenter__(self) -> VirtualCluster:
        """The same, and the event loop goes on while it waits."""
        await _live().enter_async(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        _live().leave(self)

    @classmethod
    def parse(cls, spec: Any) -> VirtualCluster:
        """A VirtualCluster, a mapping, or the JSON text of one."""
        if isinstance(spec, cls):
            return spec
        if isinstance(spec, str):
            try:
                spec = json.loads(spec)
            except (ValueError, RecursionError) as error:
                raise InvalidVirtualClusterError(
                    f"the virtual cluster {spec[:80]!r} is not JSON ({error}); for example "
                    '\'{"flexible_resource_max": {"CPU": 8}}\''
                ) from None
        return _build(spec, cls)

    @functools.cached_property
    def fixed_nodes(self) -> tuple[FixedSizeNode, ...]:
        """Every fixed-size node, one set after the other: the order of the slots that a live cluster has for them."""
        return tuple(node for nodes in self.fixed_size_nodes for node in nodes.nodes)

    def limit(self, name: str) -> int | None:
        """The most that the flexible part may have of a resource, in units; None when there is no limit."""
        if self.flexible_resource_max is not None:
            return self.flexible_resource_max.get(name)
        if not self.flexible_resource_min and any(name in node.resources for node in self.fixed_nodes):
            return 0
        return None

    def with_maximum(self, changes: Mapping[str, int | None]) -> VirtualCluster:
        """The same with other limits of the flexible part, in units; None takes a limit away. Raises when one is below the
        minimum."""
        fixed = {name for node in self.fixed_nodes for name in node.resources}
        limits = {name: self.limit(name) for name in {*fixed, *(self.flexible_resource_max or ())}} | dict(changes)
        most = {name: from_units(limit) for name, limit in limits.items() if limit is not None}
        return VirtualCluster(
            self.flexible_resource_min.to_dict() or None,
            most,
            self.fixed_size_nodes,
            timeout=self.timeout,
            cancel=self.cancel,
            priority=self.priority,
            idle_seconds=self.idle_seconds,
        )

    def names(self, name: str) -> bool:
        """Whether it says anything about a resource."""
        fixed = (node.resources for node in self.fixed_nodes)
        return any(name in amounts for amounts in (self.flexible_resource_min, self.flexible_resource_max or (), *fixed))

    def without_minimum(self) -> VirtualCluster:
        """The same with nothing kept for the flexible part."""
        most = None if self.flexible_resource_max is None else _to_dict(self.flexible_resource_max)
        return VirtualCluster(None, most, self.fixed_size_nodes) if self.flexible_resource_min else self

    def relaxed(self) -> VirtualCluster:
        """Nothing reserved, and at most what it may have now: for what is left of it at the end."""
        fixed = EMPTY
        for node in self.fixed_nodes:
            fixed += node.resources
        limits = {name: self.limit(name) for name in {*fixed, *(self.flexible_resource_max or ())}}
        most = {name: from_units(limit + fixed.get(name, 0)) for name, limit in limits.items() if limit is not None}
        return VirtualCluster(None, most or None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of the proposal."""
        out: dict[str, Any] = {}
        if self.flexible_resource_min:
            out["flexible_resource_min"] = self.flexible_resource_min.to_dict()
        if self.flexible_resource_max is not None:
            out["flexible_resource_max"] = _to_dict(self.flexible_resource_max)
        if self.fixed_size_nodes:
            out["fixed_size_nodes"] = [nodes.to_dict() for nodes in self.fixed_size_nodes]
        return out

    def __repr__(self) -> str:
        return f"VirtualCluster({json.dumps(self.to_dict())})"


class _Limits(dict[str, int]):
    """Maxima: unlike Resources, a zero says something (none at all), so it is kept."""

    @classmethod
    def parse(cls, limits: Any) -> _Limits:
        parsed = _resources(limits, "flexible_resource_max")
        return cls({name: parsed.get(name, 0) for name in limits})

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


def _to_dict(limits: Mapping[str, int]) -> dict[str, float]:
    return {name: from_units(units) for name, units in sorted(limits.items())}


def _live() -> LiveClusters:
    live = live_clusters()
    if live is None:
        raise InvalidVirtualClusterError("this process is not attached: call remora.init() before `with VirtualCluster(...)`")
    return live


def _seconds(value: Any, of: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidVirtualClusterError(f"{of}={value!r} is not a number of seconds; for example {of}=30")
    return float(value)


def _whole(value: Any, of: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidVirtualClusterError(f"{of}={value!r} is not a whole number; for example {of}=10 (more goes first)")
    return value


def _resources(value: Any, of: str) -> Resources:
    if value is None:
        return EMPTY
    try:
        return Resources.parse(value, of=of)
    except InvalidResourceError as error:
        raise InvalidVirtualClusterError(f"{of}: {error}") from None


def _policy(policy: Any) -> SchedulingPolicy:
    try:
        return SchedulingPolicy(policy.upper() if isinstance(policy, str) else policy)
    except ValueError:
        raise InvalidVirtualClusterError(
            f"the scheduling_policy {policy!r} is not known: use PACK, SPREAD or STRICT_SPREAD"
        ) from None


def _topology(topology: Any) -> Levels:
    try:
        levels, by_node = parse_levels(topology)
    except InvalidStrategyError as error:
        raise InvalidVirtualClusterError(f"topology of fixed-size nodes: {error}") from None
    if by_node is not None:
        raise InvalidVirtualClusterError(
            f"topology names {NODE_ID!r}: how fixed-size nodes lie over nodes is their scheduling_policy; "
            "for example scheduling_policy=STRICT_SPREAD"
        )
    return levels


def _sequence(value: Any, of: str) -> Sequence[Any]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InvalidVirtualClusterError(f"{of} must be a list, not {value!r}; for example [{{'resources': {{'GPU': 1}}}}]")
    return tuple(value)


def _build(value: Any, into: type[_T]) -> _T:
    """``value`` if it is one already, else one made from a mapping; an unknown field names the known ones."""
    if isinstance(value, into):
        return value
    known = {
        VirtualCluster: ("flexible_resource_min", "flexible_resource_max", "fixed_size_nodes"),
        FixedSizeNodes: ("nodes", "scheduling_policy", "topology"),
        FixedSizeNode: ("resources", "labels"),
    }[into]
    if not isinstance(value, Mapping):
        raise InvalidVirtualClusterError(f"{value!r} is not a {into.__name__}: give one, or a mapping with {', '.join(known)}")
    unknown = sorted(str(name) for name in value if name not in known)
    if unknown:
        raise InvalidVirtualClusterError(f"{into.__name__} has no field {unknown[0]!r}: the fields are {', '.join(known)}")
    if into is FixedSizeNodes and "nodes" not in value:
        raise InvalidVirtualClusterError(
            "a set of fixed_size_nodes has no 'nodes'; for example {'nodes': [{'resources': {'GPU': 1}}]}"
        )
    return into(**value)
