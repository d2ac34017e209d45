"""One round of the controller, and the commands that change what it wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from remora.controller.journal import Journal
from remora.controller.leases import Leases
from remora.controller.looking import root_row
from remora.controller.memory import Memory, Overrides
from remora.controller.roster import Roster
from remora.controller.sharing import Sharing
from remora.controller.steering import Steering, Tokens
from remora.errors import UnknownNameError
from remora.kernel.classes import offered
from remora.kernel.cycle import Scheduler
from remora.kernel.explain import Explanation
from remora.kernel.explain_groups import explain_group
from remora.kernel.groups import first_possible
from remora.kernel.nodesets import members
from remora.kernel.tree import VCluster
from remora.kernel.workloads import Group, Workload
from remora.model.groups import GroupRequest
from remora.model.labels import Labels, show_labels
from remora.model.resources import UNIT, Resources
from remora.model.taints import Tolerations, rare_resources, rare_taints, split_taints
from remora.model.virtual_clusters import VirtualCluster
from remora.seam.port import ACTOR, JOB, WORKER, Demand, NodeView, Observation, Port, Work
from remora.wire.classes import ClassSpec
from remora.wire.groups import class_of
from remora.wire.leases import Ask
from remora.wire.tokens import OFFERED, TAKEN, class_of_token, class_token, is_real, slot_of_token

_SWEEP_SECONDS = 1.0
_FRESH_SECONDS = 0.2
_ALL_ACTORS_SECONDS = 15.0


def utc_seconds() -> float:
    return datetime.now(tz=timezone.utc).timestamp()


class GroupOffer(NamedTuple):
    """An option to create, the nodes that will have its tokens, and its berth in a virtual cluster; or none, and why."""

    option: int | None
    nodes: dict[str, list[str]]
    why: Explanation
    berth: str | None = None


class Controller:
    """Wants: the token of every class in use on every node that it admits, and no other token anywhere."""

    def __init__(self, port: Port, now: Callable[[], float] = utc_seconds) -> None:
        self.port = port
        self.now = now
        self.memory = Memory(port)
        self.roster = Roster(self.memory, now())
        self.journal = Journal(port)
        self.scheduler = Scheduler(trims=False)
        self.cluster = self.scheduler.cluster
        self.nodes: dict[str, NodeView] = {}
        self.demands: tuple[Demand, ...] = ()
        self.rare: frozenset[str] = frozenset()
        self.steering = Steering(port, self._note, now)
        self.leases = Leases(port, self.scheduler, self._note, now, self._token_on)
        self.sharing = Sharing(port, self.scheduler, self.steering, self.roster, self._note, now)
        self.scheduler.on_change = self._changed
        self.inbox: deque[Work | None] = deque([None])  # filled from other threads
        self._observed_at = self._looked_at = 0.0
        self._swept_at = now()
        self._note("controller", "", f"the controller started; it remembers {_count(len(self.memory.classes), 'class')}")

    def round(self) -> None:
        """Observe, decide, steer."""
        self._take_over(self.port.observe())
        self._read_inbox()
        self.scheduler.settle()
        self._look_after_leases()
        self._wake_and_sweep()
        self.sharing.tend(self.demands, self.memory.classes)
        self.sharing.steer()
        self.leases.standing.due()  # all of it is written below
        wanted = self._wanted()
        awake = frozenset(map(class_token, self.roster.offered)) | self.sharing.tokens()
        for node_id, view in self.nodes.items():
            self.steering.steer(node_id, view.total, wanted[node_id], awake)
        self.journal.save()

    def ensure(self, spec: ClassSpec) -> list[str]:
        """A class that somebody is about to use: on which nodes it is offered now."""
        nodes = self._nodes_of(spec)
        self.sharing.clusters.offer(spec.cluster)
        if self.roster.need(spec, self.now()):
            self._note("class", spec.class_id, f"{spec.describe() or 'any node'}: offered on {_count(len(nodes), 'node')}")
            for node_id in nodes:
                self.steering.write(node_id, {class_token(spec.class_id): OFFERED})
            if spec.cluster is not None:
                self.sharing.steer()
        return nodes

    def place(self, ask: Ask, job_id: str) -> tuple[str, str | None]:
        """A slot for one actor or task, and the node that was chosen for it, if there is one now."""
        if self.now() - self._observed_at > _FRESH_SECONDS:
            self._take_over(self.port.observe())
        self.sharing.clusters.offer(ask.request.cluster)
        return self.leases.place(ask, job_id)

    def want(self, hints: list[tuple[ClassSpec, Resources, int]]) -> None:
        """What is on its way in virtual clusters, and how often. Most of it needs nothing: then nothing is done."""
        for spec, _, _ in hints:
            self.ensure(spec)
        self.sharing.want(hints)

    def request(self, cluster_id: str, asked: list[tuple[ClassSpec, Resources, int]]) -> None:
        """A virtual cluster should have room for all of this together."""
        for spec, _, _ in asked:
            self.ensure(spec)
        self.sharing.request(cluster_id, asked)

    @property
    def settled(self) -> bool:
        """Whether nothing has to be looked at again soon."""
        return self.steering.settled and self.sharing.settled

    def create_cluster(
        self, spec: VirtualCluster, parent: str | None, job_id: str, priority: int, tolerations: Tolerations, idle: float
    ) -> dict[str, Any]:
        """A virtual cluster for a job: reserved, or queued; refused when it can never be."""
        if self.now() - self._observed_at > _FRESH_SECONDS:
            self._take_over(self.port.observe())
        return self.sharing.create(spec, parent, job_id, priority, tolerations, idle)

    def look_clusters(self) -> list[dict[str, Any]]:
        """The root and every virtual cluster, as they are now; for those who look often, so nothing is decided."""
        if self.now() - self._observed_at > _FRESH_SECONDS:
            self._take_over(self.port.observe())
        return [root_row(self.cluster), *self.sharing.tree()]

    def hear(self) -> None:
        """Between rounds: what the feeds told, and what follows from it for leases."""
        self._read_inbox()
        self._look_after_leases()

    def due(self) -> dict[str, Tokens]:
        """The tokens of leases that have yet to be written, by node; ``steer_leases`` does that."""
        return self.leases.standing.due()

    def steer_leases(self, due: dict[str, Tokens]) -> None:
        """One call a node. It changes nothing that a decision reads, so it needs no lock: decisions go on meanwhile."""
        for node_id, tokens in due.items():
            self.steering.write(node_id, tokens)

    def offer_group(self, request: GroupRequest, job_id: str = "", ask: str = "") -> GroupOffer:
        """Which option of a placement group to create now: the first that would fit if nothing else ran, with its tokens
        on their way; none while there is none, because Ray would not look at it again. ``ask`` names this question: the answer
        to one that is asked twice is the same."""
        self._take_over(self.port.observe())
        group = Group("", request)
        option = first_possible(self.cluster, group)
        if option is None:
            return GroupOffer(None, {}, explain_group(self.cluster, group))
        if request.cluster is not None:
            berth, why = self.sharing.offer_berth(group, option, job_id, ask)
            if berth is None:
                return GroupOffer(None, {}, why)
            return GroupOffer(option, self.sharing.berths.tokens(berth), why, berth.vcluster.cluster_id)
        kinds = dict.fromkeys(bundle.nodes for bundle in request.options[option])
        nodes = {class_token(spec.class_id): self.ensure(spec) for spec in map(class_of, kinds)}
        return GroupOffer(option, nodes, Explanation(""))

    def label(self, node_id: str, set_: Labels = (), drop: Iterable[str] = ()) -> None:
        overrides = self._overrides(node_id)
        overrides.labels.update(dict(set_), **dict.fromkeys(drop))
        self.memory.set_overrides(node_id, overrides)
        self._note("label", node_id, _changes(set_, drop))
        self.round()

    def taint(self, node_id: str, set_: Labels = (), drop: Iterable[str] = ()) -> bool:
        """Change a node's taints; whether work that is no longer wanted there is still queued or running."""
        overrides = self._overrides(node_id)
        overrides.taints.update(dict(set_), **dict.fromkeys(drop))
        self.memory.set_overrides(node_id, overrides)
        self._note("taint", node_id, _changes(set_, drop))
        self.round()
        return bool(self.steering.fences.get(node_id))

    def withdraw(self) -> list[str]:
        """Take every token from every node and forget everything: the cluster is stock again. Which nodes still have
        tokens that something holds."""
        self.memory.forget_all()
        self.roster.clear()
        self.journal.clear()
        left = self.steering.withdraw()
        for key in self.port.keys(""):
            self.port.put(key, None)
        return left

    def find_node(self, node_id: str | None = None, address: str | None = None) -> str:
        """A node by its id, a beginning of its id, or its address."""
        self._take_over(self.port.observe())
        if node_id is not None:
            found = [known for known in self.nodes if known.startswith(node_id)] if node_id else []
        else:
            found = [known for known, view in self.nodes.items() if view.address == address]
        if len(found) == 1:
            return found[0]
        what = f"id {node_id!r}" if node_id is not None else f"address {address!r}"
        some = ", ".join(f"{known[:12]} ({view.address})" for known, view in list(self.nodes.items())[:3])
        count = f"{len(found)} nodes have" if found else "no node has"
        raise UnknownNameError(f"{count} the {what}: the nodes are {some}")

    def _take_over(self, observation: Observation) -> None:
        """Make the kernel's picture that of the cluster."""
        self._observed_at = self.now()
        views = {view.node_id: view for view in observation.nodes}
        self.nodes = views
        self.rare = next((rare_resources(view.labels) for view in views.values() if view.is_head), self.rare)
        for node_id, view in views.items():
            labels, taints = self._marks(view)
            node = self.cluster.nodes.by_id.get(node_id)
            if node is None:
                node = self.cluster.add_node(node_id, _real(view.total), _pairs(labels), _pairs(taints))
                self._note(
                    "node", node_id, f"the node {view.address} joined" + (f", tainted {show_labels(taints)}" if taints else "")
                )
            if node.labels != labels:
                self.cluster.nodes.relabel(node, _pairs(labels), [key for key in node.labels if key not in labels])
            if node.taints != taints:
                self.cluster.nodes.retaint(node, _pairs(taints), [key for key in node.taints if key not in taints])
        self.sharing.observe(views)
        promised = self.leases.standing.promised()
        for node_id, view in views.items():
            total = _real(view.total)
            available = self.sharing.free(view, total, _real(view.available))
            self.cluster.observe_node(self.cluster.nodes.get(node_id), total, _less(available, promised.get(node_id)))
        # Last, because what ran there is placed again by what the others report now.
        for node_id in [known for known in self.cluster.nodes.by_id if known not in views]:
            groups = self.leases.node_left(node_id)
            self.scheduler.remove_node(node_id)
            self.leases.failover.regroup(groups)
            self._note("node", node_id, "the node left")
            self.steering.forget(node_id)
            self.memory.forget_node(node_id)
        self.demands = observation.demands

    def _read_inbox(self) -> None:
        """What the feeds told since the last round; all actors after a break, and once in a while."""
        first = not self._looked_at
        if self.now() - self._looked_at > _ALL_ACTORS_SECONDS:
            self._looked_at = self.now()
            self.inbox.clear()
            living = self.port.find(None)
            self.leases.see_all([work for work in living if work.kind == ACTOR])
            if first:
                self.sharing.clusters.remember()
                self.sharing.observe(self.nodes)
                self.leases.remember()
            running = {work.job_id for work in living if work.kind == JOB}
            for job_id in {record.job_id for record in self.sharing.clusters.records.values()} - running - {""}:
                self.sharing.job_ended(job_id)
        while self.inbox:
            work = self.inbox.popleft()
            if work is not None and work.kind == WORKER:
                self.sharing.worker_ended(work.work_id)
            elif work is not None:
                self.leases.see(work)
                if work.kind == JOB:
                    self.sharing.job_ended(work.job_id)

    def _changed(self, item: Workload | Group | VCluster) -> None:
        """The scheduler has placed something, or put it back."""
        if isinstance(item, VCluster):
            self.sharing.clusters.reserved(item)
        elif isinstance(item, Workload):
            self.leases.placed_or_put_back(item)

    def _look_after_leases(self) -> None:
        self.leases.failover.follow()
        self.leases.slots.fill_reserves(self.cluster.nodes.by_id)

    def _token_on(self, name: str) -> str | None:
        return next((node_id for node_id, view in self.nodes.items() if view.total.get(name)), None)

    def _wake_and_sweep(self) -> None:
        """Classes that are waited for are offered, and those that nobody uses are not."""
        now = self.now()
        waited = {class_id for demand in self.demands for shape in demand.shapes for class_id in _classes(shape)}
        for class_id in self.roster.see(waited, now):
            self._note("class", class_id, "waited for: offered again")
        if now - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = now
        in_use = waited | {each for view in self.nodes.values() for each in _classes(self.steering.in_use(view))}
        self.roster.see(in_use, now)
        for class_id in self.roster.sweep(in_use, now):
            self._note("class", class_id, "not used any more: no longer offered")

    def _marks(self, view: NodeView) -> tuple[dict[str, str], dict[str, str]]:
        """The labels and taints that hold now: those that the node was started with, then what was said since."""
        labels, taints = split_taints(view.labels)
        taints = {**dict.fromkeys(rare_taints(view.total, self.rare), "true"), **taints}
        overrides = self.memory.overrides.get(view.node_id)
        if overrides is not None:
            labels = _overridden(labels, overrides.labels)
            taints = _overridden(taints, overrides.taints)
        return labels, taints

    def _wanted(self) -> dict[str, Tokens]:
        wanted: dict[str, Tokens] = {node_id: {} for node_id in self.nodes}
        for class_id, spec in self.roster.offered.items():
            token = class_token(class_id)
            for node_id in self._nodes_of(spec):
                wanted[node_id][token] = OFFERED
        for node_id, token in self.leases.standing.tokens():
            wanted[node_id][token] = TAKEN
        for node_id, view in self.nodes.items():
            for name, total in view.total.items():
                slot = slot_of_token(name)
                if slot is not None and self.leases.is_strange(slot):
                    wanted[node_id][name] = total
        return wanted

    def _nodes_of(self, spec: ClassSpec) -> list[str]:
        """The nodes that a class is offered on."""
        if spec.cluster is not None:
            return self.sharing.offered(spec)
        return [self.cluster.nodes.at(number).node_id for number in members(offered(self.cluster, spec.choices, spec.demand))]

    def _overrides(self, node_id: str) -> Overrides:
        if node_id not in self.nodes:
            self._take_over(self.port.observe())
        if node_id not in self.nodes:
            self.find_node(node_id)
        return self.memory.overrides.get(node_id) or Overrides()

    def _note(self, kind: str, subject: str, text: str) -> None:
        self.journal.add(self.now(), kind, subject, text)


def _classes(shape: Iterable[str]) -> list[str]:
    return [class_id for name in shape if (class_id := class_of_token(name)) is not None]


def _changes(set_: Labels, drop: Iterable[str]) -> str:
    return ", ".join([*(f"{key}={value}" for key, value in set_), *(f"{key}-" for key in drop)])


def _count(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else what + ('es' if what.endswith('s') else 's')}"


def _real(amounts: Mapping[str, float]) -> Resources:
    """What a node has beside tokens. Ray reports floats, so whole units may be missed by a hair."""
    return Resources({name: round(amount * UNIT) for name, amount in amounts.items() if is_real(name)})


def _less(available: Resources, promised: Mapping[str, int] | None) -> Resources:
    return (
        available if promised is None else Resources({name: units - promised.get(name, 0) for name, units in available.items()})
    )


def _overridden(static: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**static, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _pairs(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
