"""Nothing starts beyond a maximum: not with late reports, workers that wait and come back, fences read late, or crashes.

Raylets, workers and reports as they are in Ray, at their worst: a raylet gives what comes back to the next in its queue at
once, what is in use is told late, and a worker trusts an old fence for as long as it may. The controller is the real one, asked
with its own calls, and is killed between any two of its effects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.stepping import Stepping
from tests.unit.controller.worlds import Killed, MortalPort, Offer, World

from remora.controller.answering import Pending
from remora.errors import InvalidVirtualClusterError
from remora.port.contract import ENDED, GROUP, WORKER, NodeView, Observation, Work
from remora.port.contract import RUNNING as SEAM_RUNNING
from remora.port.contract import WAITING as SEAM_WAITING
from remora.wire import calls
from remora.wire.fences import ELSEWHERE, FENCE_SECONDS, RENEW_SECONDS, Fence, fence_key, read_fence
from remora.wire.owners import owner_of
from remora.wire.tokens import share_token

CPUS = 3
NODES = ("n1", "n2")
MOST = 3
SELDOM = st.integers(0, 4)

RUNNING, WAITING, BACK, STARTING, BOUND, SENT_ON = "running", "waiting", "back", "starting", "bound", "sent on"
CREATED, RESERVED = "created", "reserved"


class LatePort(MortalPort):
    """Resizes are answered by the node itself; what is in use is known when the node has reported it."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: dict[str, NodeView] = {}

    def observe(self) -> Observation:
        for node_id in self._nodes.keys() - self.reported.keys():
            self.report(node_id)
        return Observation(tuple(self.reported.values()))

    def report(self, node_id: str) -> None:
        self.reported[node_id] = self._nodes[node_id]

    def let_go(self, name: str) -> None:
        """A hold, or a placement group."""
        super().let_go(name)
        for group in [work for work in self._work if work.work_id == name]:
            self.submit(replace(group, state=ENDED))

    def submit(self, work: Work) -> None:
        """That a worker has ended is known to whoever asks, and told when somebody tells it."""
        wakes = self._wakes
        self._wakes = [] if work.kind == WORKER else wakes
        super().submit(work)
        self._wakes = wakes

    def take(self, node_id: str, amounts: Mapping[str, float]) -> None:
        """Work that came back may have left less than nothing of a CPU."""
        for name, amount in amounts.items():
            self.change(node_id, name, -amount)

    def available(self, node_id: str, name: str) -> float:
        return self._nodes[node_id].available.get(name, 0.0)

    def change(self, node_id: str, name: str, amount: float) -> None:
        node = self._nodes[node_id]
        self._nodes[node_id] = replace(node, available={**node.available, name: node.available.get(name, 0.0) + amount})


@dataclass
class Task:
    worker: str
    cluster: str
    node: str
    state: str
    is_actor: bool = False
    is_done: bool = False
    group: Task | None = None  # that has reserved what it uses
    orphans: list[Task] = field(default_factory=list)  # whom it found dead on its node
    share: str = ""  # of a placement group, which was created in GCS, and reserved when that had room for it

    @property
    def token(self) -> str:
        return owner_of(self.share)._replace(bundle=0).token("CPU") if self.share else share_token(self.cluster, "CPU")


@dataclass
class VC:
    most: float
    parent: str | None
    queued: int = 0
    closed: bool = False
    tasks: list[Task] = field(default_factory=list)


class Starts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.port = LatePort()
        self.world = World(CPUS, NODES, self.port, random.Random(0))
        self.vcs: dict[str, VC] = {}
        self.fences: dict[str, tuple[float, Fence]] = {}
        self.renewed_at = self.world.time
        self.made = 0
        self.offers: dict[str, tuple[str, Stepping, Pending]] = {}  # by group: in which cluster, and the same
        self.questions: dict[str, tuple[Stepping, Pending]] = {}  # by worker: to which controller, and what it will say
        self.said: list[tuple[Stepping, calls.Call]] = []  # by workers, lately, and to which controller
        self.dead: list[Task] = []  # and nobody was told
        self.idle_markers: list[Task] = []  # of the dead: whoever starts on their node finds them
        self.is_slow = False

    @initialize(least=st.integers(0, 1), more=st.integers(0, 1), queued=st.integers(5, 20))
    def begin(self, least: int, more: int, queued: int) -> None:
        """With something to do: most of what can go wrong needs a queue."""
        self.create(least, more, 0)
        self.submit(0, queued)

    # What users do

    @precondition(lambda self: len(self.living()) < MOST)
    @rule(least=st.integers(0, 2), more=st.integers(0, 2), nested=st.integers(0, 3))
    def create(self, least: int, more: int, nested: int) -> None:
        ready = [vc for vc in self.vcs if not self.vcs[vc].closed and self.world.state(vc) == "READY"]
        parent = ready[nested] if nested < len(ready) else None
        spec: dict[str, Any] = {"flexible_resource_min": {"CPU": least}, "flexible_resource_max": {"CPU": max(least + more, 1)}}
        try:
            made = self.world.create(parent, "j1", 0, **spec)
        except InvalidVirtualClusterError:
            return
        self.vcs[made] = VC(max(least + more, 1), parent)

    @precondition(lambda self: self.living())
    @rule(which=st.integers(0, 9), count=st.integers(1, 9))
    def submit(self, which: int, count: int) -> None:
        vc = self.living()[which % len(self.living())]
        self.vcs[vc].queued += count
        self.world.want(vc, count)

    @precondition(lambda self: self.living())
    @rule(which=st.integers(0, 9), seldom=SELDOM)
    def close(self, which: int, seldom: int) -> None:
        if seldom:
            return
        vc = self.living()[which % len(self.living())]
        for each in self.within(vc):
            self.vcs[each].closed = True
        self.world.close(vc)

    @precondition(lambda self: self.living())
    @rule(which=st.integers(0, 9))
    def submit_group(self, which: int) -> None:
        """A placement group of one bundle. It has no guard: once it is created in GCS it reserves what it gets. But what runs
        in it has one."""
        vc = self.living()[which % len(self.living())]
        self.made += 1
        self.offers[f"g{self.made}"] = vc, self.world.host, self.world.host.begin(self.offering(f"g{self.made}", vc))
        self.world.host.pump()
        self.look_for_offers()

    def offering(self, group_id: str, vc: str) -> calls.OfferGroup:
        return self.world.offering(vc, {"CPU": 1}, ask=group_id)

    def look_for_offers(self) -> None:
        """Where there is room for a group, but it has to be made, the answer comes later."""
        for group_id, (vc, host, pending) in list(self.offers.items()):
            if host is not self.world.host:  # it was killed, and is asked again
                host = self.world.host
                pending = host.begin(self.offering(group_id, vc))
                self.offers[group_id] = vc, host, pending
            reply = pending.poll()
            if reply is not None:
                del self.offers[group_id]
                if reply.error is None and reply.value["share_id"] is not None:  # or its cluster is gone
                    offer = Offer(**reply.value)
                    group = Task(group_id, vc, offer.places()[0], CREATED, share=str(offer.share_id))
                    self.vcs[vc].tasks.append(group)
                    self.tell_gcs(group, SEAM_WAITING)

    @precondition(lambda self: self.in_state(CREATED))
    @rule(which=st.integers(0, 9))
    def gcs_tries(self, which: int) -> None:
        group = self.pick(which, CREATED)
        if self.has_room(group.node, group.token):
            self.reserve(group)

    @precondition(lambda self: self.in_state(CREATED))
    @rule(which=st.integers(0, 9))
    def give_up_group(self, which: int) -> None:
        """GCS had no room for it for a second: its creator removes it, and says so."""
        group = self.pick(which, CREATED)
        self.vcs[group.cluster].tasks.remove(group)
        self.tell_gcs(group, ENDED)
        self.world.release(group.share, group.worker)
        self.start()

    @precondition(lambda self: self.in_state(CREATED))
    @rule(which=st.integers(0, 9), seldom=SELDOM)
    def lose_creator(self, which: int, seldom: int) -> None:
        """Whoever created a group was killed before it said anything: the group stays as it is."""
        if not seldom:
            self.pick(which, CREATED).is_done = True

    @precondition(lambda self: self.in_state(RESERVED))
    @rule(which=st.integers(0, 9))
    def work_in_group(self, which: int) -> None:
        group = self.pick(which, RESERVED)
        if not self.works_in(group):
            self.made += 1
            task = Task(f"w{self.made}", group.cluster, group.node, RUNNING, is_actor=True, group=group)
            self.vcs[group.cluster].tasks.append(task)
            self.pass_guard(task)

    @precondition(lambda self: self.in_state(RESERVED))
    @rule(which=st.integers(0, 9), is_told=st.booleans())
    def remove_group(self, which: int, is_told: bool) -> None:
        group = self.pick(which, RESERVED)
        if not self.works_in(group):
            self.leave(group)
            self.port.change(group.node, "CPU", 1)
            self.tell_gcs(group, ENDED)
            if is_told:
                self.world.release(group.worker)
            self.start()

    # What nodes and workers do

    @rule(seldom=SELDOM)
    def raylets_are_slow(self, seldom: int) -> None:
        self.is_slow = not self.is_slow and not seldom

    def start(self) -> None:
        """Who has leave goes on; raylets start what is queued and has all that it needs."""
        for task in self.in_state(BACK, STARTING, BOUND):
            self.look_for_answer(task)
        self.look_for_offers()
        for group in self.in_state(CREATED):
            if self.port.find(group.worker)[0].state == ENDED:
                self.vcs[group.cluster].tasks.remove(group)  # by the controller, because nobody knew of it
        for node in () if self.is_slow else NODES:
            for name, vc in self.vcs.items():
                while vc.queued and self.has_room(node, share_token(name, "CPU")):
                    self.made += 1
                    task = Task(f"w{self.made}", name, node, RUNNING, self.made % 4 == 0)
                    self.take(task)
                    vc.tasks.append(task)
                    vc.queued -= 1
                    self.pass_guard(task)

    def has_room(self, node: str, token: str) -> bool:
        return min(self.port.available(node, each) for each in (token, "CPU")) >= 1

    def take(self, task: Task) -> None:
        self.port.change(task.node, task.token, -1)
        self.port.change(task.node, "CPU", -1)

    def reserve(self, group: Task) -> None:
        """GCS says so, and its creator tells the controller, if it lives."""
        self.take(group)
        group.state = RESERVED
        self.tell_gcs(group, SEAM_RUNNING)
        self.has_started(group)
        if not group.is_done:
            self.world.confirm(group.share, group.worker)

    def tell_gcs(self, group: Task, state: str) -> None:
        self.port.submit(Work(GROUP, group.worker, "", "j1", state, "", ({group.token: 1.0},)))

    def pass_guard(self, task: Task) -> None:
        found = [each for each in self.idle_markers if each.node == task.node]
        if task.cluster not in self.fence(task.node).full and not found:
            self.has_started(task)
            return
        if task.group is None:
            self.port.change(task.node, "CPU", 1)  # in line it waits in ray.get
        task.state = BOUND if task.is_actor else STARTING
        task.orphans = found
        self.say(task)

    @precondition(lambda self: self.in_state(RUNNING))
    @rule(which=st.integers(0, 9), more=st.booleans())
    def end(self, which: int, more: bool) -> None:
        for _ in range(1 + more):
            if self.in_state(RUNNING):
                task = self.pick(which, RUNNING)
                if task.group is None:
                    self.leave(task)
                    self.port.change(task.node, "CPU", 1)
                else:
                    self.vcs[task.cluster].tasks.remove(task)
                self.start()

    @precondition(lambda self: self.in_state(RUNNING))
    @rule(which=st.integers(0, 9))
    def wait(self, which: int) -> None:
        task = self.pick(which, RUNNING)
        if not task.is_actor:
            task.state = WAITING
            self.port.change(task.node, "CPU", 1)
            self.say(task)
            self.start()

    @precondition(lambda self: self.in_state(WAITING))
    @rule(which=st.integers(0, 9))
    def come_back(self, which: int) -> None:
        task = self.pick(which, WAITING)
        task.state = BACK
        self.say(task)

    @precondition(lambda self: self.in_state(WAITING, SENT_ON))
    @rule(which=st.integers(0, 9), seldom=SELDOM)
    def kill(self, which: int, seldom: int) -> None:
        """Its raylet gives its token to whoever is next, who finds on the node that it was not given back in order."""
        if not seldom:
            task = self.pick(which, WAITING, SENT_ON)
            self.dead.append(task)
            self.idle_markers.append(task)
            self.port.submit(Work(WORKER, task.worker, "", "", ENDED, "", ()))
            self.leave(task)
            self.start()

    @precondition(lambda self: self.dead)
    @rule(which=st.integers(0, 9), is_heard=st.booleans())
    def death_is_told(self, which: int, is_heard: bool) -> None:
        """After that, what it said may still be heard; of what it did not say, nothing."""
        task = self.dead.pop(which % len(self.dead))
        self.world.host.controller.tell(Work(WORKER, task.worker, "", "", ENDED, "", ()))
        self.world.host.pump()
        if is_heard:
            self.say(task)

    @precondition(lambda self: self.in_state(SENT_ON))
    @rule(which=st.integers(0, 9))
    def done_elsewhere(self, which: int) -> None:
        """It has the result, and asks for its share before it gives its token to whoever is next."""
        task = self.pick(which, SENT_ON)
        task.state, task.is_done = BACK, True
        self.say(task)

    # What goes on around them

    @rule(seconds=st.sampled_from([0.05, 0.1, 0.2, 0.4, 1.5]), late=st.sampled_from(["", *NODES]))
    def time_goes_by(self, seconds: float, late: str) -> None:
        self.world.time += seconds
        for node in NODES:
            if node != late:
                self.port.report(node)
        if self.world.time - self.renewed_at > RENEW_SECONDS:
            self.renew()
        self.world.host.round()

    @precondition(lambda self: self.said)
    @rule(which=st.integers(0, 30), seldom=SELDOM)
    def message_arrives_again(self, which: int, seldom: int) -> None:
        """What a worker said a while ago, as Ray sends a call again whose answer was lost. Nobody waits for the answer.

        What a controller before this one has heard is not sent again: workers wait until it was heard."""
        host, call = self.said[which % len(self.said)]
        if not seldom and host is self.world.host:
            self.world.ask(call)

    @rule(seldom=SELDOM)
    def controller_is_killed(self, seldom: int) -> None:
        """Another controller comes, and what it reads first may be old."""
        if not seldom:
            self.world.restart()

    @rule(seldom=SELDOM, after=st.integers(0, 5))
    def controller_is_killed_in_the_middle(self, seldom: int, after: int) -> None:
        """Of what it had planned, some is done."""
        if not seldom:
            self.port.lives = after
            try:
                self.world.host.round()
            except Killed:
                self.world.restart()
            self.port.lives = None

    # The rest

    def fence(self, node: str) -> Fence:
        read_at, fence = self.fences.get(node, (-1.0, Fence()))
        if self.world.time - read_at >= FENCE_SECONDS:
            fence = read_fence(self.port.get(fence_key(node)))
            self.fences[node] = self.world.time, fence
        return fence

    def say(self, task: Task, *, again: bool = False) -> None:
        """A worker says what it waits for. Of those that wait for an answer the question is kept."""
        who = self.world.who(task.worker, task.cluster, task.node, 1 if task.group is None else 0, again=again)
        host = self.world.host
        if task.state == WAITING:
            self.hear(calls.Lend(who))
            host.pump()
        elif task.state == SENT_ON:
            self.hear(calls.SentOn(who))
            host.pump()
        elif task.state == BACK:
            self.questions[task.worker] = host, self.hear(calls.Reclaim(who, again))
            host.pump()
        else:
            dead = [each.worker for each in task.orphans]
            self.questions[task.worker] = host, self.hear(calls.Enter(who, again, task.state == STARTING, dead))

    def hear(self, call: calls.Call) -> Pending:
        self.said = [*self.said[-30:], (self.world.host, call)]
        return self.world.host.begin(call)

    def look_for_answer(self, task: Task) -> None:
        host, pending = self.questions.pop(task.worker)
        if host is not self.world.host:  # it was killed, and is asked again
            self.say(task, again=True)
            return
        reply = pending.poll()
        if reply is None:
            self.questions[task.worker] = host, pending
        else:
            self.answered(task, reply.result())

    def answered(self, task: Task, answer: str | None) -> None:
        if answer is not None and task.orphans:
            self.fences.pop(task.node, None)  # it is read again before these are forgotten
            self.fence(task.node)
            self.idle_markers = [each for each in self.idle_markers if each not in task.orphans]
            task.orphans = []
        if answer == ELSEWHERE:
            task.state = SENT_ON
            self.vcs[task.cluster].queued += 1
        elif answer is not None and task.is_done:
            self.leave(task)
        elif answer is not None:
            is_new = task.state != BACK
            task.state = RUNNING
            self.port.change(task.node, "CPU", -1 if task.group is None else 0)
            if is_new:
                self.has_started(task)

    def renew(self) -> None:
        self.renewed_at = self.world.time
        for task in self.in_state(WAITING, BACK, STARTING, BOUND, SENT_ON):
            self.say(task, again=True)

    def leave(self, task: Task) -> None:
        self.vcs[task.cluster].tasks.remove(task)
        self.port.change(task.node, task.token, 1)

    def living(self) -> list[str]:
        known = set(self.world.clusters())
        return [vc for vc, each in self.vcs.items() if not each.closed and vc in known]

    def in_state(self, *states: str) -> list[Task]:
        return [task for vc in self.vcs.values() for task in vc.tasks if task.state in states]

    def pick(self, which: int, *states: str) -> Task:
        found = self.in_state(*states)
        return found[which % len(found)]

    def works_in(self, group: Task) -> bool:
        return any(task.group is group for task in self.vcs[group.cluster].tasks)

    def within(self, vc: str) -> Iterator[str]:
        yield vc
        for other, each in self.vcs.items():
            if each.parent == vc:
                yield from self.within(other)

    def has_started(self, task: Task) -> None:
        """The law. What runs in a group uses what that has reserved."""
        vc: str | None = task.cluster
        while vc is not None:
            everything = [each for inner in self.within(vc) for each in self.vcs[inner].tasks]
            running = [each for each in everything if each.state in (RUNNING, RESERVED) and each.group is None]
            assert len(running) <= self.vcs[vc].most, (vc, task, running)
            vc = self.vcs[vc].parent

    @invariant()
    def what_can_start_does(self) -> None:
        self.start()

    @invariant()
    def nobody_holds_what_was_never_given(self) -> None:
        tokens = {*(share_token(vc, "CPU") for vc in self.vcs), *(group.token for group in self.in_state(RESERVED))}
        assert all(self.port.available(node, token) >= 0 for token in tokens for node in NODES)


TestStarts = Starts.TestCase
TestStarts.settings = settings(max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("seed", range(24))
def test_a_long_life(seed: int) -> None:
    """Hypothesis finds short stories; these are long ones, in which queues are full most of the time."""
    chance = random.Random(seed)
    life = Starts()
    life.begin(chance.randint(0, 1), chance.randint(0, 1), 20)
    for _ in range(400):
        running, waiting, sent_on = life.in_state(RUNNING), life.in_state(WAITING), life.in_state(SENT_ON)
        steps: list[tuple[float, Callable[[], None]]] = [
            (6, lambda: life.time_goes_by(chance.choice([0.05, 0.1, 0.2, 0.4, 1.5]), chance.choice(["", *NODES]))),
            (4 * bool(running), lambda: life.end(chance.randint(0, 9), chance.random() < 0.3)),
            (4 * bool(running), lambda: life.wait(chance.randint(0, 9))),
            (4 * bool(waiting), lambda: life.come_back(chance.randint(0, 9))),
            (0.5 * bool(waiting or sent_on), lambda: life.kill(chance.randint(0, 9), 0)),
            (1 * bool(life.dead), lambda: life.death_is_told(chance.randint(0, 9), chance.random() < 0.5)),
            (2 * bool(sent_on), lambda: life.done_elsewhere(chance.randint(0, 9))),
            (1 * bool(life.living()), lambda: life.submit_group(chance.randint(0, 9))),
            (3 * bool(life.in_state(CREATED)), lambda: life.gcs_tries(chance.randint(0, 9))),
            (1 * bool(life.in_state(CREATED)), lambda: life.give_up_group(chance.randint(0, 9))),
            (0.3 * bool(life.in_state(CREATED)), lambda: life.lose_creator(chance.randint(0, 9), 0)),
            (3 * bool(life.in_state(RESERVED)), lambda: life.work_in_group(chance.randint(0, 9))),
            (1.5 * bool(life.in_state(RESERVED)), lambda: life.remove_group(chance.randint(0, 9), chance.random() < 0.7)),
            (1 * bool(life.living()), lambda: life.submit(chance.randint(0, 9), chance.randint(1, 6))),
            (
                0.6 * (len(life.living()) < MOST),
                lambda: life.create(chance.randint(0, 2), chance.randint(0, 2), chance.randint(0, 3)),
            ),
            (0.3 * bool(life.living()), lambda: life.close(chance.randint(0, 9), 0)),
            (1 * bool(life.said), lambda: life.message_arrives_again(chance.randint(0, 30), 0)),
            (0.3, lambda: life.controller_is_killed(0)),
            (0.3, lambda: life.controller_is_killed_in_the_middle(0, chance.randint(0, 5))),
            (0.5, lambda: life.raylets_are_slow(0)),
        ]
        weights, actions = zip(*steps, strict=True)
        chance.choices(actions, weights)[0]()
        life.start()
        life.nobody_holds_what_was_never_given()
