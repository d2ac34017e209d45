"""Scaling: the step of a round in which the kernel plans machines for what waits, and says which to keep.

It is planned when what waits, the types or a node has changed, and no more often than the plan takes time: a round is not held
up by it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from remora.controller.context import Context
from remora.controller.effects import AskForMachines, Done, LookAtMachines, Nudge, ReadNodeTypes
from remora.controller.scaling.keeper import Keeper
from remora.controller.scaling.machines import Machines
from remora.controller.scaling.waits import Waits
from remora.kernel.cycle import Scheduler
from remora.kernel.provisioning.demands import Waiting
from remora.kernel.provisioning.keeping import kept
from remora.kernel.provisioning.planning import plan
from remora.kernel.provisioning.plans import TYPE, Answer, Plan
from remora.kernel.sharing.compacting import staying_nodes
from remora.kernel.state.node_sets import NodeSet
from remora.kernel.state.type_table import TypeTable
from remora.port.contract import Demand, NodeView

_LEAST_SECONDS = 0.25
_TIMES = 10.0
"""Between two plans, and at least so many times as long as one takes."""

_KEEP_SECONDS = 0.5
_PLANNING = "planning machines"
_MOST_NAMED = 2


class Scaling:
    """``newest`` is the last plan, ``waiting`` what waited long enough at the last look. Without an autoscaler nothing is done,
    at no cost."""

    def __init__(self, context: Context, scheduler: Scheduler, machines: Machines, waits: Waits, keeper: Keeper) -> None:
        self._context = context
        self._scheduler = scheduler
        self.machines = machines
        self.waits = waits
        self.keeper = keeper
        self.newest = Plan()
        self.waiting = Waiting()
        self._answers: dict[Hashable, Answer] = {}
        self._stamp: object = None
        self._plan_at = 0.0
        self._keep_at = 0.0
        self._staying: tuple[int, NodeSet] = (-1, 0)  # the nodes that nobody ends, and the version of the nodes they are of

    @property
    def is_on(self) -> bool:
        return self.machines.is_on

    @property
    def settled(self) -> bool:
        """Return whether no round has to follow soon."""
        return not self.is_on or self.machines.table is None or (self.waits.settled and self.keeper.settled)

    def answer(self, key: Hashable) -> Answer | None:
        """Return what the newest plan does for something that waits."""
        return self._answers.get(key)

    @property
    def keys(self) -> Mapping[Hashable, Answer]:
        return self._answers

    def tend(self, views: Mapping[str, NodeView], demands: Iterable[Demand], changes: int, rare: frozenset[str]) -> None:
        """Plan for what waits, ask for what it needs, keep what was promised."""
        if not self.is_on:
            return
        self.machines.see(views, rare)
        if self.machines.refresh():
            self._scheduler.offer_types(self.machines.table)
        if self.machines.table is None:
            if self.machines.problem:
                self.keeper.keep({}, views)
            return
        self.waiting = self.waits.see(demands)
        self._plan(self.waiting, changes)
        self._keep(views)

    def plan(self) -> list[ReadNodeTypes | LookAtMachines | AskForMachines | Nudge]:
        """Return the effects that are due."""
        return [*self.machines.plan(), *self.keeper.plan()]

    def done(self, done: Done) -> None:
        """Take in what came of one."""
        match done.effect:
            case ReadNodeTypes():
                self.machines.learned(done)
            case LookAtMachines():
                self.machines.looked(done)
            case AskForMachines():
                self.machines.asked(done)

    # The rest

    def _plan(self, waiting: Waiting, changes: int) -> None:
        table, now = self.machines.table, self._context.now()
        assert table is not None
        coming, doubtful = self.machines.coming, self.machines.doubtful
        stamp = (_sign(waiting), changes, id(table), tuple(coming.items()), tuple(doubtful.items()))
        if stamp == self._stamp or now < self._plan_at:
            self._want()
            return
        self._stamp = stamp
        self.newest = self._planned(waiting, table) if waiting else Plan()
        self._answers = {answer.party.key: answer for answer in self.newest.answers}
        after = self._context.now()
        if waiting:
            self._plan_at = after + max(_LEAST_SECONDS, _TIMES * (after - now))
        self._want()

    def _planned(self, waiting: Waiting, table: TypeTable) -> Plan:
        """Return the plan for what waits. What alone makes it fail is set aside, and the rest is planned without it."""
        cluster, coming, doubtful = self._scheduler.cluster, self.machines.coming, self.machines.doubtful
        try:
            return plan(cluster, waiting, table, coming, doubtful)
        except Exception:  # noqa: BLE001 - each is tried alone in its own care
            kept: dict[str, list[Any]] = {}
            for line in ("clusters", "degraded", "groups", "work"):
                for item in getattr(waiting, line):
                    with self._context.aside.care_of("waiting", str(item), _PLANNING):
                        plan(cluster, Waiting(**{line: (item,)}), table, coming, doubtful)
                        kept.setdefault(line, []).append(item)
            return plan(cluster, Waiting(**{line: tuple(items) for line, items in kept.items()}), table, coming, doubtful)

    def _want(self) -> None:
        """Ask for the machines of the newest plan. Those below a type's minimum come by themselves."""
        wanted = dict(self.newest.awaited)
        for start in self.newest.starts:
            if all(party.kind != TYPE for party, _ in start.parties):
                wanted[start.node_type] = wanted.get(start.node_type, 0) + start.count
        self.machines.want(wanted, {name: self.whom(name) for name in wanted})

    def whom(self, node_type: str) -> str:
        """Return for whom machines of a type are wanted."""
        answers = [answer for answer in self.newest.answers if node_type in answer.starts or node_type in answer.awaits]
        names = list(dict.fromkeys(answer.party.name for answer in answers))
        more = f" and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
        return f"{', '.join(names[:_MOST_NAMED])}{more}"

    def _keep(self, views: Mapping[str, NodeView]) -> None:
        now, cluster = self._context.now(), self._scheduler.cluster
        if now < self._keep_at and self.keeper.settled:
            return
        self._keep_at = now + _KEEP_SECONDS
        if self._staying[0] != cluster.nodes.version:
            self._staying = cluster.nodes.version, staying_nodes(cluster)
        found = kept(cluster, self.newest, self.keeper.kept, self._staying[1])
        self.keeper.keep(found, views)
        self.machines.watches = self.keeper.holds_back(views)
        if self.machines.watches and self.machines.survey is not None:
            self.keeper.nudge(views, self.machines.survey.busy)


def _sign(waiting: Waiting) -> object:
    """Return what tells one state of what waits from another."""
    return (
        tuple((each.cluster_id, each.layout) for each in (*waiting.degraded, *waiting.clusters)),
        tuple((group.group_id, len(group.hosts)) for group in waiting.groups),
        tuple((demand.key, demand.count) for demand in waiting.work),
    )
