"""The state of one cluster: nodes, what is placed on them, virtual clusters, and the indexes over all of it.

Every change goes through a method here, which keeps the indexes right; ``validate`` recounts them.
"""

from __future__ import annotations

from collections.abc import Iterable

from remora.kernel import shares
from remora.kernel.label_index import LabelIndex
from remora.kernel.ledger import Ledger
from remora.kernel.load import Load
from remora.kernel.nodes import Node, Nodes
from remora.kernel.nodesets import NodeSet
from remora.kernel.tree import Tree, VCluster
from remora.kernel.workloads import Group, Host, Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.operators import LabelMatchOperator
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.strategies import SPREAD

ANY_VALUE = "*"
"""Not a label value, so it cannot collide with one: stands for "whatever the value" in the index of refusals."""


class Cluster:
    """Everything that a decision reads."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.nodes = Nodes()
        self.totals = Ledger()
        self.available = Ledger()
        self.load = Load(self.totals, self.available)
        self.presence = LabelIndex()
        # What placed workloads with symmetric=True refuse: the same index, asked with the newcomer's labels.
        self.refusals = LabelIndex()
        self.placed: dict[str, Workload] = {}
        self.groups: dict[str, Group] = {}
        self.tree = Tree()
        self.on_node: dict[int, dict[str, Workload]] = {}
        self.last_spread = -1
        # A share moved or a virtual node was made: something that waits elsewhere may fit now.
        self.stirred = False
        self.empty_twin: tuple[int, Cluster] | None = None  # kept by whatif
        self.eligible_cache: dict[NodeClass, tuple[int, NodeSet]] = {}

    # Nodes

    def add_node(self, node_id: str, total: Resources, labels: Labels = (), taints: Labels = ()) -> Node:
        node = self.nodes.add(node_id, total, labels, taints)
        self.totals.add_node(node.number, total)
        self.available.add_node(node.number, total)
        self.load.add_node(node.number)
        self.on_node[node.number] = {}
        return node

    def remove_node(self, node: Node) -> tuple[list[Workload], list[Group], list[VCluster]]:
        """The node is gone with all that was on it; what has to be placed or reserved again."""
        number = node.number
        workloads = list(self.on_node[number].values())
        for workload in workloads:
            self.release(workload)
        groups = [group for group in self.groups.values() if any(host and host.node == number for host in group.hosts)]
        for group in groups:
            for index, host in enumerate(group.hosts):
                if host and host.node == number:
                    shares.give(self, host, group.bundles[index].resources.pairs)
                    group.hosts[index] = None
        hurt = self._drop_vnodes(number)
        del self.on_node[number]
        self.load.remove_node(number)
        self.totals.remove_node(number)
        self.available.remove_node(number)
        self.nodes.remove(node)
        return workloads, groups, hurt

    def resize_node(self, node: Node, total: Resources) -> None:
        """New totals for a live node; what is in use stays in use, so available may go below zero until it is repaid."""
        for name in {*node.total, *total}:
            delta = total.get(name, 0) - node.total.get(name, 0)
            self.totals.add(node.number, name, delta)
            self.available.add(node.number, name, delta)
        node.total = total
        self.nodes.version += 1
        self.load.update(node.number)

    def observe_node(self, node: Node, total: Resources, available: Resources) -> None:
        """Take over what a live node reports: there, others hold resources that nobody placed here."""
        if total != node.total:
            self.resize_node(node, total)
        for name in {*total, *self.available.amounts(node.number)}:
            delta = available.get(name, 0) - self.available.get(node.number, name)
            if delta:
                self.available.add(node.number, name, delta)
        self.load.update(node.number)

    # What is placed

    def place(self, workload: Workload, host: Host) -> None:
        request = workload.request
        if host.cluster is None:
            self.available.take(host.node, request.resources)
            self.load.update(host.node)
        else:
            journal: shares.Journal = []
            taken = shares.take(self, host, request.resources.pairs, journal)
            assert taken, (workload, host)
            workload.host = host._replace(source=None)
        workload.node = host.node
        self.placed[workload.workload_id] = workload
        self.on_node[host.node][workload.workload_id] = workload
        if workload.labels:
            self.presence.add((request.kind, request.namespace), workload.labels, host.node)
        if request.affinities:
            for scope, labels in refused_by(request):
                self.refusals.add(scope, labels, host.node)
        if request.policy == SPREAD:
            self.last_spread = host.node

    def release(self, workload: Workload) -> None:
        request, number = workload.request, workload.node
        if workload.host is None:
            self.available.give(number, request.resources)
            self.load.update(number)
        else:
            shares.give(self, workload.host, request.resources.pairs)
        workload.host = None
        workload.node = -1
        del self.placed[workload.workload_id]
        del self.on_node[number][workload.workload_id]
        if workload.labels:
            self.presence.remove((request.kind, request.namespace), workload.labels, number)
        if request.affinities:
            for scope, labels in refused_by(request):
                self.refusals.remove(scope, labels, number)

    def rename(self, workload: Workload, workload_id: str) -> None:
        """It is known by another id from now on."""
        if workload.placed:
            del self.placed[workload.workload_id]
            del self.on_node[workload.node][workload.workload_id]
            self.placed[workload_id] = self.on_node[workload.node][workload_id] = workload
        workload.workload_id = workload_id

    def place_group(self, group: Group, option: int, hosts: list[Host]) -> None:
        journal: shares.Journal = []
        old = group.hosts if group.hosts and group.option == option else [None] * len(hosts)
        group.option = option
        for bundle, before, host in zip(group.bundles, old, hosts, strict=True):
            if before is None:
                taken = shares.take(self, host, bundle.resources.pairs, journal)
                assert taken, (group, host)
        group.hosts = [host._replace(source=None) for host in hosts]
        self.groups[group.group_id] = group

    def release_group(self, group: Group) -> None:
        for bundle, host in zip(group.bundles, group.hosts, strict=False):  # no hosts at all while it waits
            if host is not None:
                shares.give(self, host, bundle.resources.pairs)
        group.hosts = []
        self.groups.pop(group.group_id, None)

    def restore_group(self, group: Group, option: int, hosts: list[Host | None]) -> None:
        """Back to what ``release_group`` let go a moment ago."""
        group.option = option
        for bundle, host in zip(group.bundles, hosts, strict=True):
            if host is not None:
                taken = shares.take(self, host, bundle.resources.pairs, [])
                assert taken, (group, host)
        group.hosts = list(hosts)
        self.groups[group.group_id] = group

    def _drop_vnodes(self, number: int) -> list[VCluster]:
        """Virtual nodes on a lost node are gone without giving anything back: what they came from is gone too."""
        hurt = []
        for cluster in self.tree.clusters.values():
            if number in cluster.flex:
                flexible = cluster.remove_flexible(number)
                for name, units in flexible.total.items():
                    shares.bump(cluster.flex_total, name, -units)
                for name, units in flexible.used.items():
                    shares.bump(cluster.flex_used, name, -units)
            for index, vnode in enumerate(cluster.fixed):
                if vnode is not None and vnode.node == number:
                    cluster.set_fixed(index, None)
            if not cluster.whole:
                hurt.append(cluster)
        return hurt


def refused_by(request: Request) -> Iterable[tuple[tuple[str, str], Labels]]:
    """What a placed workload with symmetric=True keeps away: scope and labels of the newcomers that it refuses."""
    for affinity in request.affinities:
        if not affinity.symmetric:
            continue
        for term in affinity.hard:
            scope = (affinity.owner, "" if term.key == ACTOR_ID else request.namespace)
            if term.operator is LabelMatchOperator.NOT_IN:
                yield scope, tuple((term.key, value) for value in term.values)
            elif term.operator is LabelMatchOperator.DOES_NOT_EXIST:
                yield scope, ((term.key, ANY_VALUE),)
