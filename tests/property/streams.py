"""Random clusters and streams of requests: small vocabularies, so that collisions and conflicts are common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from remora import (
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    VirtualCluster,
    actor_affinity,
    affinity,
    anti_affinity,
    label_does_not_exist,
    label_exists,
    label_in,
    label_not_in,
    node_affinity,
    spread,
    task_affinity,
)
from remora.errors import InvalidVirtualClusterError
from remora.kernel.cycle import Scheduler
from remora.kernel.state.workloads import Workload
from remora.sim import SimCluster
from remora.sim.sim_cluster import PENDING, PLACED, SimGroup, SimVirtualCluster, SimWorkload
from remora.testing.reference import decide_by_brute_force

ZONES = ("a", "b", "c")
RACKS = ("r1", "r2")
TYPES = ("cat", "dog", "fox")
TAINTS = ("gpu_node", "pressure")
NAMESPACES = ("default", "other")

amounts = st.sampled_from([0.5, 1, 2, 3])
small = st.integers(0, 7)


@st.composite
def nodes(draw: Any) -> dict[str, Any]:
    resources = {"CPU": draw(st.sampled_from([1, 2, 4, 8]))}
    if draw(st.integers(0, 3)) == 0:
        resources["GPU"] = draw(st.sampled_from([1, 2]))
    labels = {"zone": draw(st.sampled_from(ZONES))} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        labels["rack"] = draw(st.sampled_from(RACKS))
    taints = {draw(st.sampled_from(TAINTS)): draw(st.sampled_from(["x", "y"]))} if draw(st.integers(0, 3)) == 0 else {}
    return {"resources": resources, "labels": labels, "taints": taints}


conditions = st.sampled_from(["a", "!a", "in(a, b)", "!in(b, c)", "exists()", "!exists()"])
selectors = st.one_of(st.none(), st.fixed_dictionaries({"zone": conditions}))
tolerations = st.one_of(
    st.none(), st.sampled_from([{"gpu_node": Exists()}, {"gpu_node": In("x")}, {"gpu_node": Exists(), "pressure": Exists()}])
)


topologies = st.sampled_from([None, None, "zone", "rack"])


@st.composite
def expressions(draw: Any) -> Any:
    key = draw(st.sampled_from(["type", "size"]))
    values = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
    soft = draw(st.booleans())
    make = draw(st.integers(0, 3))
    within = draw(topologies)
    return [
        lambda: label_in(key, values, soft, topology=within),
        lambda: label_not_in(key, values, soft, topology=within),
        lambda: label_exists(key, soft, topology=within),
        lambda: label_does_not_exist(key, soft, topology=within),
    ][make]()


@st.composite
def spreads(draw: Any) -> Any:
    return spread(
        draw(st.sampled_from(["zone", "rack"])),
        draw(st.sampled_from([1, 1, 2])),
        draw(st.sampled_from([None, None, 2, 3])),
        draw(st.booleans()),
        draw(st.one_of(st.none(), st.fixed_dictionaries({"type": st.sampled_from([*TYPES, "in(cat, dog)", "!fox"])}))),
    )


@st.composite
def work(draw: Any) -> dict[str, Any]:
    """The options of one submission; ``handle`` asks for affinity to an earlier workload."""
    options: dict[str, Any] = {
        "kind": draw(st.sampled_from(["actor", "task"])),
        "namespace": draw(st.sampled_from(NAMESPACES)) if draw(st.integers(0, 4)) == 0 else "default",
        "resources": draw(
            st.one_of(st.none(), st.just({}), st.fixed_dictionaries({"CPU": amounts}), st.just({"CPU": 1, "GPU": 1}))
        ),
        "labels": draw(st.one_of(st.none(), st.fixed_dictionaries({"type": st.sampled_from(TYPES)}))),
        "label_selector": draw(selectors),
        "tolerations": draw(tolerations),
    }
    if draw(st.integers(0, 3)) == 0:
        options["fallback_strategy"] = [
            {"label_selector": selector or {}} for selector in draw(st.lists(selectors, max_size=2))
        ]
    strategy = draw(st.integers(0, 9))
    symmetric = draw(st.integers(0, 5)) == 0
    listed = draw(st.lists(expressions(), min_size=1, max_size=2))
    if strategy <= 3:
        any_of = not symmetric and draw(st.integers(0, 3)) == 0
        options["scheduling_strategy"] = actor_affinity(listed, any_of, symmetric=symmetric)
    elif strategy == 4:
        options["affinity"] = task_affinity(listed)
        options["scheduling_strategy"] = "SPREAD"
    elif strategy == 5:
        options["scheduling_strategy"] = node_affinity(
            [label_in("zone", ["a"], draw(st.booleans())), label_exists("zone", True)]
        )
    elif strategy == 6:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(f"n{draw(small)}", soft=draw(st.booleans()))
    elif strategy == 7:
        options["handle"] = (draw(small), draw(st.booleans()), draw(st.booleans()), draw(topologies))
    elif strategy == 8:
        options["scheduling_strategy"] = draw(spreads())
    elif strategy == 9:
        options["affinity"] = [draw(spreads()), actor_affinity(listed)]
    return options


@st.composite
def cluster_specs(draw: Any) -> VirtualCluster:
    least = draw(st.sampled_from([{}, {"CPU": 1}, {"CPU": 2}, {"CPU": 3}]))
    most = draw(st.sampled_from([None, {"CPU": 3}, {"CPU": 4}]))
    sets = []
    if draw(st.integers(0, 2)) == 0:
        policy = draw(st.sampled_from(["PACK", "SPREAD", "STRICT_SPREAD"]))
        one = {"resources": draw(st.sampled_from([{"CPU": 1}, {"GPU": 1}])), "labels": {"slot": "0"}}
        sets = [{"nodes": [one] * draw(st.integers(1, 2)), "scheduling_policy": policy}]
    return VirtualCluster(flexible_resource_min=least, flexible_resource_max=most, fixed_size_nodes=sets)


bundles = st.lists(st.sampled_from([{"CPU": 1}, {"CPU": 2}, {"CPU": 1, "GPU": 1}]), min_size=1, max_size=3)
strategies = st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])

plain_steps = st.one_of(
    st.tuples(st.just("submit"), work()),
    st.tuples(st.just("submit"), work()),
    st.tuples(st.just("submit"), work()),
    st.tuples(st.just("finish"), small),
    st.tuples(st.just("fail"), small),
    st.tuples(st.just("add_node"), nodes()),
    st.tuples(st.just("remove_node"), small),
    st.tuples(st.just("taint"), small, st.sampled_from(TAINTS)),
    st.tuples(st.just("untaint"), small),
    st.tuples(st.just("label"), small, st.sampled_from(["zone", "rack"]), st.sampled_from(ZONES)),
    st.tuples(st.just("unlabel"), small),
)
cluster_steps = st.one_of(
    st.tuples(st.just("create"), cluster_specs(), small, st.integers(0, 1)),
    st.tuples(st.just("destroy"), small),
    st.tuples(st.just("submit_inside"), work(), small),
    st.tuples(st.just("submit_inside"), work(), small),
    st.tuples(st.just("group"), bundles, strategies, small),
    st.tuples(st.just("finish_group"), small),
)


class CheckedScheduler(Scheduler):
    """Holds every decision on the physical cluster to the brute-force reference, at the moment it is made."""

    def _try(self, workload: Workload) -> bool:
        request = workload.request
        if request.cluster is not None:
            return super()._try(workload)
        want = decide_by_brute_force(self.cluster, request, workload.labels, workload.workload_id)
        placed = super()._try(workload)
        got = self.cluster.nodes.at(workload.node).node_id if placed else None
        assert got == want, f"the kernel says {got}, the reference {want}, for {request}"
        return placed


@dataclass
class Stream:
    """A cluster and what has happened to it; ``step`` does one thing, whatever it is asked that is possible."""

    seed: int = 0
    sim: SimCluster = field(init=False)
    work: list[SimWorkload] = field(default_factory=list)
    groups: list[SimGroup] = field(default_factory=list)
    clusters: list[SimVirtualCluster] = field(default_factory=list)
    joined: int = 0

    def __post_init__(self) -> None:
        self.sim = SimCluster(seed=self.seed)
        self.sim.scheduler = CheckedScheduler(self.seed)

    def add_node(self, spec: dict[str, Any]) -> None:
        self.sim.add_node(f"n{self.joined}", **spec)
        self.joined += 1

    def live(self) -> list[SimWorkload]:
        return [work for work in self.work if work.state in (PLACED, PENDING)]

    def node(self, index: int) -> str | None:
        ids = list(self.sim.scheduler.cluster.nodes.by_id)
        return ids[index % len(ids)] if ids else None

    def step(self, step: tuple[Any, ...]) -> None:
        getattr(self, f"_do_{step[0]}")(*step[1:])

    def _do_add_node(self, spec: dict[str, Any]) -> None:
        if len(self.sim.scheduler.cluster.nodes.by_id) < 8:
            self.add_node(spec)

    def _do_submit(self, options: dict[str, Any], inside: SimVirtualCluster | None = None) -> None:
        options = dict(options)
        handle = options.pop("handle", None)
        if handle is not None and self.work:
            index, soft, away, within = handle
            make = anti_affinity if away else affinity
            options["affinity"] = actor_affinity(make(self.work[index % len(self.work)], soft, topology=within))
        self.work.append(self.sim.submit(**options, virtual_cluster=inside))

    def _do_submit_inside(self, options: dict[str, Any], index: int) -> None:
        live = [vc for vc in self.clusters if vc.state != "DESTROYED"]
        self._do_submit(options, live[index % len(live)] if live else None)

    def _do_finish(self, index: int) -> None:
        live = self.live()
        if live:
            self.sim.finish(live[index % len(live)])

    def _do_fail(self, index: int) -> None:
        live = self.live()
        if live:
            self.sim.fail(live[index % len(live)])

    def _do_remove_node(self, index: int) -> None:
        node = self.node(index)
        if node is not None:
            self.sim.remove_node(node)

    def _do_taint(self, index: int, key: str) -> None:
        node = self.node(index)
        if node is not None:
            self.sim.taint(node, {key: "x"})

    def _do_untaint(self, index: int) -> None:
        node = self.node(index)
        if node is not None:
            self.sim.untaint(node, list(self.sim.scheduler.cluster.nodes.get(node).taints))

    def _do_label(self, index: int, key: str, value: str) -> None:
        node = self.node(index)
        if node is not None:
            self.sim.label(node, {key: value})

    def _do_unlabel(self, index: int) -> None:
        node = self.node(index)
        if node is not None:
            self.sim.unlabel(node, list(self.sim.scheduler.cluster.nodes.get(node).labels))

    def _do_create(self, spec: VirtualCluster, parent: int, priority: int) -> None:
        live = [vc for vc in self.clusters if vc.state != "DESTROYED"]
        above = live[parent % len(live)] if live and parent % 3 else None
        try:
            self.clusters.append(self.sim.create_virtual_cluster(spec, above, priority))
        except InvalidVirtualClusterError:
            return  # larger than its parent: refused, and validate() sees that nothing stayed behind

    def _do_destroy(self, index: int) -> None:
        if self.clusters:
            self.clusters[index % len(self.clusters)].destroy()

    def _do_group(self, bundles: list[dict[str, float]], strategy: str, inside: int) -> None:
        live = [vc for vc in self.clusters if vc.state != "DESTROYED"]
        vc = live[inside % len(live)] if live and inside % 2 else None
        self.groups.append(self.sim.placement_group(bundles, strategy, virtual_cluster=vc))

    def _do_finish_group(self, index: int) -> None:
        live = [group for group in self.groups if group.state != "FINISHED"]
        if live:
            self.sim.finish(live[index % len(live)])

    def dump(self) -> list[Any]:
        """Everything that can be seen from outside."""
        return [
            [(work.name, work.state, work.node, work.reason) for work in self.work],
            [(group.name, group.state, group.nodes, group.reason) for group in self.groups],
            [(vc.cluster_id, vc.state, vc.reason, [repr(node) for node in vc.nodes]) for vc in self.clusters],
        ]
