"""Machines for wholes: virtual clusters' minima in the order of their queue, and placement groups. All of one, or none."""

from __future__ import annotations

from collections.abc import Callable

from remora.kernel.placing.enlarging import Part, parts_of_bundles, parts_of_cluster
from remora.kernel.placing.group_fit import attempt, could_ever
from remora.kernel.placing.reserving import could_reserve, reserve
from remora.kernel.placing.what_if import could_ever_reserve
from remora.kernel.provisioning.ceilings import Ceilings
from remora.kernel.provisioning.demands import Waiting
from remora.kernel.provisioning.drafts import Draft
from remora.kernel.provisioning.plans import CLUSTER, GROUP, Answer, Party
from remora.kernel.provisioning.why_none import NO_NODE_HELPS, why_not_whole
from remora.kernel.state.cluster_tree import QUEUED, READY, VCluster
from remora.kernel.state.node_sets import NodeSet, collect, members, without
from remora.kernel.state.workloads import Group, Host
from remora.model.groups import GroupRequest
from remora.model.resources import EMPTY, Resources, show_amounts

_HOW = {"STRICT_SPREAD": " on different nodes", "STRICT_PACK": " on one node"}

Reason = tuple[str, tuple[str, ...]]
"""Why it gets nothing, and what would change that."""


class WholePlanner:
    """``served`` are the parts of every whole in no virtual cluster that finds room by the plan."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.served: list[list[Part]] = []
        self._hopeless: dict[GroupRequest, Reason] = {}

    # Virtual clusters

    def plan_clusters(self, waiting: Waiting) -> None:
        """Plan for those that lost something, then for the queue, as it moves: nobody overtakes one that needs the same
        resources and could still get them, and children come after their parents."""
        if not waiting.degraded and not waiting.clusters:
            return
        tree = self.draft.cluster.tree
        pending = [tree.get(each.cluster_id) for each in (*waiting.degraded, *waiting.clusters)]
        passed_over: list[VCluster] = []
        orphans: list[VCluster] = []
        while pending:
            vcluster = pending.pop(0)
            if vcluster.parent is not None and vcluster.parent.state != READY:
                orphans.append(vcluster)
                continue
            why = self._plan_cluster(vcluster, passed_over)
            if why is not None:
                passed_over.append(vcluster)
                self._refuse(_party(vcluster), why)
                continue
            pending = [*(each for each in orphans if each.parent is vcluster), *pending]
            orphans = [each for each in orphans if each.parent is not vcluster]
        for vcluster in orphans:
            assert vcluster.parent is not None
            self._refuse(_party(vcluster), (f"its parent {vcluster.parent.cluster_id} waits itself", ()))

    def _plan_cluster(self, vcluster: VCluster, passed_over: list[VCluster]) -> Reason | None:
        """Reserve the minimum of a virtual cluster on the copy, with machines added as needed; return why not, or None."""
        cluster = self.draft.cluster
        if vcluster.state == QUEUED:
            for earlier in passed_over:
                shared = earlier.needs() & vcluster.needs()
                if earlier.parent is vcluster.parent and shared and could_ever_reserve(cluster, earlier):
                    return f"{earlier.cluster_id} is before it in the queue and needs {_listed(shared)} too", ()
        parts = parts_of_cluster(vcluster)
        outside = vcluster.parent is None
        levels = next((each.topology for each in vcluster.spec.fixed_size_nodes if each.topology), ())
        added = self.draft.enlarger.enlarge_within(
            parts, lambda: could_reserve(cluster, vcluster), outside=outside, levels=levels
        )
        if added is None:
            return self._why_not_cluster(vcluster, parts)
        before = vcluster.nodes()
        reserved = reserve(cluster, vcluster)
        assert reserved, vcluster
        self._serve(_party(vcluster), without(vcluster.nodes(), before) or vcluster.nodes(), parts if outside else None)
        return None

    def _why_not_cluster(self, vcluster: VCluster, parts: list[Part]) -> Reason:
        missing = sum((Resources({name: units * part.count for name, units in part.need.items()}) for part in parts), EMPTY)
        what = f"its minimum of {show_amounts(missing)}{' on different nodes' if _is_spread(vcluster) else ''}"
        if vcluster.parent is None:
            return why_not_whole(self.draft.cluster, self.draft.openings, parts, what, self.draft.spare)
        _, limit = Ceilings().allow(vcluster.parent, missing, 1)
        if limit:
            return f"{limit}, and {what} would be beyond it: {NO_NODE_HELPS}", ()
        return f"{what} finds no room in {vcluster.parent.cluster_id}, whatever nodes may be added: none is started", ()

    # Placement groups

    def plan_group(self, group: Group) -> None:
        """Place a group on the copy, with machines added as needed: with its first option that could ever fit."""
        party = Party(GROUP, ("group", group.group_id), group.group_id)
        request, cluster = group.request, self.draft.cluster
        space = cluster.tree.get(request.cluster) if request.cluster is not None else None
        if space is not None and space.state != READY:
            self._refuse(party, (f"its virtual cluster {space.cluster_id} is queued", ()))
            return
        copy = Group(group.group_id, request, group.order)
        copy.option, copy.hosts = group.option, [self._host_here(host) for host in group.hosts]
        why = self._hopeless.get(request) if not group.hosts else None
        if why is None:
            why = self._plan_options(party, copy, space)
            if why is not None and not group.hosts:
                self._hopeless[request] = why  # an equal one fails alike: nothing is given back
        if why is not None:
            self._refuse(party, why)

    def _plan_options(self, party: Party, group: Group, space: VCluster | None) -> Reason | None:
        request, cluster = group.request, self.draft.cluster
        why: Reason | None = None
        for option, bundles in enumerate(request.options):
            stays = bool(group.hosts) and group.option == option
            taken: list[Host | None] = list(group.hosts) if stays else [None] * len(bundles)
            missing = [bundle for bundle, host in zip(bundles, taken, strict=True) if host is None]
            parts = parts_of_bundles(missing, request.strategy)
            fits = self._fits(group, space, option, taken)
            levels = request.levels(option)
            added = self.draft.enlarger.enlarge_within(parts, fits, outside=space is None, levels=levels)
            if added is not None:
                hosts = attempt(cluster, space, group, option, taken).place()
                assert hosts is not None, group
                cluster.place_group(group, option, hosts)
                self._serve(party, collect(host.node for host in hosts), parts if space is None else None)
                return None
            why = why or self._why_not_group(request, parts, space)
            if could_ever(cluster, group, option):
                return self._why_not_group(request, parts, space)
        return why

    def _fits(self, group: Group, space: VCluster | None, option: int, taken: list[Host | None]) -> Callable[[], bool]:
        return lambda: attempt(self.draft.cluster, space, group, option, taken).place() is not None

    def _why_not_group(self, request: GroupRequest, parts: list[Part], space: VCluster | None) -> Reason:
        total = sum((Resources({name: units * part.count for name, units in part.need.items()}) for part in parts), EMPTY)
        what = f"the whole group ({show_amounts(total)}){_HOW.get(request.strategy, '')}"
        if space is None:
            return why_not_whole(self.draft.cluster, self.draft.openings, parts, what, self.draft.spare)
        _, limit = Ceilings().allow(space, total, 1)
        if limit:
            return f"{limit}, and {what} would be beyond it: {NO_NODE_HELPS}", ()
        return f"{what} finds no room in {space.cluster_id}, whatever nodes may be added: none is started", ()

    def _host_here(self, host: Host | None) -> Host | None:
        """Return a host of the cluster as one of its copy."""
        if host is None or host.cluster is None:
            return host
        inside = self.draft.cluster.tree.get(host.cluster.cluster_id)
        slot = next((slot for slot, vnode in enumerate(host.cluster.fixed) if vnode is host.fixed), None)
        return Host(inside, host.node, inside.fixed[slot] if host.fixed is not None and slot is not None else None)

    # Both

    def _serve(self, party: Party, hosts: NodeSet, parts: list[Part] | None) -> None:
        draft = self.draft
        starts, awaits = draft.by_type(hosts & draft.new), draft.by_type(hosts & draft.late)
        for number in members(hosts & (draft.new | draft.late)):
            draft.add_tenant(number, party, 1)
        if starts or awaits:
            draft.hold(without(hosts, draft.new | draft.late), party)
        draft.answer(Answer(party, 1, 1, starts, awaits))
        if parts is not None:
            self.served.append(parts)

    def _refuse(self, party: Party, why: Reason) -> None:
        self.draft.answer(Answer(party, 1, 0, reason=why[0], suggestions=why[1]))


def _party(vcluster: VCluster) -> Party:
    return Party(CLUSTER, ("cluster", vcluster.cluster_id), vcluster.cluster_id)


def _is_spread(vcluster: VCluster) -> bool:
    return any(group.scheduling_policy.value == "STRICT_SPREAD" for group in vcluster.spec.fixed_size_nodes)


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))
