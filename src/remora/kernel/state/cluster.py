"""The state of one cluster: nodes, what is placed on them, virtual clusters, and the indexes over all of it.

Every change goes through a method here, which keeps the indexes right; ``validate`` recounts them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from remora.errors import InvariantError
from remora.kernel.state import shares
from remora.kernel.state.cluster_tree import Tree, VCluster
from remora.kernel.state.domains import DomainIndex
from remora.kernel.state.label_index import LabelIndex
from remora.kernel.state.ledger import Ledger
from remora.kernel.state.load import Load
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import Node, Nodes
from remora.kernel.state.tallies import DomainTally, Tallies, TallyKey
from remora.kernel.state.workloads import Group, Host, Workload
from remora.model.labels import ACTOR_ID, Labels
from remora.model.operators import LabelMatchOperator
from remora.model.requests import NodeClass, Request
from remora.model.resources import Resources
from remora.model.spreading import Spread
from remora.model.strategies import SPREAD

if TYPE_CHECKING:
    from remora.kernel.state.type_table import TypeTable

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
        self.refused_within: dict[str, int] = {}  # how many placed refuse something in their domain, by topology
        # The same by domain, as far as somebody asks.
        self.presence_by_domain = DomainIndex(self.presence, self.nodes)
        self.refusals_by_domain = DomainIndex(self.refusals, self.nodes)
        self.tallies = Tallies(self.nodes)
        self.placed: dict[str, Workload] = {}
        self.in_cluster: dict[str, dict[str, Workload]] = {}  # what is placed, by the id of its virtual cluster
        self.groups: dict[str, Group] = {}
        self.tree = Tree()
        self.on_node: dict[int, dict[str, Workload]] = {}
        self.last_spread = -1
        # A share moved or a virtual node was made: something that waits elsewhere may fit now.
        self.shares_moved = False
        self.kept_empty_copy: tuple[int, Cluster] | None = None  # kept by what_if
        self.eligible_cache: dict[NodeClass, tuple[int, NodeSet]] = {}
        self.types: TypeTable | None = None  # what may be started beside the nodes that are there; None: nothing

    # Nodes

    def add_node(self, node_id: str, total: Resources, labels: Labels = (), taints: Labels = (), node_type: str = "") -> Node:
        node = self.nodes.add(node_id, total, labels, taints, node_type)
        self.totals.add_node(node.number, total)
        self.available.add_node(node.number, total)
        self.load.add_node(node.number)
        self.on_node[node.number] = {}
        return node

    def remove_node(self, node: Node) -> tuple[list[Workload], list[Group], list[VCluster]]:
        """Remove a node with all that was on it; return what has to be placed or reserved again."""
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
        degraded = self._drop_vnodes(number)
        del self.on_node[number]
        self.load.remove_node(number)
        self.totals.remove_node(number)
        self.available.remove_node(number)
        self.nodes.remove(node)
        return workloads, groups, degraded

    def relabel_node(self, node: Node, set_: Labels, drop: Iterable[str]) -> None:
        """Give a live node other labels. What is placed on it stays, and is in other domains from now on."""
        drop = tuple(drop)
        here = [*self.on_node[node.number].values()] if self._has_domains() else []
        if not any(node.labels.get(key) != value for key, value in (*set_, *((key, None) for key in drop))):
            here = []
        for workload in here:
            self._unindex_labels(workload, node.number)
        self.nodes.relabel(node, set_, drop)
        for workload in here:
            self._index_labels(workload, node.number)

    def resize_node(self, node: Node, total: Resources) -> None:
        """Give a live node new totals. What is in use stays in use, so available may go below zero until it is repaid."""
        for name in {*node.total, *total}:
            delta = total.get(name, 0) - node.total.get(name, 0)
            self.totals.add(node.number, name, delta)
            self.available.add(node.number, name, delta)
        node.total = total
        node.reported = True
        self.nodes.version += 1
        self.load.update(node.number)

    def observe_node(self, node: Node, total: Resources, available: Resources) -> None:
        """Take over what a live node reports, less what is assumed there: others hold resources that nobody placed here."""
        node.reported = True
        if total != node.total:
            self.resize_node(node, total)
        if self.available.set(node.number, available):
            self.load.update(node.number)

    # What is placed

    def place(self, workload: Workload, host: Host) -> None:
        """Place a workload on a host of its own cluster, and count what it takes."""
        request = workload.request
        if (host.cluster.cluster_id if host.cluster is not None else None) != request.cluster:
            raise InvariantError(f"{workload} is in {request.cluster or 'no virtual cluster'}, and {host} is not")
        if host.cluster is None:
            self.available.take(host.node, request.resources)
            self.load.update(host.node)
        else:
            journal: shares.Journal = []
            if not shares.take(self, host, request.resources.pairs, journal):
                shares.undo(journal)
                raise InvariantError(f"{host} has no room for {workload}")
        self._index(workload, host)
        if request.policy == SPREAD:
            self.last_spread = host.node

    def put_back(self, workload: Workload, host: Host) -> None:
        """Place a workload again where it was decided to: it stays there, whatever others have taken since."""
        shares.force(self, host, workload.request.resources.pairs)
        self.load.update(host.node)
        self._index(workload, host)

    def restore(self, workload: Workload, number: int) -> None:
        """Place a workload where somebody before us decided that it starts: it takes what it needs, whatever is left there. A
        share that was never remembered is made again; where that cannot be, nothing is taken."""
        host, needs = self._host_on(workload, number), workload.request.resources.pairs
        if host.cluster is None or all(shares.vnode_of(host, name) is not None for name, _ in needs):
            self.put_back(workload, host)
            return
        journal: shares.Journal = []
        if shares.take(self, host, needs, journal):
            self._index(workload, host)
        else:
            shares.undo(journal)
            self.move(workload, number)

    def release(self, workload: Workload) -> None:
        """Forget where a workload is, and give back what it took; what a confirmed one took comes back with a report."""
        if not workload.confirmed:
            self._give_back(workload)
        self._unindex(workload)
        workload.confirmed = False

    def confirm(self, workload: Workload) -> None:
        """Take over that a report of its node shows a workload: what it takes is the reports' business from now on."""
        assert workload.placed, workload
        workload.confirmed = True
        self.nodes.at(workload.node).reported = True
        if workload.host is not None:
            for name, _ in workload.request.resources.pairs:
                vnode = shares.vnode_of(workload.host, name)
                if vnode is not None:
                    vnode.reported = True

    def move(self, workload: Workload, number: int) -> None:
        """Take over that a workload was observed to run on this node, wherever it was decided to, if it was: it is confirmed
        there.

        Nothing is taken for it: what it takes is in the reports of that node.
        """
        if workload.node != number:
            if workload.placed:
                self.release(workload)
            self._index(workload, self._host_on(workload, number))
        self.confirm(workload)

    def rehome(self, workload: Workload, request: Request) -> None:
        """Let a confirmed workload go on where it is, under another request.

        Until the next report what it takes counts in both places: it was reported as use of where it was, and may have ended
        since; and what it was in may be gone before that report.
        """
        assert workload.confirmed, workload
        number = workload.node
        self._unindex(workload)
        workload.request = request.of(workload.labels)
        host = self._host_on(workload, number)
        self._index(workload, host)
        self.confirm(workload)
        shares.force(self, host, request.resources.pairs)

    def _host_on(self, workload: Workload, number: int) -> Host:
        """Return where on a node it is counted: a fixed-size node of its cluster with room for it, or else the flexible one."""
        if workload.request.cluster is None:
            return Host(None, number, None)
        vcluster, needs = self.tree.get(workload.request.cluster), workload.request.resources.pairs
        for vnode in vcluster.fixed:
            if vnode is not None and vnode.node == number:
                named = [(name, units) for name, units in needs if name in vnode.total]
                if len(named) == len(needs) and all(vnode.idle(name) >= units for name, units in named):
                    return Host(vcluster, number, vnode)
        return Host(vcluster, number, None)

    def _give_back(self, workload: Workload) -> None:
        if workload.host is None:
            self.available.give(workload.node, workload.request.resources)
            self.load.update(workload.node)
        else:
            shares.give(self, workload.host, workload.request.resources.pairs)

    def _index(self, workload: Workload, host: Host) -> None:
        request, number = workload.request, host.node
        workload.host = host._replace(source=None) if host.cluster is not None else None
        workload.node = number
        self.placed[workload.workload_id] = workload
        self.on_node[number][workload.workload_id] = workload
        if request.cluster is not None:
            self.in_cluster.setdefault(request.cluster, {})[workload.workload_id] = workload
        self._index_labels(workload, number)

    def _index_labels(self, workload: Workload, number: int) -> None:
        request = workload.request
        if workload.labels:
            scope = (request.kind, request.namespace)
            self.presence.add(scope, workload.labels, number)
            self.presence_by_domain.add(scope, workload.labels, number)
        if request.affinities:
            for scope_, labels in refused_by(request):
                self.refusals.add(scope_, labels, number)
                if scope_[2]:
                    self.refused_within[scope_[2]] = self.refused_within.get(scope_[2], 0) + 1
                    self.refusals_by_domain.add(scope_, labels, number)
        if self.tallies:
            self.tallies.add(workload, number)

    def _unindex(self, workload: Workload) -> None:
        request, number = workload.request, workload.node
        workload.host = None
        workload.node = -1
        del self.placed[workload.workload_id]
        del self.on_node[number][workload.workload_id]
        if request.cluster is not None:
            inside = self.in_cluster[request.cluster]
            del inside[workload.workload_id]
            if not inside:
                del self.in_cluster[request.cluster]
        self._unindex_labels(workload, number)

    def _unindex_labels(self, workload: Workload, number: int) -> None:
        request = workload.request
        if workload.labels:
            scope = (request.kind, request.namespace)
            self.presence.remove(scope, workload.labels, number)
            self.presence_by_domain.remove(scope, workload.labels, number)
        if request.affinities:
            for scope_, labels in refused_by(request):
                self.refusals.remove(scope_, labels, number)
                if scope_[2]:
                    self.refused_within[scope_[2]] -= 1
                    if not self.refused_within[scope_[2]]:
                        del self.refused_within[scope_[2]]
                    self.refusals_by_domain.remove(scope_, labels, number)
        if self.tallies:
            self.tallies.add(workload, number, -1)

    def _has_domains(self) -> bool:
        return bool(self.tallies or self.presence_by_domain or self.refusals_by_domain)

    def tally(self, spread: Spread, request: Request) -> DomainTally:
        """Return how many of what a request is spread among lie in each domain: of its virtual cluster, where it has one."""
        assert spread.counted is not None, spread
        key = TallyKey(spread.over, request.namespace, request.cluster, spread.counted)
        return self.tallies.get(key, self.placed.values())

    def rename(self, workload: Workload, workload_id: str) -> None:
        """Know a workload by another id from now on."""
        if workload.placed:
            indexes = [self.placed, self.on_node[workload.node]]
            if workload.request.cluster is not None:
                indexes.append(self.in_cluster[workload.request.cluster])
            for index in indexes:
                del index[workload.workload_id]
                index[workload_id] = workload
        workload.workload_id = workload_id

    def place_group(self, group: Group, option: int, hosts: list[Host]) -> None:
        journal: shares.Journal = []
        old = group.hosts if group.hosts and group.option == option else [None] * len(hosts)
        group.option = option
        for bundle, before, host in zip(group.bundles, old, hosts, strict=True):
            if before is None and not shares.take(self, host, bundle.resources.pairs, journal):
                shares.undo(journal)
                raise InvariantError(f"{host} has no room for a bundle of {group}")
        group.hosts = [host._replace(source=None) for host in hosts]
        self.groups[group.group_id] = group

    def release_group(self, group: Group) -> None:
        for bundle, host in zip(group.bundles, group.hosts, strict=False):  # no hosts at all while it waits
            if host is not None:
                shares.give(self, host, bundle.resources.pairs)
        group.hosts = []
        self.groups.pop(group.group_id, None)

    def restore_group(self, group: Group, option: int, hosts: list[Host | None]) -> None:
        """Put back what ``release_group`` let go a moment ago."""
        group.option = option
        for bundle, host in zip(group.bundles, hosts, strict=True):
            if host is not None:
                taken = shares.take(self, host, bundle.resources.pairs, [])
                assert taken, (group, host)
        group.hosts = list(hosts)
        self.groups[group.group_id] = group

    def _drop_vnodes(self, number: int) -> list[VCluster]:
        """Drop the virtual nodes on a lost node, which give nothing back: what they came from is gone too. Return the clusters
        that lack something now."""
        degraded = []
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
                degraded.append(cluster)
        return degraded


def refused_by(request: Request) -> Iterable[tuple[tuple[str, str, str], Labels]]:
    """Yield what a placed workload with symmetric=True keeps away: scope and labels of the newcomers that it refuses. The scope
    ends with the label of the domains in which it refuses them; with nothing where that is its node."""
    for affinity in request.affinities:
        if not affinity.symmetric:
            continue
        for term in affinity.hard:
            scope = (affinity.owner, "" if term.key == ACTOR_ID else request.namespace, term.topology)
            if term.operator is LabelMatchOperator.NOT_IN:
                yield scope, tuple((term.key, value) for value in term.values)
            elif term.operator is LabelMatchOperator.DOES_NOT_EXIST:
                yield scope, ((term.key, ANY_VALUE),)
