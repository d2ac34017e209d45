"""The scheduler: what waits, and the cycle that places it whenever something changed.

    1. virtual clusters that lost nodes get them again
    2. the queue of virtual clusters moves up
    3. placement groups and workloads are tried in the order in which they came
    4. as long as that placed something that others may follow, again

Requests that are equal get the same answer, so of each kind only the first in line is decided; the rest wait behind it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from remora.errors import InvalidVirtualClusterError
from remora.kernel.explaining.explain import Explanation
from remora.kernel.explaining.explain_clusters import explain_cluster, explain_request
from remora.kernel.explaining.explain_groups import explain_group
from remora.kernel.explaining.never_fits import taints_in_the_way, why_never
from remora.kernel.placing.group_fit import attempt, could_ever
from remora.kernel.placing.placement import decide
from remora.kernel.placing.reserving import dissolve, reserve
from remora.kernel.placing.what_if import could_ever_reserve
from remora.kernel.sharing.compacting import compact, staying_nodes
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import QUEUED, READY, VCluster
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.node_table import Node
from remora.kernel.state.type_table import TypeTable
from remora.kernel.state.workloads import Group, Workload
from remora.kernel.waiting_lines import Line, WaitingLines
from remora.model.groups import GroupRequest
from remora.model.labels import ACTOR_ID, Labels
from remora.model.requests import Request
from remora.model.resources import Resources
from remora.model.taints import Tolerations
from remora.model.virtual_clusters import FixedSizeNode, FixedSizeNodes, VirtualCluster


class Scheduler:
    """A cluster, what waits for it, and everything that can happen to either.

    ``on_change`` is told of every workload, group or virtual cluster that was just placed, made ready or put back.
    ``trims``: whether virtual clusters give idle shares back at once, or their owner says when.
    """

    def __init__(self, seed: int = 0, *, trims: bool = True) -> None:
        self.trims = trims
        self.cluster = Cluster(seed)
        self.waiting = WaitingLines()
        self.queue: list[VCluster] = []
        self._degraded: dict[str, VCluster] = {}
        self.on_change: Callable[[Workload | Group | VCluster], None] = lambda _: None
        self._order = 0

    @property
    def degraded(self) -> list[VCluster]:
        """Return the virtual clusters that lost virtual nodes and wait for room to make them again, first in line first."""
        return sorted(self._degraded.values(), key=_rank)

    # Nodes

    def add_node(self, node_id: str, total: Resources, labels: Labels = (), taints: Labels = (), node_type: str = "") -> Node:
        node = self.cluster.add_node(node_id, total, labels, taints, node_type)
        self.settle()
        return node

    def offer_types(self, types: TypeTable | None) -> None:
        """Take over which node types may be started: what only they could hold waits for them, and is not refused."""
        self.cluster.types = types
        self.cluster.nodes.version += 1  # whatever could never fit may now
        self.settle()

    def remove_node(self, node_id: str) -> None:
        """Remove a node. What ran there is placed again, ahead of those that came later."""
        workloads, groups, degraded = self.cluster.remove_node(self.cluster.nodes.get(node_id))
        self._degraded.update({vcluster.cluster_id: vcluster for vcluster in degraded if vcluster.state == READY})
        lost: list[Workload | Group] = [*workloads, *groups]
        for item in lost:
            self.waiting.join(item)
            self.on_change(item)
        self._repair()
        self._place_waiting()  # before the queue moves up: what was running comes before what has not started
        self.settle()

    def relabel(self, node_id: str, set_: Labels = (), drop: tuple[str, ...] = ()) -> None:
        self.cluster.relabel_node(self.cluster.nodes.get(node_id), set_, drop)
        self.settle()

    def retaint(self, node_id: str, set_: Labels = (), drop: tuple[str, ...] = ()) -> None:
        self.cluster.nodes.retaint(self.cluster.nodes.get(node_id), set_, drop)
        self.settle()

    # Work

    def submit(self, workload_id: str, request: Request, labels: Labels = ()) -> Workload:
        if request.cluster is not None:
            self.cluster.tree.get(request.cluster)
        request = request.of(labels)
        workload = Workload(workload_id, request, labels, self.next_order())
        line = self.waiting.get(request)
        # Behind an equal one that waits it waits too, unless placed work tells them apart by their labels.
        if (line is None or self.cluster.refusals) and self._try(workload):
            if self.waiting.any_follows() or self.cluster.shares_moved:
                self.settle()
            return workload
        self.waiting.join(workload)
        return workload

    def submit_group(self, group_id: str, request: GroupRequest) -> Group:
        if request.cluster is not None:
            self.cluster.tree.get(request.cluster)
        group = Group(group_id, request, self.next_order())
        if not self._try_group(group):
            self.waiting.join(group)
        elif self.cluster.shares_moved:
            self.settle()
        return group

    def finish(self, workload: Workload) -> None:
        """End a workload, also one that waits. One that is neither placed nor waiting has ended already: nothing happens."""
        if workload.placed:
            self._release(workload)
            self.settle()
        else:
            self.waiting.withdraw(workload)

    def fail(self, workload: Workload) -> None:
        """Place a workload again that died while it was placed, under today's rules and ahead of those that came later."""
        if workload.placed:
            self._release(workload)
            self.on_change(workload)
            self._try_or_wait(workload)  # before the queue moves up: it was running
            self.settle()

    def move(self, workload: Workload, node_id: str) -> None:
        """Take over that a workload was observed to run on this node, wherever it was decided to: it is confirmed there."""
        number = self.cluster.nodes.get(node_id).number
        if not workload.placed:
            self.waiting.withdraw(workload)
        self.cluster.move(workload, number)
        self._trim(workload.request.cluster)
        self.settle()

    def rehome(self, workload: Workload, request: Request) -> None:
        """Let a workload go on under another request, in another virtual cluster or in none: where it is, if it is confirmed
        there; else it is decided anew, or waits."""
        if request.cluster is not None:
            self.cluster.tree.get(request.cluster)
        if workload.confirmed:
            self.cluster.rehome(workload, request)
            self.settle()
            return
        if workload.placed:
            self._release(workload)
            self.on_change(workload)
        else:
            self.waiting.withdraw(workload)
        workload.request = request.of(workload.labels)
        self._try_or_wait(workload)
        self.settle()

    def finish_group(self, group: Group) -> None:
        self.waiting.pop(group, None)
        if group.hosts:
            self.cluster.release_group(group)
            self._trim(group.request.cluster)
        self.settle()

    # Virtual clusters

    def create_cluster(
        self,
        spec: VirtualCluster,
        parent: VCluster | None = None,
        priority: int = 0,
        tolerations: Tolerations | None = None,
        cluster_id: str | None = None,
    ) -> VCluster:
        """Reserve or queue a virtual cluster and return it; raise when its parent could never hold it."""
        tree = self.cluster.tree
        tree.made += 1
        known_as = cluster_id or f"vc-{tree.made}"
        vcluster = VCluster(known_as, spec, parent, priority, self.next_order(), tolerations or Tolerations())
        tree.add(vcluster)
        self.queue.append(vcluster)
        self.queue.sort(key=_rank)
        self.cluster.shares_moved = False
        self._admit()
        impossible = vcluster.state == QUEUED and not could_ever_reserve(self.cluster, vcluster)
        if impossible and not taints_in_the_way(self.cluster, vcluster):  # a taint may be taken away again
            why = why_never(self.cluster, vcluster)
            self.queue.remove(vcluster)
            tree.remove(vcluster)
            tree.made -= 1
            raise InvalidVirtualClusterError(why)
        if self.cluster.shares_moved:
            self.settle()
        return vcluster

    def resize_cluster(self, vcluster: VCluster, spec: VirtualCluster) -> None:
        """Give a virtual cluster another maximum, which is at least what it has now."""
        vcluster.spec = spec
        vcluster.layout += 1  # what could never fit in it may now, and the other way round
        vcluster.changed()
        self.settle()

    def prioritize(self, vcluster: VCluster, priority: int) -> None:
        """Give a virtual cluster another place in the queue."""
        vcluster.priority = priority
        self.queue.sort(key=_rank)
        self.settle()

    def enclose(self, group: GroupRequest, parent: VCluster | None, cluster_id: str) -> VCluster | None:
        """Reserve a placement group inside a virtual cluster, or in none, as a cluster of its own, and return it; None when it
        does not fit now. ``group`` has one option. Nothing is queued."""
        nodes = [FixedSizeNode(bundle.resources) for bundle in group.options[0]]
        spec = VirtualCluster(fixed_size_nodes=[FixedSizeNodes(nodes)])
        priority, tolerations = (parent.priority, parent.tolerations) if parent is not None else (0, Tolerations())
        vcluster = VCluster(cluster_id, spec, parent, priority, self.next_order(), tolerations, group)
        if not reserve(self.cluster, vcluster):
            return None
        self.cluster.tree.add(vcluster)
        return vcluster

    def destroy_cluster(self, vcluster: VCluster) -> list[Workload | Group]:
        """End the children of a virtual cluster, its work, then itself; return the work that was ended. What a report confirmed
        and has to go on is moved out before, with ``rehome``."""
        ended = self._destroy(vcluster)
        self.settle()
        return ended

    def _destroy(self, vcluster: VCluster) -> list[Workload | Group]:
        ended: list[Workload | Group] = []
        for child in list(vcluster.children.values()):
            ended += self._destroy(child)
        for workload in list(self.cluster.in_cluster.get(vcluster.cluster_id, {}).values()):
            self.cluster.release(workload)
            ended.append(workload)
        ended += self.waiting.end_cluster(vcluster.cluster_id)
        for group in [group for group in self.cluster.groups.values() if group.request.cluster == vcluster.cluster_id]:
            self.cluster.release_group(group)
            if group not in ended:
                ended.append(group)
        if vcluster in self.queue:
            self.queue.remove(vcluster)
        self._degraded.pop(vcluster.cluster_id, None)
        dissolve(self.cluster, vcluster)
        if vcluster.parent is not None:
            self._trim(vcluster.parent.cluster_id)
        return ended

    # The cycle

    def settle(self) -> None:
        """Place whatever can be placed now."""
        self._repair()
        self._admit()
        while self._place_waiting() and (self.waiting.any_follows() or self.cluster.shares_moved):
            self._admit()

    def compact(self) -> NodeSet:
        """Let idle shares lie on as few machines as possible, and place what finds room by that; return what they left."""
        vacated = compact(self.cluster, staying_nodes(self.cluster))
        if vacated:
            self.settle()
        return vacated

    def mend(self) -> None:
        """Repair clusters that are remembered from before and may have lost nodes meanwhile."""
        ready = [vcluster for vcluster in self.cluster.tree.clusters.values() if vcluster.state == READY]
        self._degraded.update({vcluster.cluster_id: vcluster for vcluster in ready if not vcluster.whole})
        self.queue.sort(key=_rank)
        self.settle()

    def explain(self, item: Workload | Group | VCluster) -> Explanation:
        """Return why it waits; the reason is empty when it does not."""
        if isinstance(item, VCluster):
            rivals = [queued for queued in self.queue if queued.parent is item.parent]
            position = rivals.index(item) + 1 if item in rivals else 0
            ahead = next((rival for rival in rivals[: max(position - 1, 0)] if self._holds_up(rival, item)), None)
            return explain_cluster(self.cluster, item, position, ahead)
        if item.placed:
            return Explanation("")
        if isinstance(item, Group):
            return explain_group(self.cluster, item)
        return explain_request(self.cluster, item.request, item.labels, item.workload_id)

    def _reserve(self, vcluster: VCluster) -> bool:
        """Return whether a cluster that is queued or has lost nodes has everything now."""
        return reserve(self.cluster, vcluster)

    def _repair(self) -> None:
        for vcluster in self.degraded:
            if self._reserve(vcluster):
                del self._degraded[vcluster.cluster_id]
                self._trim(vcluster.cluster_id)
                self.on_change(vcluster)

    def _admit(self) -> None:
        """Reserve what is queued, highest priority first, then first come. Nobody overtakes one that needs the same resources
        and could still get them; one that can never fit as things are holds nobody up."""
        passed_over: list[VCluster] = []
        waiting = list(self.queue)
        while waiting:
            vcluster = waiting.pop(0)
            if vcluster.parent is not None and vcluster.parent.state != READY:
                continue
            held_up = any(self._holds_up(earlier, vcluster) for earlier in passed_over)
            if held_up or not self._reserve(vcluster):
                passed_over.append(vcluster)
                continue
            self.queue.remove(vcluster)
            self._trim(vcluster.cluster_id)  # its parent may have moved shares to make room
            self.on_change(vcluster)
            if vcluster.children:
                # Its children may go ahead now, also those that stood before it in the queue.
                waiting = [queued for queued in self.queue if queued not in passed_over]

    def _holds_up(self, earlier: VCluster, later: VCluster) -> bool:
        return (
            earlier.state == QUEUED
            and earlier.parent is later.parent
            and bool(earlier.needs() & later.needs())
            and could_ever_reserve(self.cluster, earlier)
        )

    def _place_waiting(self) -> bool:
        """Try everything that waits once, oldest first. Return whether anything was placed."""
        placed = False
        self.cluster.shares_moved = False
        hopeless: set[GroupRequest] = set()
        heap = self.waiting.oldest_first()  # sorted, so a heap; a line comes again with its next
        while heap:
            _, index, entry = heapq.heappop(heap)
            if isinstance(entry, Group):
                fresh = not entry.hosts
                if fresh and entry.request in hopeless:
                    continue  # an equal one just failed, and nothing was given back since
                if self._try_group(entry):
                    del self.waiting[entry]
                    placed = True
                    self.on_change(entry)
                elif fresh:
                    hopeless.add(entry.request)
                continue
            line = self.waiting[entry]
            workload = self._first_placeable(line)
            if workload is None:
                continue
            placed = True
            if line:
                heapq.heappush(heap, (line[0].order, index, entry))
            else:
                del self.waiting[entry]
            self.on_change(workload)
        return placed

    def _first_placeable(self, line: Line) -> Workload | None:
        """Place the first of a line that can be and return it; None when none can. Equal requests fail alike, except where
        placed work tells them apart by their labels or ids."""
        refusals = self.cluster.refusals
        by_id = bool(refusals.with_key((line[0].request.kind, ""), ACTOR_ID))
        tried = set()
        for workload in line if refusals else [line[0]]:
            told_apart = (workload.labels, workload.workload_id if by_id else "")
            if told_apart in tried:
                continue
            if self._try(workload):
                line.remove(workload)
                return workload
            tried.add(told_apart)
        return None

    def _try(self, workload: Workload) -> bool:
        host = decide(self.cluster, workload.request, workload.labels, workload.workload_id)
        if host is None:
            return False
        shares_moved, self.cluster.shares_moved = self.cluster.shares_moved, False
        self.cluster.place(workload, host)
        if self.cluster.shares_moved:
            self._trim(workload.request.cluster)  # it grew: what lies idle elsewhere above the minimum goes back
        self.cluster.shares_moved |= shares_moved
        return True

    def _try_or_wait(self, workload: Workload) -> None:
        if self._try(workload):
            self.on_change(workload)
        else:
            self.waiting.join(workload)

    def _try_group(self, group: Group) -> bool:
        request = group.request
        space = self.cluster.tree.get(request.cluster) if request.cluster is not None else None
        if space is not None and space.state != READY:
            return False
        for option in range(len(request.options)):
            if self._try_option(group, option, space):
                return True
            if option + 1 < len(request.options) and could_ever(self.cluster, group, option):
                return False
        return False

    def _try_option(self, group: Group, option: int, space: VCluster | None) -> bool:
        """Place a group with one of its options; return whether that went. Bundles of the same option that are placed already
        stay; for another option they make room."""
        before, survivors = group.option, list(group.hosts)
        if survivors and before != option:
            self.cluster.release_group(group)
        taken = list(group.hosts) or [None] * len(group.request.options[option])
        hosts = attempt(self.cluster, space, group, option, taken).place()
        if hosts is not None:
            self.cluster.shares_moved = False
            self.cluster.place_group(group, option, hosts)
            if self.cluster.shares_moved:
                self._trim(group.request.cluster)
            return True
        if survivors and before != option:
            self.cluster.restore_group(group, before, survivors)
        return False

    def _release(self, workload: Workload) -> None:
        self.cluster.release(workload)
        self._trim(workload.request.cluster)

    def _trim(self, cluster_id: str | None) -> None:
        if cluster_id is not None and self.trims:
            shares.trim(self.cluster, self.cluster.tree.get(cluster_id))

    def next_order(self) -> int:
        self._order += 1
        return self._order


def _rank(vcluster: VCluster) -> tuple[int, int]:
    """Return the place in the queue: highest priority first, then first come."""
    return -vcluster.priority, vcluster.order
