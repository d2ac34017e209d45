"""What placement groups have of the virtual clusters that they lie in.

Ray's placement groups have no guard: one that waits in GCS reserves whatever comes back first, and nobody could stop it. So a
group in a virtual cluster is a cluster inside of it, with a token of its own for each bundle on the node that was chosen for
it: nothing that others give back lets it in. It is created when its tokens stand there, and is *under way* until its creator
says that GCS has reserved it, or that it will not be. Meanwhile nobody goes on beyond a maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from remora.controller.clusters.admission import Admission
from remora.controller.clusters.records import GroupShare, Record
from remora.controller.clusters.registry import Registry
from remora.controller.clusters.use import Use
from remora.controller.context import Context
from remora.controller.effects import Find, RemoveGroup
from remora.controller.tokens.book import EPSILON, Book
from remora.kernel.explaining.explain import Explanation
from remora.kernel.explaining.explain_groups import explain_group
from remora.kernel.placing.inside import untainted
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VNode
from remora.kernel.state.workloads import Group
from remora.model.resources import from_units
from remora.port.contract import ENDED, GROUP, RUNNING, Work
from remora.wire.owners import owner_of, share_in
from remora.wire.timing import GROUP_CREATED_SECONDS
from remora.wire.tokens import is_hold

_OVERDRAWN = "{} uses more than it may until a worker that came back from ray.get ends, and nothing starts before"
_OWED = "a minimum is owed to another virtual cluster, and nobody takes more of {} before"
IN_USE = "there is room for it, but what it would have is just being used; it is tried again"


class GroupShares:
    """``owed`` are the resources of which somebody waits for a minimum. ``queries`` and ``removals`` are effects to be
    planned."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        registry: Registry,
        use: Use,
        admission: Admission,
        book: Book,
        owed: Callable[[], set[str]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._registry = registry
        self._use = use
        self._admission = admission
        self._book = book
        self._owed = owed
        self._asking: dict[str, set[str]] = {}  # what is looked up in GCS, and for which shares
        self._removing: dict[str, None] = {}
        self._released: dict[str, Record] = {}  # shares that end when they stand on no node any more

    # What creators ask and say

    def offer(self, group: Group, option: int, job_id: str, ask: str) -> tuple[Record | None, Explanation]:
        """Reserve a share for a placement group. Return it, its tokens have yet to come; or None and why there is none. Ray
        would not look again at a group that has no room, nor stop one that gets it when it may not."""
        request, bundles = group.request, group.request.options[option]
        known = self._registry.by_ask(ask)
        if known is not None and known.group is not None and not known.group.released:
            return known, Explanation("")
        if self._admission.is_overdrawn(request.cluster or ""):
            return None, Explanation(_OVERDRAWN.format(request.cluster))
        owed = self._owed() & {name for bundle in bundles for name in bundle.resources}
        if owed:
            return None, Explanation(_OWED.format(", ".join(sorted(owed))))
        record = self._registry.enclose(request.only(option), job_id, ask)
        if record is None:
            return None, explain_group(self._cluster, group)
        return record, Explanation("")

    def confirm(self, cluster_id: str, group_id: str) -> None:
        """GCS has reserved all of a share for this group. A share that has gone to another one since is left alone."""
        record = self._registry.records.get(cluster_id)
        if record is not None and record.group is not None and group_id in (record.group.ask, record.group.group_id):
            self._reserve(record, group_id)

    def release(self, share_or_group: str, ask: str = "") -> bool:
        """A group was removed, or was not created in the end. Return whether anything is known of it. ``ask`` is the group that
        a share was offered for."""
        record = self._registry.records.get(share_or_group) or self._registry.by_ask(share_or_group)
        if record is None or record.group is None or (ask and record.group.ask != ask):
            return False
        self._release(record)
        return True

    # What is there

    def tokens(self, record: Record) -> dict[str, list[str]]:
        """Return the tokens of a share, and the one node that each stands on."""
        return {token: [node_id] for node_id, token, _ in self._tokens(record)}

    def of_work(self, names: Iterable[str]) -> Record | None:
        """Return the share whose tokens a placement group takes."""
        for name in names:
            share = share_in(name)
            record = self._registry.records.get(share.owner.account) if share is not None else None
            if record is not None and record.group is not None:
                return record
        return None

    def in_place(self, record: Record) -> bool:
        """Return whether all tokens of a share stand on their nodes, as raylets answered."""
        return record.vcluster.whole and all(
            from_units(self._book.free_of_holds(node_id, token)) >= from_units(units) - EPSILON
            for node_id, token, units in self._tokens(record)
        )

    def is_writing(self, record: Record) -> bool:
        """Return whether a write is in flight that may bring a token of a share, or make room for one."""
        above = record.vcluster.top
        nodes = {self._node_id(vnode) for vnode in (*record.vcluster.vnodes(), *above.vnodes())}
        return any(self._book.is_writing(node_id) or not self._book.is_known(node_id) for node_id in nodes)

    @property
    def settled(self) -> bool:
        return not any(group.under_way or group.released for _, group in self._registry.group_shares())

    # In a round

    def look(self) -> None:
        """Find out who has reserved its share, and whose group has ended: by the nodes' reports, and where these leave it open
        by asking GCS."""
        for record, group in self._registry.group_shares():
            with self._context.aside.care_of("placement group", record.cluster_id):
                self._look(record, group)

    def sweep(self) -> bool:
        """Remove shares that were released and stand on no node any more. Return whether there was any."""
        gone = [record for record in self._released.values() if not self._book.places_of(record.cluster_id)]
        for record in gone:
            del self._released[record.cluster_id]
            if self._registry.records.get(record.cluster_id) is record:
                self._registry.remove(record)
        return bool(gone)

    def queries(self) -> list[Find | RemoveGroup]:
        """Return what has to be looked up or removed in GCS."""
        return [*map(Find, self._asking), *map(RemoveGroup, self._removing)]

    def is_asked(self, id_or_name: str) -> bool:
        return id_or_name in self._asking

    def found(self, id_or_name: str, works: list[Work]) -> None:
        """Take in what GCS says about the groups of shares."""
        groups = [work for work in works if work.kind == GROUP]
        for account in self._asking.pop(id_or_name, ()):
            record = self._registry.records.get(account)
            if record is not None and record.group is not None and not record.group.released:
                self._judge(record, record.group, groups)

    def removed(self, group_id: str) -> None:
        self._removing.pop(group_id, None)

    # The rest

    def _look(self, record: Record, group: GroupShare) -> None:
        if group.released:
            self._released[record.cluster_id] = record  # perhaps by a controller before us
            return
        if self._is_in_use(record):
            if not group.reserved:
                group.reserved = True
                self._changed(record)
        elif group.under_way and not self._is_welcome(record):
            self._release(record)  # its creator is told that there is no room, and asks again
        elif group.reserved or self._context.now() - group.since > GROUP_CREATED_SECONDS:
            self._asking.setdefault(group.group_id or record.job_id, set()).add(record.cluster_id)

    def _judge(self, record: Record, group: GroupShare, groups: list[Work]) -> None:
        """Decide by what GCS knows. Of whoever died before telling the id of its group, the token tells."""
        if not group.group_id:
            tokens = {token for _, token, _ in self._tokens(record)}
            groups = [
                work for work in groups if not is_hold(work.name) and any(not tokens.isdisjoint(shape) for shape in work.shapes)
            ]
        if not groups or groups[0].state == ENDED:
            self._release(record)
        elif groups[0].state == RUNNING:
            self._reserve(record, groups[0].work_id)
        elif not group.reserved:
            self._removing[groups[0].work_id] = None  # it waits in GCS, and nobody knows of it
            self._release(record)

    def _reserve(self, record: Record, group_id: str) -> None:
        assert record.group is not None
        record.group.group_id, record.group.reserved = group_id, True
        self._registry.name(record)
        self._changed(record)

    def _release(self, record: Record) -> None:
        if record.group is not None and not record.group.released:
            record.group.released = True
            self._released[record.cluster_id] = record
            self._changed(record)

    def _changed(self, record: Record) -> None:
        """How far a group is has changed, and with it what is remembered, and which tokens should stand."""
        record.vcluster.changed()
        self._registry.changed(record)

    def _tokens(self, record: Record) -> Iterator[tuple[str, str, int]]:
        """Return node, token and units of each."""
        owner = owner_of(record.cluster_id)
        for index, vnode in enumerate(record.vcluster.fixed):
            for name, units in vnode.total.items() if vnode is not None else ():
                assert vnode is not None
                yield self._node_id(vnode), owner._replace(bundle=index).token(name), units

    def _is_in_use(self, record: Record) -> bool:
        """Return whether all of a share is in use, by the last reports."""
        lack: dict[tuple[str, str], int] = {}
        for vnode in record.vcluster.vnodes():
            for name, units in vnode.total.items():
                key = self._node_id(vnode), name
                lack[key] = lack.get(key, 0) + units
        return record.vcluster.whole and all(
            self._use.held(record.cluster_id, node_id).get(name, 0) >= units for (node_id, name), units in lack.items()
        )

    def _is_welcome(self, record: Record) -> bool:
        """Return whether its nodes are such that it may lie there still: they may have been tainted since it was offered."""
        group = record.vcluster.group
        bundles = group.options[0] if group is not None else ()
        return all(
            vnode is None or untainted(self._cluster, bundle.nodes) >> vnode.node & 1
            for bundle, vnode in zip(bundles, record.vcluster.fixed, strict=True)
        )

    def _node_id(self, vnode: VNode) -> str:
        return self._cluster.nodes.at(vnode.node).node_id
