"""The same world with classes, leases and the actors that were created with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.controller.worlds import World

from remora import actor_affinity, label_in, label_not_in
from remora.controller.commands import begin
from remora.model.requests import Request
from remora.model.resources import Resources
from remora.model.strategies import ACTOR as ACTOR_KIND
from remora.model.strategies import TASK as TASK_KIND
from remora.port.contract import ACTOR, ENDED, RUNNING, WAITING, Observation, Work
from remora.port.memory_port import MemoryPort
from remora.wire import calls
from remora.wire.asks import LEASE_LABEL, REQUEST_LABEL, Ask, decode_ask, encode_ask
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.tokens import CLUSTER_LABEL, OFFERED, TAKEN, class_token, is_token, lease_token, share_token, slot_of_token

JOB_ID = "j1"

LONELY: dict[str, Any] = {
    "labels": {"type": "cat"},
    "scheduling_strategy": actor_affinity(label_not_in("type", ["cat"], False)),
}
"""A cat, which keeps away from cats."""

WITH_CAT: dict[str, Any] = {"scheduling_strategy": actor_affinity(label_in("type", ["cat"], False))}
"""Joins a cat."""


def near(who: str, on_failover: str) -> dict[str, Any]:
    """Return the options of one that joins somebody, and says what it does when that one restarts elsewhere."""
    return {"scheduling_strategy": actor_affinity(label_in("who", [who], False), on_failover=on_failover)}


def spec(**options: Any) -> ClassSpec:
    """Return the class of what is submitted with these options."""
    return rewrite(options, Defaults()).spec


def wanted(kind: str = ACTOR_KIND, cpus: float = 1, cluster: str | None = None, **options: Any) -> Ask:
    """Return what is asked for an actor or a task. Ray gives an actor that names no resource one CPU to be placed."""
    need = {"CPU": cpus} if cpus else {}
    demand = need or ({"CPU": 1} if kind == ACTOR_KIND else {})
    made = rewrite(options, Defaults()).ask(kind, need, demand, "tests", [])
    return made._replace(request=replace(made.request, cluster=cluster))


def wanted_task(cpus: float = 1, cluster: str | None = None, **options: Any) -> Ask:
    return wanted(TASK_KIND, cpus, cluster, **options)


class FaultyPort(MemoryPort):
    """``unwritable`` are nodes and keys that cannot be written; ``hidden`` is work that nobody finds in the tables."""

    def __init__(self) -> None:
        super().__init__()
        self._old: Observation | None = None
        self.unwritable: set[str] = set()
        self.hidden: set[str] = set()

    def freeze(self) -> None:
        """From now on reports say what is now: GCS reports what was, for about a tenth of a second after a resize."""
        self._old = super().observe()

    def thaw(self) -> None:
        self._old = None

    def observe(self) -> Observation:
        return self._old or super().observe()

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        if node_id in self.unwritable:
            raise OSError("the raylet does not answer")
        return super().resize(node_id, amounts)

    def put(self, key: str, value: bytes | None) -> None:
        if key in self.unwritable:
            raise OSError("the store does not answer")
        super().put(key, value)

    def find(self, id_or_name: str | None) -> list[Work]:
        return [work for work in super().find(id_or_name) if work.work_id not in self.hidden]


class LeasedWorld(World):
    """Work starts where Ray would start it: where its token stands and there is room. What it holds is in the reports."""

    port: FaultyPort

    def __init__(self, *nodes: str, cpus: float = 4, port: FaultyPort | None = None) -> None:
        super().__init__(cpus, nodes, port or FaultyPort())
        self.job(JOB_ID)
        self._holding: dict[str, tuple[str, dict[str, float]]] = {}  # what runs, where, and what it holds there
        self._works: dict[str, Work] = {}

    # The controller's life, and time

    def kill(self) -> None:
        """The controller hears nothing any more, until it listens again or another comes."""
        self.host.stop()

    def listen(self) -> None:
        self.host.listen()

    def round(self) -> None:
        self.host.round()

    def pass_time(self, seconds: float, every: float = 1.0) -> None:
        """So much time passes, with a round every so often."""
        for _ in range(round(seconds / every)):
            self.later(every)

    def ask_in_time(self, call: calls.Call, within: float = 5.0) -> Any:
        """Return the answer to a call, or raise its error; None when there is none in so many seconds, in which rounds are
        made."""
        self.host.hear()
        self.controller.report(self.port.observe())
        pending = begin(self.controller, call)
        reply, until = pending.poll(), self.time + within
        while reply is None and self.time < until:
            if not self.host.pump():
                self.later(0.1)
            reply = pending.poll()
        self.host.pump()
        return reply.result() if reply is not None else None

    # Calls

    def ensure(self, of: ClassSpec) -> list[str]:
        found: list[str] = self.ask(calls.EnsureClass(of.encode()))
        return found

    def taint(self, node_id: str, *drop: str, **set_: str) -> Any:
        return self.ask_in_time(calls.TaintNode(node_id, tuple(set_.items()), list(drop)))

    def label(self, node_id: str, *drop: str, **set_: str) -> Any:
        return self.ask_in_time(calls.LabelNode(node_id, tuple(set_.items()), list(drop)))

    def place(
        self, asked: Ask, question: str | None = None, job_id: str = JOB_ID, worker_id: str = ""
    ) -> tuple[str, str | None]:
        slot, node_id = self.ask(calls.Place(question or self.new_ask(), encode_ask(asked), job_id, worker_id))
        return slot, node_id

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(calls.GetStatus())
        return found

    def failures(self) -> dict[tuple[str, str], str]:
        """Return what ``remora status`` names as set aside, with what happened."""
        return {(row["kind"], row["id"]): row["error"] for row in self.status()["set_aside"]}

    def why(self, work: Work) -> str:
        (row,) = self.ask(calls.Explain(work.work_id))
        reason: str = row["reason"]
        return reason

    def events(self, subject: str | None = None) -> list[str]:
        """Return what the journal tells, of everything or of one thing."""
        entries = self.ask(calls.GetEvents())
        return [entry["text"] for entry in entries if subject is None or entry["subject"] == subject]

    # Actors

    def start(self, **options: Any) -> Work:
        """Place an actor, create it, claim its slot, and let it start if it can."""
        return self.let_start(self.submit(wanted(**options)))

    def submit(self, asked: Ask, job_id: str = JOB_ID, *, claim: bool = True) -> Work:
        """Place an actor and create it; it has not started."""
        slot, _ = self.place(asked, job_id=job_id)
        return self.created(slot, asked, job_id, claim=claim)

    def created(self, slot: str, asked: Ask, job_id: str = JOB_ID, *, claim: bool = True) -> Work:
        """The actor that a slot was given for is known to GCS."""
        inside = {CLUSTER_LABEL: asked.request.cluster} if asked.request.cluster is not None else {}
        labels = {**dict(asked.labels), **inside, LEASE_LABEL: slot, REQUEST_LABEL: encode_ask(asked)}
        actor_id = f"actor{len(self._works)}-{slot}"
        shape = {**_with_share(asked.request, asked.request.demand), lease_token(slot): TAKEN}
        work = Work(ACTOR, actor_id, "", job_id, WAITING, "PENDING_CREATION", (shape,), namespace="tests", labels=labels)
        self.tell(work)
        if claim:
            self.ask(calls.Claim(slot, actor_id))
        return work

    def let_start(self, work: Work) -> Work:
        """As Ray does: it starts where its token is and there is room for it, if that is anywhere."""
        self.round()
        node_id = self.token_on(work)
        if node_id is None or any(self.free_on(node_id, name) < amount for name, amount in needed_by(work).items()):
            return self._works[work.work_id]
        return self.starts(work, node_id)

    def starts(self, work: Work, node_id: str) -> Work:
        """It starts on a node, whoever decided that, and holds there what it asked for."""
        self.port.take(node_id, held_by(work))
        self._holding[work.work_id] = node_id, held_by(work)
        running = self.tell(replace(work, state=RUNNING, detail="ALIVE", node_ids=(node_id,)))
        self.round()
        return running

    def tell(self, work: Work) -> Work:
        """Something is told by the feeds; a round has yet to follow."""
        self._works[work.work_id] = work
        self.port.submit(work)
        return work

    def gives_back(self, work: Work) -> None:
        """What it held is free again in its node's report."""
        node_id, need = self._holding.pop(work.work_id, ("", {}))
        if any(view.node_id == node_id for view in self.views()):
            self.port.give(node_id, need)

    def dies(self, work: Work) -> None:
        self.gives_back(work)
        self.tell(replace(work, state=ENDED, detail="DEAD", node_ids=()))
        self.round()

    def stops(self, work: Work) -> Work:
        """Its process died: what it held is free again, and it waits to be started anew."""
        self.gives_back(work)
        waiting = self.tell(restarting(work))
        self.round()
        return waiting

    def restarts(self, work: Work) -> Work:
        """Its process died, and it starts where it can."""
        return self.let_start(self.stops(work))

    def lose(self, node_id: str) -> None:
        """A node is gone, and with it all that ran there."""
        self._holding = {work_id: held for work_id, held in self._holding.items() if held[0] != node_id}
        self.port.leave(node_id)
        self.round()

    # What stands out there

    def total_on(self, node_id: str, name: str) -> float:
        return self.view(node_id).total.get(name, 0.0)

    def free_on(self, node_id: str, name: str) -> float:
        return self.view(node_id).available.get(name, 0.0)

    def where(self, token: str) -> dict[str, float]:
        """Return the nodes on which a token stands, and how much of it."""
        return {view.node_id: view.total[token] for view in self.views() if view.total.get(token)}

    def offers(self, of: ClassSpec) -> set[str]:
        """Return the nodes that offer a class."""
        return {node_id for node_id, amount in self.where(class_token(of.class_id)).items() if amount == OFFERED}

    def token_on(self, work: Work) -> str | None:
        """Return the one node on which the token of an actor stands."""
        return self.slot_on(work.labels[LEASE_LABEL])

    def slot_on(self, slot: str) -> str | None:
        found = list(self.where(lease_token(slot)))
        assert len(found) < 2, f"the token of {slot} stands on {found}"
        return found[0] if found else None

    def slots(self) -> set[str]:
        """Return every slot whose token stands on some node."""
        return {slot for name in self.all_tokens() if (slot := slot_of_token(name)) is not None}

    def all_tokens(self) -> set[str]:
        return {name for view in self.views() for name in view.total if is_token(name)}


def held_by(work: Work) -> dict[str, float]:
    """Return what an actor holds while it lives: its resources, and as much of its share."""
    request = decode_ask(work.labels[REQUEST_LABEL]).request
    return _with_share(request, request.resources)


def restarting(work: Work) -> Work:
    """Return an actor whose process has died, as GCS tells of it."""
    return replace(work, state=WAITING, detail="RESTARTING", node_ids=(), restarts=work.restarts + 1)


def needed_by(work: Work) -> dict[str, float]:
    """Return what has to be free for an actor to start, beside its lease token."""
    request = decode_ask(work.labels[REQUEST_LABEL]).request
    return _with_share(request, request.demand)


def _with_share(request: Request, resources: Resources) -> dict[str, float]:
    amounts, cluster_id = resources.to_dict(), request.cluster
    shares = {share_token(cluster_id, name): amount for name, amount in amounts.items()} if cluster_id is not None else {}
    return {**amounts, **shares}
