"""Machines for single pieces of work, by kinds: what has rules about others or lies in shares is tried on the copy first, the
rest is packed by the numbers, together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remora.kernel.packing.bins import COMING, TO_ADD, Packing
from remora.kernel.placing import inside
from remora.kernel.placing.eligibility import eligible, types_that_hold
from remora.kernel.placing.placement import decide, screened
from remora.kernel.placing.stock import Stock, Wanted
from remora.kernel.provisioning.ceilings import Ceilings
from remora.kernel.provisioning.company import Company, has_rules
from remora.kernel.provisioning.demands import Demand
from remora.kernel.provisioning.drafts import Draft
from remora.kernel.provisioning.plans import WORK, Answer, Party
from remora.kernel.provisioning.why_none import NO_NODE_HELPS, why_no_type, why_none_left
from remora.kernel.rules import Query
from remora.kernel.state import shares
from remora.kernel.state.cluster_tree import READY, VCluster
from remora.kernel.state.node_sets import NodeSet, members, without
from remora.kernel.state.workloads import Host, Workload
from remora.model.requests import NodeClass
from remora.model.resources import EMPTY, Resources


class _Line:
    """One demand on its way through a plan. ``left`` is what has no room yet; ``ruled`` says that it has rules about others or
    others about it; ``nodes`` and ``types`` are where the rules let it go; ``over`` is what a maximum of its virtual cluster
    keeps out, and ``why_over`` which. ``used`` are the machines that it is on, by type: on their way, and to be started;
    ``numbers`` those of them that are nodes of the copy."""

    __slots__ = (
        *("choice", "demand", "left", "nodes", "numbers", "over", "party"),
        *("queued", "ruled", "types", "used", "vcluster", "why_over"),
    )

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.party = Party(WORK, demand.key, demand.name)
        self.left = demand.count
        self.choice: NodeClass = demand.request.choices[0]
        self.vcluster: VCluster | None = None
        self.queued = False
        self.ruled = False
        self.nodes: NodeSet = 0
        self.types: NodeSet = 0
        self.over = 0
        self.why_over = ""
        self.used: dict[bool, dict[str, int]] = {False: {}, True: {}}
        self.numbers: NodeSet = 0

    def use(self, name: str, times: int, *, new: bool) -> None:
        self.used[new][name] = self.used[new].get(name, 0) + times


class WorkPlanner:
    """``asked`` are the demands that no node that is there has room for."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.asked: list[Demand] = []
        self._lines: list[_Line] = []

    def plan(self, demands: Sequence[Demand]) -> None:
        """Plan for all of them, and answer for each."""
        self._lines = [_Line(demand) for demand in demands]
        for line in self._lines:
            self._enter(line)
        open_ = [line for line in self._lines if not line.queued]
        if self.draft.copied:
            concerned = Company([line.demand for line in open_]).concerned
            for number, line in enumerate(open_):
                line.ruled = bool(concerned >> number & 1 or has_rules(line.demand) or self.draft.cluster.refusals)
            self._place_on_copy(open_)
        self._admit(open_)
        # What has rules about domains was tried with a machine of every type.
        asked = [line for line in open_ if line.left and not line.demand.request.topologies]
        if asked:
            self._pack(asked)
        for line in self._lines:
            self.draft.answer(self._answer(line))

    def unplaced(self, fresh: Draft) -> Iterator[Wanted]:
        """Yield what was asked for and has no rules of its own, as it would be asked of another draft."""
        for demand in self.asked:
            if demand.request.cluster is None and not has_rules(demand):
                line = _Line(demand)
                planner = WorkPlanner(fresh)
                planner._enter(line)
                planner._admit([line])
                yield from planner._wanted([line])

    def _enter(self, line: _Line) -> None:
        """Find the choice that is waited for: the first that a node or a type could ever hold."""
        request, cluster, table = line.demand.request, self.draft.cluster, self.draft.table
        if request.cluster is not None:
            line.vcluster = cluster.tree.get(request.cluster)
            line.queued = line.vcluster.state != READY
        for choice in request.choices:
            if line.vcluster is not None:
                held = inside.feasible(cluster, line.vcluster, choice, request.demand)
            else:
                there = eligible(cluster, choice) & cluster.totals.at_least(request.demand)
                held = bool(there or types_that_hold(table, choice, request.demand) & table.at_hand)
            if held:
                line.choice = choice
                return

    # On the copy

    def _place_on_copy(self, lines: list[_Line]) -> None:
        """Place what finds room under the rules; what follows others is tried once more after them."""
        ruled = [line for line in lines if line.ruled]
        for line in ruled:
            self._place_line(line)
        for line in ruled:
            if line.left and line.demand.request.follows:
                self._place_line(line)
        for line in ruled:
            if line.left and line.demand.request.topologies:
                self._place_by_domains(line)
        for line in lines:
            if line.vcluster is not None and not line.ruled:
                self._place_line(line)

    def _place_line(self, line: _Line) -> None:
        """Place one after the other as long as that goes: equal ones fail alike. In a share without rules only what the share
        has already; how far it grows is a matter of numbers."""
        cluster, demand = self.draft.cluster, line.demand
        request = demand.request
        while line.left:
            host = decide(cluster, request, demand.labels, demand.workload_id)
            if host is None or (not line.ruled and not _is_owned(host, request.demand)):
                return
            known_as = demand.workload_id if demand.count == 1 else ""
            workload = Workload(known_as or f"~{len(cluster.placed)}/{id(line)}/{line.left}", request, demand.labels)
            cluster.place(workload, host)
            line.left -= 1
            self._put(line, host.node, 1)

    def _place_by_domains(self, line: _Line) -> None:
        """Add one machine after the other, of the first type with which the rules about domains let one more start: in which
        domain a machine is depends on its type, and whom that keeps away on all that is there."""
        table, enlarger = self.draft.table, self.draft.enlarger
        request = line.demand.request
        while line.left:
            before = line.left
            fitting = [
                table.at(number) for number in members(types_that_hold(table, line.choice, request.demand) & table.at_hand)
            ]
            for each in sorted(
                fitting, key=lambda each: (table.costs.get(each.name, 0.0), "GPU" in each.resources, -each.priority)
            ):
                if self.draft.openings.all == 0 or self.draft.openings.of(each) == 0:
                    continue
                node = enlarger.add(each.name)
                self._place_line(line)
                if line.left < before:
                    break
                enlarger.drop([node])
            if line.left == before:
                return

    def _put(self, line: _Line, number: int, count: int) -> None:
        """Write down that a node of the copy takes so many."""
        bit = 1 << number
        if not bit & (self.draft.new | self.draft.late):
            return
        self.draft.add_tenant(number, line.party, count)
        if not bit & line.numbers:
            line.numbers |= bit
            line.use(self.draft.cluster.nodes.at(number).node_type, 1, new=bool(bit & self.draft.new))

    # By the numbers

    def _admit(self, lines: list[_Line]) -> None:
        """Ask the rules where each may go, and the maxima of virtual clusters how many."""
        cluster, table = self.draft.cluster, self.draft.table
        ceilings = Ceilings()
        for line in lines:
            demand = line.demand.request.demand
            if line.vcluster is None:
                line.nodes = eligible(cluster, line.choice)
                line.types = types_that_hold(table, line.choice, demand) & table.at_hand
                continue
            allowed, line.why_over = ceilings.allow(line.vcluster, line.demand.request.resources, line.left)
            line.over, line.left = line.left - allowed, allowed
            ceilings.take(line.vcluster, line.demand.request.resources, allowed)
            admitted = inside.untainted(cluster, line.choice)
            line.nodes = admitted & inside.growable(cluster, line.vcluster, line.choice, demand)
            if line.left:
                line.types = self._types_inside(line, line.vcluster)

    def _types_inside(self, line: _Line, vcluster: VCluster) -> NodeSet:
        """Return the types on whose nodes the share could grow: such nodes are added for a moment, and the share is asked."""
        cluster, table = self.draft.cluster, self.draft.table
        demand = line.demand.request.demand
        probes = {
            cluster.add_node(f"?{each.name}", each.resources, each.labels, each.taints).number: number
            for number, each in enumerate(table.types)
            if table.at_hand >> number & 1
        }
        types = 0
        growing = inside.untainted(cluster, line.choice) & inside.growable(cluster, vcluster, line.choice, demand)
        for probe, number in probes.items():
            if growing >> probe & 1:
                hosts = inside.flexible_hosts(cluster, vcluster, probe, line.choice)
                if any(shares.fits(cluster, host, demand) for host in hosts):
                    types |= 1 << number
        for probe in probes:
            cluster.remove_node(cluster.nodes.at(probe))
        return types

    def _wanted(self, lines: list[_Line]) -> list[Wanted]:
        company = Company([line.demand for line in lines])
        found = []
        for number, line in enumerate(lines):
            request = line.demand.request
            beside = company.beside[number]
            nodes = 0 if line.ruled else line.nodes  # it was tried on every node that is there
            need = request.resources if has_rules(line.demand) else request.demand
            found.append(
                Wanted(
                    need,
                    1 if _starts_in_turn(line) else line.left,
                    nodes,
                    line.types,
                    company.apart[number],
                    () if beside is None else (beside,),
                    len(line.choice.selector.terms),
                )
            )
        return found

    def _pack(self, lines: list[_Line]) -> None:
        stock = Stock(
            self.draft.cluster,
            self.draft.openings,
            self._wanted(lines),
            self.draft.late,
            {} if self.draft.copied else self.draft.expected,
        )
        packing = stock.pack()
        there = self._write_down(lines, stock, packing)
        for number, (line, left) in enumerate(zip(lines, packing.left, strict=True)):
            if line.left > there[number]:
                self.asked.append(line.demand)
            line.left = line.left if left and _starts_in_turn(line) else left

    def _write_down(self, lines: list[_Line], stock: Stock, packing: Packing) -> list[int]:
        """Take a packing over into the draft; return how many of each line found room on nodes that are there."""
        there = [0] * len(lines)
        next_of = [0] * len(stock.bins)
        for bin_, times, content in packing.filled:
            each = stock.bins[bin_]
            if each.tier == TO_ADD:
                self.draft.fill(each.name, times, [(lines[kind].party, count) for kind, count in content])
                self.draft.openings.take(each.name, times)
                for kind, _ in content:
                    lines[kind].use(each.name, times, new=True)
            elif stock.members[bin_]:
                numbers = stock.members[bin_][next_of[bin_] : next_of[bin_] + times]
                next_of[bin_] += times
                for number in numbers:
                    for kind, count in content:
                        self._put(lines[kind], number, count)
                        if not 1 << number & (self.draft.new | self.draft.late):
                            there[kind] += count
            else:
                assert each.tier == COMING, each
                self.draft.await_(each.name, times)
                for kind, _ in content:
                    lines[kind].use(each.name, times, new=False)
        return there

    # Answers

    def _answer(self, line: _Line) -> Answer:
        count = line.demand.count
        reason, suggestions = self._why_not(line) if line.left or line.over or line.queued else ("", ())
        served = 0 if line.queued else count - line.left - line.over
        note = self._note(line) if line.used[True] else ""
        return Answer(line.party, count, served, line.used[True], line.used[False], reason, note, suggestions)

    def _why_not(self, line: _Line) -> tuple[str, tuple[str, ...]]:
        if line.queued:
            return f"its virtual cluster {line.demand.request.cluster} is queued", ()
        if line.over:
            beyond = f"{line.why_over}: {NO_NODE_HELPS}"
            if not line.left:
                return beyond, ()
            reason, suggestions = self._why_left(line)
            return f"{reason}; {beyond}", suggestions
        return self._why_left(line)

    def _why_left(self, line: _Line) -> tuple[str, tuple[str, ...]]:
        request, table, cluster = line.demand.request, self.draft.table, self.draft.cluster
        if request.topologies and types_that_hold(table, line.choice, request.demand) & table.at_hand:
            over = " and ".join(sorted(request.topologies))
            return f"no machine of a type that may be started is in a {over} that its rules leave open: {NO_NODE_HELPS}", ()
        if request.joins:
            query = Query(request, line.choice, line.demand.labels, line.demand.workload_id)
            there = "is placed" if screened(cluster, query) else "is not there"
            return f"hard affinity to something that {there}: {NO_NODE_HELPS}", ()
        fitting = types_that_hold(table, line.choice, request.demand) & table.on_offer
        if not fitting:
            return why_no_type(table, line.choice, request.demand), ()
        if line.vcluster is not None and not line.types and fitting & table.at_hand:
            return f"the virtual cluster {line.vcluster.cluster_id} could not grow on any new node: {NO_NODE_HELPS}", ()
        return why_none_left(self.draft.openings, fitting)

    def _note(self, line: _Line) -> str:
        """Return which types would have done and cannot be had, when others are started instead."""
        table = self.draft.table
        if not table.resting or line.vcluster is not None:
            return ""
        fitting = types_that_hold(table, line.choice, line.demand.request.demand) & table.on_offer
        missed = [table.at(number).name for number in members(without(fitting, table.at_hand))]
        return " and ".join(
            f"type {name} cannot be had now ({table.resting[name]}): others are started instead" for name in missed
        )


def _starts_in_turn(line: _Line) -> bool:
    """Return whether one place is enough for all of them: Ray's default actors need a CPU to start and none to live."""
    return not line.demand.request.resources and bool(line.demand.request.demand) and not has_rules(line.demand)


def _is_owned(host: Host, demand: Resources) -> bool:
    """Return whether a host in a share has all of it without growing."""
    if host.cluster is None or not demand:
        return demand == EMPTY
    for name, units in demand.pairs:
        vnode = shares.vnode_of(host, name)
        if vnode is None or vnode.idle(name) < units:
            return False
    return True
