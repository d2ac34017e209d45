"""Decisions, starts, reports and ends in any order: what is assumed is counted until a report shows it, and nothing twice."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remora.errors import InvalidVirtualClusterError
from remora.kernel.cycle import Scheduler
from remora.kernel.sharing.usage import observe_use
from remora.kernel.state import shares
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.validate import validate
from remora.kernel.state.workloads import Workload
from remora.model.requests import parse_request
from remora.model.resources import Resources
from remora.model.strategies import actor_affinity
from remora.model.virtual_clusters import FixedSizeNode, FixedSizeNodes, VirtualCluster

CPUS = 2
ANY = st.integers(0, 99)


class Reported(RuleBasedStateMachine):
    """``running`` is the truth: the node of everything that has started and not ended. The kernel hears of it by reports only.

    ``astray``: something started elsewhere than it was decided, so that more may be in use than there is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(trims=False)
        self.cluster = self.scheduler.cluster
        self.work: list[Workload] = []
        self.running: dict[Workload, str] = {}
        self.made = 0
        self.astray = False
        for _ in range(2):
            self.join()

    def join(self) -> None:
        self.made += 1
        self.scheduler.add_node(f"n{self.made}", Resources.parse({"CPU": CPUS}))

    @rule(size=st.sampled_from([0, 1, 2]), inside=ANY, lonely=st.booleans())
    def submit(self, size: int, inside: int, lonely: bool) -> None:
        clusters = [None, *self.cluster.tree.clusters]
        self.made += 1
        rule_ = actor_affinity([("type", "not_in", ["cat"])]) if lonely else None
        request = parse_request(
            "actor",
            resources={"CPU": size},
            scheduling_strategy=rule_,
            virtual_cluster=clusters[inside % len(clusters)],
        )
        self.work.append(self.scheduler.submit(f"w{self.made}", request, (("type", "cat"),) if lonely else ()))

    @rule(least=st.integers(0, 2), more=st.integers(0, 2), inside=ANY, fixed=st.booleans())
    def create(self, least: int, more: int, inside: int, fixed: bool) -> None:
        parents = [None, *self.cluster.tree.clusters.values()]
        if fixed:
            spec = VirtualCluster(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 1})] * max(least, 1))])
        else:
            spec = VirtualCluster(flexible_resource_min={"CPU": least}, flexible_resource_max={"CPU": least + more})
        with contextlib.suppress(InvalidVirtualClusterError):
            self.scheduler.create_cluster(spec, parents[inside % len(parents)])

    @precondition(lambda self: self.unstarted())
    @rule(which=ANY, elsewhere=st.integers(0, 99))
    def start(self, which: int, elsewhere: int) -> None:
        """Mostly where it was decided."""
        work = self.unstarted()[which % len(self.unstarted())]
        nodes = list(self.cluster.nodes.by_id)
        decided = self.cluster.nodes.at(work.node).node_id
        self.running[work] = nodes[elsewhere] if elsewhere < len(nodes) else decided
        self.astray |= self.running[work] != decided

    @rule()
    def report(self) -> None:
        for work, node_id in self.running.items():
            if work.placed and self.cluster.nodes.at(work.node).node_id == node_id:
                self.cluster.confirm(work)
            else:
                self.scheduler.move(work, node_id)
        for node in list(self.cluster.nodes.by_id.values()):
            free = CPUS * 10_000 - self.shared(None, node.number) - self.used(None, node.number)
            self.cluster.observe_node(node, node.total, Resources({"CPU": free}))
            for vcluster in self.cluster.tree.clusters.values():
                if vcluster.state == READY:
                    observe_use(vcluster, node.number, {"CPU": self.used(vcluster.cluster_id, node.number)})
        self.scheduler.settle()

    @precondition(lambda self: self.running)
    @rule(which=ANY)
    def die(self, which: int) -> None:
        """The kernel has yet to hear of it, and a report may come first."""
        del self.running[list(self.running)[which % len(self.running)]]

    @precondition(lambda self: self.work)
    @rule(which=ANY)
    def end(self, which: int) -> None:
        work = self.work.pop(which % len(self.work))
        self.running.pop(work, None)
        self.scheduler.finish(work)
        self.scheduler.finish(work)

    @precondition(lambda self: self.running)
    @rule(which=ANY)
    def restart(self, which: int) -> None:
        work = list(self.running)[which % len(self.running)]
        del self.running[work]
        self.scheduler.fail(work)

    @precondition(lambda self: self.work)
    @rule(which=ANY, inside=ANY)
    def rehome(self, which: int, inside: int) -> None:
        work = self.work[which % len(self.work)]
        clusters = [None, *self.cluster.tree.clusters]
        # Where it goes there may be no room for it, and one that runs unseen is decided anew.
        self.astray |= work in self.running
        before, stays = work.node, work.confirmed
        self.scheduler.rehome(work, replace(work.request, cluster=clusters[inside % len(clusters)]))
        assert not stays or (work.node, work.confirmed) == (before, True)

    @precondition(lambda self: self.cluster.tree.clusters)
    @rule(which=ANY)
    def destroy(self, which: int) -> None:
        """What is known to run goes on outside; the rest ends."""
        vcluster = list(self.cluster.tree.clusters.values())[which % len(self.cluster.tree.clusters)]
        inner = {vcluster.cluster_id}
        for each in self.cluster.tree.clusters.values():
            if each.parent is not None and each.parent.cluster_id in inner:
                inner.add(each.cluster_id)
        for work in [work for work in self.work if work.confirmed and work.request.cluster in inner]:
            self.scheduler.rehome(work, replace(work.request, cluster=None))
        for ended in self.scheduler.destroy_cluster(vcluster):
            assert isinstance(ended, Workload)
            self.work.remove(ended)
            self.running.pop(ended, None)

    @precondition(lambda self: self.cluster.tree.clusters)
    @rule(which=ANY)
    def trim(self, which: int) -> None:
        clusters = list(self.cluster.tree.clusters.values())
        shares.trim(self.cluster, clusters[which % len(clusters)])

    @rule(which=ANY)
    def lose(self, which: int) -> None:
        node_id = list(self.cluster.nodes.by_id)[which % len(self.cluster.nodes.by_id)]
        self.running = {work: node for work, node in self.running.items() if node != node_id}
        self.join()
        self.scheduler.remove_node(node_id)

    def unstarted(self) -> list[Workload]:
        return [work for work in self.work if work.placed and not work.confirmed and work not in self.running]

    def used(self, cluster_id: str | None, number: int) -> int:
        """What runs on a node, and what is assumed to."""
        node_id = self.cluster.nodes.at(number).node_id
        assumed = [work for work in self.work if work.node == number and not work.confirmed and work not in self.running]
        there = [work for work, node in self.running.items() if node == node_id]
        return sum(work.request.resources.get("CPU", 0) for work in [*there, *assumed] if work.request.cluster == cluster_id)

    def shared(self, parent: VCluster | None, number: int) -> int:
        """What the virtual clusters right inside one have on a node."""
        clusters = [each for each in self.cluster.tree.clusters.values() if each.parent is parent]
        return sum(vnode.total.get("CPU", 0) for each in clusters for vnode in each.vnodes() if vnode.node == number)

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        for node in self.cluster.nodes.by_id.values() if not self.astray else ():
            assert self.shared(None, node.number) + self.used(None, node.number) <= CPUS * 10_000
            for vcluster in self.cluster.tree.clusters.values():
                has = sum(vnode.total.get("CPU", 0) for vnode in vcluster.vnodes() if vnode.node == node.number)
                assert self.shared(vcluster, node.number) + self.used(vcluster.cluster_id, node.number) <= has

    @invariant()
    def recounted(self) -> None:
        validate(self.cluster)

    @invariant()
    def placed_or_waiting(self) -> None:
        waiting = {id(work) for line in self.scheduler.waiting.values() for work in line}
        assert {id(work) for work in self.work} == waiting | {id(work) for work in self.cluster.placed.values()}


TestReported = Reported.TestCase
TestReported.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
