"""Machines that come and go in a run: started as the plan says, ended when nothing is on them and nobody was promised them.

What an autoscaler does beside a live cluster, with start-up times and idle timeouts from the scenario in place of a provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remora.kernel.provisioning.demands import key_of_work, waiting_of
from remora.kernel.provisioning.keeping import Kept
from remora.kernel.provisioning.planning import plan
from remora.kernel.provisioning.plans import WORK, Answer, Party, Plan, Start, show_machines
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Group, Workload
from remora.model.node_types import NodeType, NodeTypes
from remora.sim.entries import NodeSpec
from remora.sim.history import MachineEvent, Machines, Run
from remora.sim.sim_cluster import SimCluster

ASKED, CAME, WENT = "asked for", "came", "went"

_IDLE_SECONDS = 60.0
_MOST_NAMED = 3


class Autoscaler:
    """``due`` is when it looks next, ``seen`` how much had happened when it last looked."""

    def __init__(
        self,
        sim: SimCluster,
        run: Run,
        types: NodeTypes,
        join: Callable[[NodeSpec, str], None],
        leave: Callable[[str], None],
    ) -> None:
        self.sim = sim
        self.run = run
        self.types = types
        self.due: float | None = None
        self.seen = -1
        self.name_of: Callable[[Party], str] = lambda party: party.name
        self._join = join
        self._leave = leave
        self._coming: dict[str, int] = {}
        self._idle_since: dict[str, float] = {}
        self._kept: dict[str, Kept] = {}
        self._plan = Plan()
        self._answers: dict[object, Answer] = {}
        self._made: dict[str, int] = {}
        sim.offer_node_types(types)
        for each in types:
            run.machines[each.name] = Machines(each.name, each.cost)

    def look(self, now: float) -> Iterator[tuple[str, float]]:
        """Plan, end what has been idle for long enough, and yield every machine to start, with the seconds that this takes."""
        table = self.sim.scheduler.cluster.types
        assert table is not None
        waiting = waiting_of(self.sim.scheduler)
        self._plan = plan(self.sim.scheduler.cluster, waiting, table, self._coming)
        self._answers = {answer.party.key: answer for answer in self._plan.answers}
        starts = [self._start(start, now) for start in self._plan.starts]
        self._end_idle(now)
        for each, count in starts:
            yield from [(each.name, each.start_seconds)] * count

    def arrive(self, name: str, now: float) -> None:
        """A machine that was started is there."""
        each = self.types.get(name)
        assert each is not None
        self._count(name, -1)
        self.run.machines[name].starting.add(now, -1)
        self.run.machines[name].up.add(now, 1)
        node_id = self._next_id(name)
        self.run.machine_events.append(MachineEvent(now, CAME, name, 1, node_id))
        self._join(NodeSpec(node_id, each.resources, dict(each.labels), dict(each.taints)), name)

    def lost(self, node_id: str, now: float) -> None:
        """A node is about to be taken away by the scenario, perhaps one of these machines."""
        node = self.sim.scheduler.cluster.nodes.by_id.get(node_id)
        if node is not None and node.node_type in self.run.machines:
            self.run.machines[node.node_type].up.add(now, -1)
            self._idle_since.pop(node_id, None)

    def next_end(self) -> float | None:
        """When the next machine has been idle for long enough, if nothing comes in between."""
        ends = [since + self._patience(node_id) for node_id, since in self._idle_since.items()]
        return min(ends, default=None)

    def words(self, item: Workload | Group | VCluster) -> str:
        """What the newest plan does for something that waits."""
        if isinstance(item, Workload):
            key = key_of_work(item, self._answers)
        else:
            key = ("cluster", item.cluster_id) if isinstance(item, VCluster) else ("group", item.group_id)
        answer = self._answers.get(key)
        if answer is None:
            return ""
        counts = dict(answer.awaits)
        for name, count in answer.starts.items():
            counts[name] = counts.get(name, 0) + count
        said = [f"{show_machines(counts)} {'is' if sum(counts.values()) == 1 else 'are'} starting"] if counts else []
        if answer.reason and not answer.served:
            said.append(answer.reason)
        return "; ".join([*said, *([answer.note] if answer.note else [])])

    def _start(self, start: Start, now: float) -> tuple[NodeType, int]:
        each = self.types.get(start.node_type)
        assert each is not None
        names = [self._with_count(party, count * start.count) for party, count in start.parties]
        whom = ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else "")
        self._count(each.name, start.count)
        self.run.machines[each.name].starting.add(now, start.count)
        self.run.machine_events.append(MachineEvent(now, ASKED, each.name, start.count, whom))
        return each, start.count

    def _with_count(self, party: Party, count: int) -> str:
        more = f" and {count - 1:,} more" if party.kind == WORK and count > 1 else ""
        return f"{self.name_of(party)}{more}"

    def _end_idle(self, now: float) -> None:
        """End machines that carry nothing, the longest idle first, as long as their type's minimum is there."""
        self.sim.scheduler.compact()
        cluster = self.sim.scheduler.cluster
        self._kept = self.sim.kept(self._plan, self._kept)
        machines = {node.node_id: node.node_type for node in cluster.nodes.by_id.values() if node.node_type in self.types}
        idle = [node_id for node_id in machines if node_id not in self._kept]
        self._idle_since = {node_id: self._idle_since.get(node_id, now) for node_id in idle}
        over = sorted(idle, key=lambda node_id: self._idle_since[node_id])
        for node_id in over:
            name = machines[node_id]
            each = self.types.get(name)
            enough = each is not None and list(machines.values()).count(name) > each.least
            if not enough:
                del self._idle_since[node_id]  # it stays for its type's minimum
            elif now - self._idle_since[node_id] >= self._patience(node_id):
                del machines[node_id], self._idle_since[node_id]
                self.run.machines[name].up.add(now, -1)
                self.run.machine_events.append(MachineEvent(now, WENT, name, 1, node_id))
                self._leave(node_id)

    def _patience(self, node_id: str) -> float:
        each = self.types.get(self.sim.scheduler.cluster.nodes.get(node_id).node_type)
        return _IDLE_SECONDS if each is None or each.idle_seconds is None else each.idle_seconds

    def _count(self, name: str, count: int) -> None:
        self._coming[name] = self._coming.get(name, 0) + count

    def _next_id(self, name: str) -> str:
        while True:
            self._made[name] = self._made.get(name, 0) + 1
            node_id = f"{name}-{self._made[name]}"
            if node_id not in self.run.nodes:
                return node_id
