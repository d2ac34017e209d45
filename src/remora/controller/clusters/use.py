"""What virtual clusters have, use and may use of each node: by reports, by what is assumed, and by what is lent."""

from __future__ import annotations

from collections.abc import Mapping

from remora.controller.assumed import Assumed
from remora.controller.clusters.lending import Lending
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.wanted_shares import WantedShares
from remora.controller.tokens.book import Book, Units
from remora.kernel.sharing.reclaim import Place
from remora.kernel.sharing.usage import observe_use, own_total
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.shares import bump
from remora.model.resources import UNIT, Resources
from remora.port.contract import NodeView
from remora.wire.fences import ROOT
from remora.wire.owners import share_in

Reclaimed = Mapping[tuple[str | None, int], Mapping[str, int]]


class Use:
    """``reclaimed`` is what has to come back for somebody else's minimum, by cluster and node number."""

    def __init__(
        self, cluster: Cluster, registry: Registry, wanted: WantedShares, lending: Lending, assumed: Assumed, book: Book
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._registry = registry
        self._lending = lending
        self._assumed = assumed
        self._book = book
        self._reported: dict[str, dict[str, Units]] = {}  # by node and account: what its work holds, in the last report
        self._nodes_of: dict[str, set[str]] = {}  # by account: the nodes where its work holds anything
        self._outside: dict[int, Units] = {}
        self._crowded: set[str] = set()

    # Reports

    def see(self, view: NodeView) -> None:
        """Take in how much of every share is in use on a node."""
        found: dict[str, Units] = {}
        for name, total in view.total.items():
            share = share_in(name)
            if share is None or share.owner.is_part:
                continue
            units = round((total - view.available.get(name, 0.0) - self._book.held(view.node_id, name)) * UNIT)
            if units > 0:
                bump(found.setdefault(share.owner.account, {}), share.resource, units)
        before = self._reported.get(view.node_id, {})
        for account in before.keys() - found.keys():
            self._nodes_of[account].discard(view.node_id)
            if not self._nodes_of[account]:
                del self._nodes_of[account]
        for account in found:
            self._nodes_of.setdefault(account, set()).add(view.node_id)
        if found:
            self._reported[view.node_id] = found
        else:
            self._reported.pop(view.node_id, None)

    def forget(self, node_id: str, number: int) -> None:
        """The node is gone."""
        for account in self._reported.pop(node_id, {}):
            self._nodes_of[account].discard(node_id)
            if not self._nodes_of[account]:
                del self._nodes_of[account]
        self._outside.pop(number, None)
        self._crowded.discard(node_id)

    def mark(self, account: str, number: int) -> None:
        """Tell the kernel what a cluster's work uses of a node, with what is assumed there."""
        record = self._registry.records.get(account)
        if record is not None:
            node_id = self._cluster.nodes.at(number).node_id
            used = self.running(account, node_id)
            for name, units in self._assumed.inside(account, node_id).items():
                bump(used, name, units)
            observe_use(record.vcluster, number, used)

    def count_outside(self, view: NodeView, total: Resources, available: Resources) -> Resources:
        """Count what work in no virtual cluster uses of a node. Return what is free for such work, without what is assumed."""
        taken, used = self.taken(view.node_id)
        number = self._cluster.nodes.by_id[view.node_id].number
        outside = {name: max(total[name] - available.get(name, 0) - used.get(name, 0), 0) for name in total}
        self._outside[number] = {name: units for name, units in outside.items() if units}
        over = bool(taken) and any(units > total[name] - taken.get(name, 0) for name, units in outside.items())
        (self._crowded.add if over else self._crowded.discard)(view.node_id)
        assumed = self._assumed.outside(view.node_id)
        return Resources({name: total[name] - taken.get(name, 0) - outside[name] - assumed.get(name, 0) for name in total})

    # What is known

    def held(self, account: str, node_id: str) -> Units:
        """Return what a cluster's work holds of a node by the last report, also what waits."""
        return dict(self._reported.get(node_id, {}).get(account, {}))

    def running(self, account: str, node_id: str) -> Units:
        """Return what a cluster's work uses of a node by the last report, without what waits in ``ray.get``."""
        held = self._reported.get(node_id, {}).get(account)
        if not held:
            return {}
        idle = self._lending.idle(account, node_id)
        return {name: max(units - idle.get(name, 0), 0) for name, units in held.items()}

    def nodes_of(self, account: str) -> set[str]:
        """Return the nodes on which a cluster's work holds anything by the last reports."""
        return self._nodes_of.get(account, set())

    def outside(self, number: int) -> Mapping[str, int]:
        """Return what work in no virtual cluster uses of a node."""
        return self._outside.get(number, {})

    def crowded(self) -> set[str]:
        """Return the nodes where work in no virtual cluster uses more than these leave to it."""
        return self._crowded

    def beyond_shares(self) -> dict[Place, Units]:
        """Return what is used of nodes and is nobody's share, by whose work it is: that of no virtual cluster, and that of
        clusters which had more a moment ago, and use it again."""
        found: dict[Place, Units] = {(None, number): used for number, used in self._outside.items() if used}
        for node_id, accounts in self._reported.items():
            number = self._cluster.nodes.by_id[node_id].number
            records = [record for each in accounts if (record := self._registry.records.get(each)) is not None]
            for top in dict.fromkeys(record.vcluster.top for record in records):
                share, running = self._subtree(top, number, node_id)
                left = {name: units - share.get(name, 0) for name, units in running.items() if units > share.get(name, 0)}
                for record in records if left else ():
                    if record.vcluster.top is top and record.group is None:
                        own, place = self.share(record.cluster_id, node_id), (record.cluster_id, number)
                        for name, units in self.running(record.cluster_id, node_id).items():
                            part = min(units - own.get(name, 0), left.get(name, 0))
                            if part > 0:
                                left[name] -= part
                                found.setdefault(place, {})[name] = part
        return found

    def taken(self, node_id: str) -> tuple[Resources, Resources]:
        """Return what the clusters have of a node, used or not; and what of it their work uses."""
        number = self._cluster.nodes.by_id[node_id].number
        tops = {self._registry.records[each].vcluster.top for each in self.clusters_on(node_id)}
        taken: Units = {}
        used: Units = {}
        for top in tops:
            share, running = self._subtree(top, number, node_id)
            for name in {*share, *running}:
                bump(taken, name, max(share.get(name, 0), running.get(name, 0)))
            for name, units in running.items():
                bump(used, name, units)
        return Resources(taken), Resources(used)

    def clusters_on(self, node_id: str) -> set[str]:
        """Return the clusters and placement groups that have or use anything of a node."""
        found = {*self._wanted.clusters_on(node_id), *self._reported.get(node_id, ())}
        return found & self._registry.records.keys()

    def share(self, cluster_id: str, node_id: str) -> Units:
        """Return what a cluster's own work may use of a node."""
        number = self._cluster.nodes.by_id[node_id].number
        own: Units = {}
        for vnode in self._registry.records[cluster_id].vcluster.vnodes():
            if vnode.node == number:
                for name in vnode.total:
                    bump(own, name, own_total(vnode, name))
        return own

    def allowed(self, cluster_id: str, node_id: str, reclaimed: Reclaimed) -> Units:
        """Return what a cluster's own work may use of a node, once what is reclaimed is gone."""
        number = self._cluster.nodes.by_id[node_id].number
        less = reclaimed.get((cluster_id, number), {})
        return {name: units - less.get(name, 0) for name, units in self.share(cluster_id, node_id).items()}

    def outside_use(self, node_id: str, reclaimed: Reclaimed) -> tuple[Mapping[str, int], Units]:
        """Return what work in no virtual cluster uses of a node, and what it may."""
        node = self._cluster.nodes.by_id[node_id]
        taken = self.taken(node_id)[0]
        less = reclaimed.get((None, node.number), {})
        if not taken and not less:
            return {}, dict(node.total)
        allowed = {name: units - taken.get(name, 0) - less.get(name, 0) for name, units in node.total.items()}
        # Ray gives the CPU of a worker back that waits for admission, but nothing else of what it holds.
        idle = self._lending.idle(ROOT, node_id)
        used = self.outside(node.number)
        return {name: units - (idle.get(name, 0) if name != "CPU" else 0) for name, units in used.items()}, allowed

    def cap(self, cluster_id: str, name: str) -> int | None:
        """Return the most that a cluster and all below it may have of a resource, over all nodes; None without a limit."""
        vcluster = self._registry.records[cluster_id].vcluster
        limit = vcluster.spec.limit(name)
        if limit is None:
            return None
        fixed = sum(vnode.total.get(name, 0) for vnode in vcluster.fixed if vnode is not None)
        # A minimum was reserved, and a cluster that closes keeps what it uses.
        return fixed + max(limit, vcluster.flex_total.get(name, 0))

    def _subtree(self, vcluster: VCluster, number: int, node_id: str) -> tuple[Units, Units]:
        """Return the share of a cluster on a node, and what it and all below it use there."""
        share: Units = {}
        for vnode in vcluster.vnodes():
            if vnode.node == number:
                for name, units in vnode.total.items():
                    bump(share, name, units)
        running = self.running(vcluster.cluster_id, node_id)
        for child in vcluster.children.values():
            for name, units in self._subtree(child, number, node_id)[1].items():
                bump(running, name, units)
        return share, running
