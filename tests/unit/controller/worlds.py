"""A cluster in memory with a controller that is run step by step: what the tests of the controller have in common.

Tests ask with the calls of ``remora.wire`` and look at what came of it on the port: tokens, holds, fences, keys.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.stepping import Stepping

from remora import VirtualCluster
from remora.controller.controller import Controller
from remora.errors import UnknownNameError
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.port.contract import ACTOR, ENDED, GROUP, JOB, RUNNING, WORKER, NodeView, Work
from remora.port.memory_port import MemoryPort
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.fences import fence_key, read_fence
from remora.wire.group_requests import encode_group
from remora.wire.owners import owner_of, share_in
from remora.wire.rewrite import Defaults, rewrite_group
from remora.wire.timing import OFFER_SECONDS
from remora.wire.tokens import CLUSTER_LABEL, share_token

ANY = NodeClass(LabelSelector(), Tolerations())
ONE = Resources.parse({"CPU": 1})
EVER = 1000.0


@dataclass(frozen=True)
class Offer:
    """What was offered to a placement group."""

    option: int | None
    nodes: dict[str, list[str]]
    share_id: str | None
    reason: str
    suggestions: list[str]

    def shares(self) -> dict[str, str]:
        """Return the share tokens, each with its node."""
        return {token: where for token, (where, *_) in self.nodes.items() if share_in(token) is not None}

    def places(self) -> list[str]:
        """Return the nodes of its bundles."""
        return list(self.shares().values())


class Killed(BaseException):
    """The controller was killed: in the middle of whatever it was doing."""


class MortalPort(MemoryPort):
    """A port over which a controller can be killed between any two of its effects: ``lives`` more are done, and no other."""

    lives: int | None = None

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        self._spend()
        return super().resize(node_id, amounts)

    def put(self, key: str, value: bytes | None) -> None:
        self._spend()
        super().put(key, value)

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        self._spend()
        return super().hold(name, node_id, amounts)

    def let_go(self, name: str) -> None:
        self._spend()
        super().let_go(name)

    def _spend(self) -> None:
        if self.lives is not None:
            if not self.lives:
                self.lives = None
                raise Killed
            self.lives -= 1


class World:
    """Two nodes of four CPUs, a clock that is moved by hand, and work that takes and gives tokens as Ray's would."""

    def __init__(
        self,
        cpus: float = 4,
        nodes: tuple[str, ...] = ("n1", "n2"),
        port: MemoryPort | None = None,
        chance: random.Random | None = None,
        *,
        allows_failures: bool = False,
    ) -> None:
        self.port = port if port is not None else MemoryPort()
        self._chance = chance
        self.time = EVER
        self._turns: dict[str, float] = {}
        self._asks = itertools.count(1)
        for name in nodes:
            self.port.join(name, {"CPU": cpus})
        self.host = Stepping(self.port, self.clock, self._chance, allows_failures=allows_failures)

    def clock(self) -> float:
        return self.time

    @property
    def controller(self) -> Controller:
        return self.host.controller

    def restart(self, *, allows_failures: bool = False) -> None:
        """The controller was killed, and another comes: it has only what the port has."""
        self.host.stop()
        self.host = Stepping(self.port, self.clock, self._chance, allows_failures=allows_failures)

    def later(self, seconds: float) -> None:
        self.time += seconds
        self.host.round()

    def ask(self, call: calls.Call) -> Any:
        return self.host.ask(call)

    def ask_and_kill(self, call: calls.Call, after: int) -> tuple[Any, bool]:
        """Ask, with a controller that is killed after so many effects; another takes its place, and is asked the same, as Ray
        does. Return the answer, and whether one was killed."""
        assert isinstance(self.port, MortalPort)
        self.port.lives = after
        try:
            return self.ask(call), False
        except Killed:
            self.restart()
            return self.ask(call), True
        finally:
            self.port.lives = None

    def new_ask(self) -> str:
        return f"ask {next(self._asks)}"

    # What the cluster knows

    def job(self, job_id: str, state: str = RUNNING) -> None:
        self.port.submit(Work(JOB, job_id, "", job_id, state, "", ()))

    def worker_ended(self, worker_id: str) -> None:
        self.port.submit(Work(WORKER, worker_id, "", "", ENDED, "", ()))

    def actor(self, actor_id: str, state: str, cluster_id: str, detail: str = "ALIVE", **more: Any) -> Work:
        """An actor without a lease that was made in a virtual cluster."""
        work = Work(ACTOR, actor_id, "", "j1", state, detail, ({},), labels={CLUSTER_LABEL: cluster_id}, **more)
        self.port.submit(work)
        return work

    # Virtual clusters

    def create(self, parent: str | None = None, job: str = "j1", priority: int = 0, ask: str = "", **spec: Any) -> str:
        """Ask for a virtual cluster once. Return its id, wherever it is by now."""
        self.job(job)
        return str(self.ask(self.creation(parent, job, priority, ask, **spec))["cluster_id"])

    def creation(
        self, parent: str | None = None, job: str = "j1", priority: int = 0, ask: str = "", **spec: Any
    ) -> calls.CreateCluster:
        text = json.dumps(VirtualCluster(**spec).to_dict())
        return calls.CreateCluster(ask or self.new_ask(), text, parent, job, priority, [], 5.0)

    def look(self, cluster_id: str) -> dict[str, Any]:
        return dict(self.ask(calls.LookAtCluster(cluster_id)))

    def state(self, cluster_id: str) -> str:
        """Return the state of a cluster; "GONE" when nothing is known of it."""
        try:
            return str(self.look(cluster_id)["state"])
        except UnknownNameError:
            return "GONE"

    def clusters(self) -> list[str]:
        """Return the clusters that are remembered, with the shares of placement groups."""
        return [key.removeprefix("vc/") for key in self.port.keys("vc/")]

    def close(self, cluster_id: str, *, unused: bool = False) -> None:
        self.ask(calls.CloseCluster(cluster_id, unused))

    def want(self, cluster_id: str, count: int = 1, demand: Resources = ONE) -> None:
        self.ask(calls.WantShares([self.hint(cluster_id, count, demand)]))

    def request(self, cluster_id: str, count: int) -> None:
        self.ask(calls.RequestShares(cluster_id, [self.hint(cluster_id, count, ONE)]))

    def hint(self, cluster_id: str, count: int, demand: Resources) -> calls.Hint:
        return calls.Hint(ClassSpec((ANY,), cluster=cluster_id).encode(), demand.to_dict(), count)

    # Workers

    def run(self, cluster_id: str, node_id: str, cpus: float = 1) -> dict[str, float]:
        """Something of a cluster starts on a node. Return what it holds."""
        held = {share_token(cluster_id, "CPU"): cpus, "CPU": cpus}
        self.port.take(node_id, held)
        return held

    def who(self, worker_id: str, cluster_id: str, node_id: str, cpus: float = 1, *, again: bool = False) -> calls.Who:
        """Return a worker that begins to say something; where it says it again, the turn is that of the first time."""
        if not again or worker_id not in self._turns:
            self._turns[worker_id] = float(next(self._asks))
        return calls.Who(worker_id, cluster_id, node_id, {"CPU": cpus} if cpus else {}, self._turns[worker_id])

    def lend(self, worker_id: str, cluster_id: str, node_id: str) -> None:
        self.ask(calls.Lend(self.who(worker_id, cluster_id, node_id)))

    def reclaim(self, worker_id: str, cluster_id: str, node_id: str, *, again: bool = False) -> str | None:
        answer: str | None = self.ask(calls.Reclaim(self.who(worker_id, cluster_id, node_id, again=again), again))
        return answer

    def enter(
        self, worker_id: str, cluster_id: str, node_id: str, *, cpus: float = 1, may_go: bool = True, again: bool = False
    ) -> str | None:
        answer: str | None = self.ask(
            calls.Enter(self.who(worker_id, cluster_id, node_id, cpus, again=again), again, may_go, [])
        )
        return answer

    # Placement groups

    def offer(self, cluster_id: str | None, *bundles: dict[str, float], strategy: str = "PACK", ask: str = "group") -> Offer:
        """Return what is offered to a placement group; where room has yet to be made for it, after a moment."""
        call = self.offering(cluster_id, *bundles, strategy=strategy, ask=ask)
        answer = self.ask(call)
        if answer is None:
            self.time += OFFER_SECONDS + 0.01
            answer = self.ask(call)
        return Offer(**answer)

    def offering(
        self, cluster_id: str | None, *bundles: dict[str, float], strategy: str = "PACK", ask: str = "group"
    ) -> calls.OfferGroup:
        self.job("j1")
        request = rewrite_group(list(bundles or ({"CPU": 1},)), strategy, {}, Defaults())
        return calls.OfferGroup(ask, encode_group(replace(request, cluster=cluster_id)), "j1")

    def reserve(self, offer: Offer, group_id: str, cpus: float = 1) -> list[tuple[str, dict[str, float]]]:
        """As GCS would, for a group whose bundles are all of one size. Return what it holds."""
        held = [(node, {token: cpus, "CPU": cpus}) for token, node in offer.shares().items()]
        for node, amounts in held:
            self.port.take(node, amounts)
        self.group(group_id, RUNNING, *(amounts for _, amounts in held))
        return held

    def group(self, group_id: str, state: str, *shapes: dict[str, float], detail: str = "", name: str = "") -> None:
        self.port.submit(Work(GROUP, group_id, name, "j1", state, detail, shapes))

    def confirm(self, share_id: str, group_id: str) -> None:
        self.ask(calls.ConfirmGroup(share_id, group_id))

    def release(self, share_or_group: str, ask: str = "") -> bool:
        return bool(self.ask(calls.ReleaseGroup(share_or_group, ask)))

    def remove_group(self, group_id: str, held: list[tuple[str, dict[str, float]]]) -> None:
        """As Ray does; nobody tells the controller."""
        for node, amounts in held:
            self.port.give(node, amounts)
        self.group(group_id, ENDED)

    def group_shares(self) -> list[str]:
        """Return the shares of placement groups that are remembered."""
        return [each for each in self.clusters() if owner_of(each).group is not None]

    # What stands on the nodes

    def view(self, node_id: str) -> NodeView:
        """Return what a node has now, however late it reports."""
        return next(view for view in MemoryPort.observe(self.port).nodes if view.node_id == node_id)

    def views(self) -> tuple[NodeView, ...]:
        return MemoryPort.observe(self.port).nodes

    def tokens(self, cluster_id: str, name: str = "CPU") -> dict[str, float]:
        """Return the totals of a cluster's share, by node."""
        token = share_token(cluster_id, name)
        return {view.node_id: view.total[token] for view in self.views() if view.total.get(token)}

    def free(self, cluster_id: str) -> float:
        """Return what is free of a cluster's share of all nodes."""
        token = share_token(cluster_id, "CPU")
        return sum(view.available.get(token, 0.0) for view in self.views())

    def standing(self, account: str | None) -> float:
        """Return all tokens of a placement group's share on all nodes, with what is held."""
        found = [(amount, share_in(name)) for view in self.views() for name, amount in view.total.items()]
        return sum(amount for amount, share in found if share is not None and share.owner.account == account)

    def offered_on(self, token: str) -> set[str]:
        """Return the nodes on which a token is free."""
        return {view.node_id for view in self.views() if view.available.get(token)}

    def held(self, node_id: str, token: str) -> float:
        """Return how much of a token the controller's own holds take on a node."""
        return sum(amounts.get(token, 0.0) for where, amounts in self.port.holds.values() if where == node_id)

    def holds(self) -> list[tuple[str, dict[str, float]]]:
        return [(node, dict(amounts)) for node, amounts in self.port.holds.values()]

    def sums(self) -> dict[str, float]:
        """Return all shares of each node together, without what is held."""
        return {
            view.node_id: sum(
                amount - self.held(view.node_id, name)
                for name, amount in view.total.items()
                if (share := share_in(name)) is not None and not share.owner.is_part
            )
            for view in self.views()
        }

    def fence(self, node_id: str) -> set[str]:
        """Return the clusters of which nothing starts on a node without admission."""
        return set(read_fence(self.port.get(fence_key(node_id))).full)

    def fenced_classes(self, node_id: str) -> set[str]:
        return set(read_fence(self.port.get(fence_key(node_id))).classes)

    def set_aside(self) -> list[tuple[str, str]]:
        """Return what the status says is set aside: kind and id."""
        return [(row["kind"], row["id"]) for row in self.ask(calls.GetStatus())["set_aside"]]
