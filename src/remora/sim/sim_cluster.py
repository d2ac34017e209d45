"""SimCluster: nodes, work and virtual clusters in memory, decided by the same kernel as the live ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remora.errors import InvalidInputError, InvalidLabelError, InvalidNodeTypeError, InvalidTaintError, UnknownNameError
from remora.kernel.cycle import Scheduler
from remora.kernel.provisioning.demands import waiting_of
from remora.kernel.provisioning.keeping import Kept, kept
from remora.kernel.provisioning.planning import plan
from remora.kernel.provisioning.plans import Plan
from remora.kernel.sharing.compacting import staying_nodes
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.type_table import TypeTable
from remora.kernel.state.validate import validate
from remora.kernel.state.workloads import Group
from remora.model.groups import parse_group
from remora.model.labels import RESERVED_PREFIX, parse_label_keys, parse_labels, parse_workload_labels, validate_label_value
from remora.model.memo import Memo
from remora.model.node_types import NodeTypes, parse_node_types
from remora.model.requests import parse_request
from remora.model.resources import Resources
from remora.model.taints import Tolerations, parse_taints, split_taints, taint_key
from remora.model.virtual_clusters import VirtualCluster
from remora.sim.handles import FINISHED, PENDING, PLACED, SimGroup, SimVirtualCluster, SimVirtualNode, SimWorkload


class SimCluster:
    """A cluster that exists only as numbers. Everything pending is decided again on every change.

    Examples:
        >>> c = SimCluster(seed=0)
        >>> c.add_node("n1", resources={"CPU": 4}, labels={"zone": "a"})
        >>> c.submit("actor", name="cat-0", resources={"CPU": 1}, label_selector={"zone": "a"}).node
        'n1'
    """

    def __init__(self, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidInputError(f"the seed {seed!r} is not a whole number; for example SimCluster(seed=0)")
        self.scheduler = Scheduler(seed)
        self._work: dict[str, SimWorkload] = {}
        self._groups: dict[str, SimGroup] = {}
        self._names: set[tuple[str, str]] = set()
        self._ids: set[str] = set()
        self._made = 0
        self._started = 0

    # Nodes

    def add_node(
        self,
        node_id: str,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Mapping[str, str] | None = None,
        *,
        node_type: str = "",
    ) -> None:
        """A node joins. Labels under ``taint.remora.io`` are taints, as on a live node; ``node_type`` is what started it."""
        if not isinstance(node_id, str) or not node_id:
            raise InvalidInputError(f"the node id {node_id!r} is not a non-empty string; for example 'n1'")
        plain, as_labels = split_taints(dict(parse_labels(labels)))
        tainted = parse_taints({**as_labels, **dict(parse_taints(taints))})
        self.scheduler.add_node(node_id, Resources.parse(resources), parse_labels(plain), tainted, node_type)

    def remove_node(self, node_id: str) -> None:
        """A node dies: what ran there is placed again, virtual nodes are made again elsewhere."""
        self.scheduler.remove_node(node_id)

    def taint(self, node_id: str, taints: Mapping[str, str]) -> None:
        """Keep newcomers off a node unless they tolerate this; what runs there stays."""
        self.scheduler.retaint(node_id, parse_taints(taints))

    def untaint(self, node_id: str, keys: Iterable[str]) -> None:
        wanted = parse_label_keys(keys, of="taint keys")
        self._require_keys(node_id, wanted, self.scheduler.cluster.nodes.get(node_id).taints, "taint", InvalidTaintError)
        self.scheduler.retaint(node_id, drop=wanted)

    def label(self, node_id: str, labels: Mapping[str, str]) -> None:
        parsed = parse_labels(labels)
        self._check_changeable(key for key, _ in parsed)
        self.scheduler.relabel(node_id, parsed)

    def unlabel(self, node_id: str, keys: Iterable[str]) -> None:
        wanted = parse_label_keys(keys)
        self._check_changeable(wanted)
        self._require_keys(node_id, wanted, self.scheduler.cluster.nodes.get(node_id).labels, "label", InvalidLabelError)
        self.scheduler.relabel(node_id, drop=wanted)

    # Machines that may be started

    def offer_node_types(
        self, types: NodeTypes | Mapping[str, Any] | None, *, resting: Mapping[str, str] | None = None
    ) -> None:
        """Say which types of machines may be started, as in a file of node types; what only they could hold waits for them.
        ``resting`` are types that cannot be had now, with the reason. None: no machine is ever started."""
        parsed = parse_node_types(types) if isinstance(types, Mapping) else types
        if parsed is not None and parsed.problems:
            raise InvalidNodeTypeError(parsed.problems[0])
        self.scheduler.offer_types(TypeTable(parsed, resting) if parsed is not None else None)

    def start_node(self, node_type: str, node_id: str | None = None) -> str:
        """A machine of a type joins; return its id."""
        table = self.scheduler.cluster.types
        found = table.types.get(node_type) if table is not None else None
        if found is None:
            known = ", ".join(each.name for each in table.types) if table is not None else "none"
            raise UnknownNameError(f"there is no node type {node_type!r}: the types are {known or 'none'}")
        if node_id is None:
            self._started += 1
            node_id = f"{node_type}-{self._started}"
        self.add_node(node_id, found.resources, dict(found.labels), dict(found.taints), node_type=node_type)
        return node_id

    def plan(self, coming: Mapping[str, int] | None = None) -> Plan:
        """Which machines to start for all that waits, beside those that are ``coming`` already, by type; nothing changes."""
        table = self.scheduler.cluster.types
        if table is None:
            return Plan()
        return plan(self.scheduler.cluster, waiting_of(self.scheduler), table, coming)

    def kept(self, plan: Plan | None = None, before: Iterable[str] = ()) -> dict[str, Kept]:
        """The machines that must not be ended though nothing runs there, and why; ``before`` are those kept until now. Only
        machines that were started as a type are ever ended."""
        cluster = self.scheduler.cluster
        return kept(cluster, plan, before, staying_nodes(cluster))

    # Work

    def submit(
        self,
        kind: str = "task",
        *,
        name: str | None = None,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str = "default",
        label_selector: Any = None,
        fallback_strategy: Any = None,
        tolerations: Any = None,
        scheduling_strategy: Any = None,
        affinity: Any = None,
        virtual_cluster: SimVirtualCluster | str | None = None,
    ) -> SimWorkload:
        """An actor or task, as ``.options(...).remote()`` would submit it; raises on bad input, else is placed or waits."""
        request = parse_request(
            kind,
            resources=resources,
            label_selector=label_selector,
            fallback_strategy=fallback_strategy,
            tolerations=tolerations,
            scheduling_strategy=scheduling_strategy,
            affinity=affinity,
            namespace=namespace,
            virtual_cluster=self._cluster_id(virtual_cluster),
        )
        parsed = _parse_labels(labels)
        name, workload_id = self._name(kind, name, namespace)
        work = SimWorkload(self, name, kind)
        work._inner = self.scheduler.submit(workload_id, request, parsed)
        self._names.add((namespace, name))
        self._work[workload_id] = work
        return work

    def finish(self, work: SimWorkload | SimGroup) -> None:
        """It is done; what it held is free again."""
        self._check_live(work, SimWorkload, SimGroup)
        if isinstance(work, SimGroup):
            work._finished = True
            self.scheduler.finish_group(work._inner)
            del self._groups[work.name]
            return
        self._end(work)
        self.scheduler.finish(work._work)

    def fail(self, work: SimWorkload) -> None:
        """It died: it is placed again, under the rules that hold today."""
        self._check_live(work, SimWorkload)
        self.scheduler.fail(work._work)

    def placement_group(
        self,
        bundles: Any,
        strategy: str | None = None,
        *,
        name: str | None = None,
        topology_strategy: Any = None,
        bundle_label_selector: Any = None,
        tolerations: Any = None,
        fallback_strategy: Any = None,
        virtual_cluster: SimVirtualCluster | str | None = None,
    ) -> SimGroup:
        request = parse_group(
            bundles,
            strategy,
            topology_strategy=topology_strategy,
            bundle_label_selector=bundle_label_selector,
            tolerations=tolerations,
            fallback_strategy=fallback_strategy,
            virtual_cluster=self._cluster_id(virtual_cluster),
        )
        self._made += 1
        if name is None:
            name = f"pg-{self._made}"
        _check_name(name, "pg-0")
        if name in self._groups:
            raise InvalidInputError(f"there is a placement group {name!r} already: names are unique")
        group = SimGroup(self, self.scheduler.submit_group(name, request))
        self._groups[name] = group
        return group

    # Virtual clusters

    def create_virtual_cluster(
        self,
        spec: VirtualCluster | Mapping[str, Any] | str | None = None,
        parent: SimVirtualCluster | str | None = None,
        priority: int = 0,
        *,
        tolerations: Any = None,
    ) -> SimVirtualCluster:
        """Reserve a virtual cluster inside its parent, or queue it; ``tolerations`` let it lie on tainted nodes."""
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidInputError(f"the priority {priority!r} is not a whole number; for example priority=10")
        above = None if parent is None else self._vcluster(parent)
        parsed = VirtualCluster() if spec is None else VirtualCluster.parse(spec)
        inner = self.scheduler.create_cluster(parsed, above, priority, Tolerations(tolerations))
        return SimVirtualCluster(self, inner)

    def destroy(self, vcluster: SimVirtualCluster) -> None:
        """End a virtual cluster with its children and its work; twice is once."""
        self._check_own(vcluster, SimVirtualCluster)
        if vcluster._inner.cluster_id not in self.scheduler.cluster.tree.clusters:
            return
        for ended in self.scheduler.destroy_cluster(vcluster._inner):
            if isinstance(ended, Group):
                self._groups.pop(ended.group_id)._finished = True
            else:
                self._end(self._work[ended.workload_id])

    def validate(self) -> None:
        """Recount everything; raises InvariantError if anything contradicts itself."""
        validate(self.scheduler.cluster)

    def _end(self, work: SimWorkload) -> None:
        work._finished = True
        del self._work[work.workload_id]
        self._names.discard((work._work.request.namespace, work.name))

    def _name(self, kind: str, name: str | None, namespace: str) -> tuple[str, str]:
        self._made += 1
        if name is None:
            # Somebody may have taken the next number as a name.
            while (namespace, f"{kind}-{self._made}") in self._names:
                self._made += 1
            name = f"{kind}-{self._made}"
        _check_name(name, "cat-0")
        if (namespace, name) in self._names:
            raise InvalidInputError(
                f"there is something named {name!r} in the namespace {namespace!r} already: names are unique"
            )
        # Affinity to a handle names this id, so people should recognise it; a name that was used before gets a number.
        workload_id = name if _is_label_value(name) and name not in self._ids else f"{kind}-id-{self._made}"
        self._ids.add(workload_id)
        return name, workload_id

    def _cluster_id(self, vcluster: SimVirtualCluster | str | None) -> str | None:
        return None if vcluster is None else self._vcluster(vcluster).cluster_id

    def _vcluster(self, vcluster: SimVirtualCluster | str) -> VCluster:
        if isinstance(vcluster, str):
            return self.scheduler.cluster.tree.get(vcluster)
        self._check_own(vcluster, SimVirtualCluster)
        return self.scheduler.cluster.tree.get(vcluster.cluster_id)

    def _check_live(self, work: Any, *kinds: type) -> None:
        self._check_own(work, *kinds)
        if work.state == FINISHED:
            raise InvalidInputError(f"{work.name} is finished already")

    def _check_own(self, item: Any, *kinds: type) -> None:
        if not isinstance(item, kinds) or getattr(item, "_sim", None) is not self:
            known = " or ".join(kind.__name__ for kind in kinds)
            raise InvalidInputError(f"{item!r} is not a {known} of this cluster: give what this SimCluster returned")

    @staticmethod
    def _check_changeable(keys: Iterable[str]) -> None:
        for key in keys:
            if key.startswith(RESERVED_PREFIX):
                raise InvalidLabelError(f"the label {key!r} is set by Ray and can't be changed; for example use 'zone'")
            taint = taint_key(key)
            if taint is not None:
                raise InvalidLabelError(f"the label {key!r} stands for the taint {taint!r}: use taint() and untaint()")

    @staticmethod
    def _require_keys(
        node_id: str, wanted: tuple[str, ...], present: Mapping[str, str], what: str, error: type[InvalidInputError]
    ) -> None:
        missing = next((key for key in wanted if key not in present), None)
        if missing is not None:
            raise error(f"{node_id} has no {what} {missing!r}: it has {', '.join(present) or 'none'}")


_parse_labels = Memo(parse_workload_labels)


def _check_name(name: Any, example: str) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"the name {name!r} is not a non-empty string; for example {example!r}")


def _is_label_value(name: str) -> bool:
    try:
        return bool(validate_label_value(name))
    except InvalidLabelError:
        return False


__all__ = [
    "FINISHED",
    "PENDING",
    "PLACED",
    "SimCluster",
    "SimGroup",
    "SimVirtualCluster",
    "SimVirtualNode",
    "SimWorkload",
]
