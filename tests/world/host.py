"""Who hosts the controller: the only file that knows its interface.

It delivers reports, feeds and calls, makes the rounds, performs effects in any order and with any delay, and lets the
controller die between any two of them. What a dead one had begun has happened or not; a new one is made from what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.world.brain import ASIDE, Brain, Make, Pending, Recovered
from tests.world.failure import Failure
from tests.world.faults import CALLS_DOUBLE, CALLS_SLOW, EFFECTS_FAIL, EFFECTS_SLOW, FEEDS_DOUBLE, FEEDS_LATE, FEEDS_LOST
from tests.world.keeper import Keeper
from tests.world.port import WorldPort

from remora.controller.answering import Reply
from remora.controller.effects import Done, Effect, Find, FindAll, FindEnded, LookAtMachines, ReadNodeTypes, perform
from remora.errors import InvariantError, RemoraError
from remora.port.contract import Observation, Work
from remora.wire.calls import (
    Call,
    CreateCluster,
    DropGroup,
    Enter,
    Explain,
    FindNode,
    GetClusters,
    GetStatus,
    GetTree,
    LabelNode,
    MakeGroup,
    OfferGroup,
    Place,
    Reclaim,
    TaintNode,
)
from remora.wire.fences import RENEW_SECONDS

if TYPE_CHECKING:
    from tests.world.processes import Process
    from tests.world.world import World

FULL_SECONDS = 1.0
UNSETTLED_SECONDS = 0.1
LEAST_SECONDS = 0.05
_THOUGHT_SECONDS = 1e-7
RESUBSCRIBE_SECONDS = 5.0
"""So long after a feed lost something it is known to have been broken, and everything is looked at."""


_FRESH = (Place, OfferGroup, CreateCluster, GetTree)
_NEWEST = (FindNode, LabelNode, TaintNode, GetStatus, Explain, GetClusters)
_READS = (Find, FindAll, FindEnded, LookAtMachines, ReadNodeTypes)
_FRESH_SECONDS = 0.2
"""Before calls like these the cluster is looked at, as ``controller.engine`` does."""


class Message:
    """A call on its way. ``heard`` once its answer has arrived; it is sent again to a controller that comes after one that died
    over it."""

    __slots__ = ("answered", "call", "deadline", "heard", "name", "number", "sender", "when_heard")

    def __init__(self, number: int, name: str, sender: Process, call: Call, answered: Callable[..., None] | None) -> None:
        self.number = number
        self.name = name
        self.sender = sender
        self.call = call
        self.answered = answered
        self.heard = False
        self.deadline = 0.0
        self.when_heard: list[Callable[[], None]] = []


class Host:
    def __init__(self, world: World, make: Make = Recovered) -> None:
        self.world = world
        self.port = WorldPort(world)
        self._make = make
        self.brain: Brain | None = None
        self.life = 0  # how many controllers there were
        self._sent = 0
        self._open: list[tuple[Message, Pending]] = []
        self._unanswered: dict[int, Message] = {}
        self._in_flight: dict[str, Effect] = {}
        self._round: Any = None
        self._round_at = 0.0
        self._rounded_at = self._reported_at = 0.0
        self._dies_after: tuple[int, bool] | None = None
        self._dies_over = ""  # what kind of call it answers last
        self._keeper = Keeper(world, 0)
        self._thought = 0.0
        self.deaths = 0

    # Its life

    def start(self) -> None:
        self.life += 1
        self.world.note("the controller starts")
        self.brain = self._guarded(self._make, self.port, self._clock)
        self.survive()
        self._keeper = Keeper(self.world, self.life)
        self._validate()
        for message in list(self._unanswered.values()):
            if message.sender.alive:
                self._deliver(message)
            else:
                del self._unanswered[message.number]
        self._keeper.resume()
        self._look_soon()
        self._pump()

    def inside(self, call: Call, answered: Callable[..., None]) -> None:
        """Something beside the controller asks it."""
        message = self._message(self._keeper, call, answered)
        self._arrive(message, self.life)

    def die(self) -> None:
        """Whatever it was about to do has been done or not."""
        if self.brain is None:
            return
        self.world.note("the controller dies")
        self.brain = None
        self._keeper.die()
        self._unanswered = {number: each for number, each in self._unanswered.items() if each.sender is not self._keeper}
        self.deaths += 1
        self.life += 1
        self._open.clear()
        self._in_flight.clear()
        self.world.timeline.cancel(self._round)
        self._round = None
        self.world.after(self.world.chance.between("controller restarts", 0.3, 2.0), self.start)

    def _die_in(self, life: int) -> None:
        if life == self.life:
            self.die()

    def die_after(self, effects: int, *, told: bool, answers: str = "") -> None:
        if answers:
            self._dies_over = answers
        elif effects:
            self._dies_after = (effects, told)
        else:
            self.die()

    def _clock(self) -> float:
        """Time goes on while the controller thinks."""
        self._thought = self._thought + _THOUGHT_SECONDS if self._thought >= self.world.now else self.world.now
        return self._thought

    def survive(self) -> None:
        """It does not die any more."""
        self._dies_after, self._dies_over = None, ""

    # What it hears

    def send(self, sender: Process, call: Call, answered: Callable[..., None] | None = None) -> Message:
        message = self._message(sender, call, answered)
        self._deliver(message)
        if self.world.is_bad(CALLS_DOUBLE) and self.world.chance.happens(f"twice {message.name}", 0.5):
            self._deliver(message, again=True)
        return message

    def _message(self, sender: Process, call: Call, answered: Callable[..., None] | None) -> Message:
        self._sent += 1
        message = Message(self._sent, f"{sender.worker_id} {type(call).__name__}", sender, call, answered)
        self._unanswered[message.number] = message
        self.world.note("{} sends {}", sender.worker_id, call)
        return message

    def _deliver(self, message: Message, *, again: bool = False) -> None:
        """``again``: the first answer was lost, and it is sent once more after a while."""
        slow = again or self.world.is_bad(CALLS_SLOW)
        wait = self.world.chance.between(f"call {message.name}", 0.0005, 0.5 if slow else 0.004)
        self.world.after(wait, self._arrive, message, self.life)

    def _arrive(self, message: Message, life: int) -> None:
        if self.brain is None or life != self.life:
            return  # it is sent again when there is a new one
        if not message.sender.alive and self.world.chance.happens(f"dead {message.name}", 0.5):
            return
        if isinstance(message.call, (MakeGroup, DropGroup)):
            self._keeper.answer(message.call, lambda value, error: self._reply(message, Reply(value, error)))
            return
        if isinstance(message.call, _NEWEST):
            self._observe()
            self._guarded(self.brain.round)
        elif isinstance(message.call, _FRESH) and self.world.now - self._reported_at > _FRESH_SECONDS:
            self._observe()
        pending = self._guarded(self.brain.begin, message.call)
        message.deadline = self.world.now + RENEW_SECONDS
        self._open.append((message, pending))
        self._validate()
        self._pump()
        if any(message is each for each, _ in self._open):
            self._look_soon()  # its answer may depend on what is decided next

    def feed(self, work: Work | None) -> None:
        """GCS publishes something."""
        what = work.work_id if work is not None else "everything"
        chance = self.world.chance
        if self.world.is_bad(FEEDS_LOST) and chance.happens(f"lost {what}", 0.6):
            self.world.note("the feed loses {}", what)
            self.world.after(RESUBSCRIBE_SECONDS, self._hear, None, self.life)
            return
        late = 1.0 if self.world.is_bad(FEEDS_LATE) else 0.03
        self.world.after(chance.between(f"feed {what}", 0.001, late), self._hear, work, self.life)
        if self.world.is_bad(FEEDS_DOUBLE):
            self.world.after(chance.between(f"feed {what}", 0.001, 0.5), self._hear, work, self.life)

    def _hear(self, work: Work | None, life: int) -> None:
        if self.brain is not None and life == self.life:
            if self._guarded(self.brain.tell, work):
                self._look_soon()
            self._validate()
            self._pump()

    # Rounds

    def _look_soon(self) -> None:
        self._look_at(max(self._rounded_at + LEAST_SECONDS, self.world.now))

    def _look_at(self, when: float) -> None:
        if self._round is None or self._round[2] is None or when < self._round_at:
            self.world.timeline.cancel(self._round)
            self._round_at = when
            self._round = self.world.timeline.at(when, self._fetch)

    def _fetch(self) -> None:
        """A report is fetched, and decoded, while other things go on."""
        self._round = None
        self._rounded_at = self.world.now
        seen = self.port.observe()
        self.world.after(self.world.chance.between("fetch", 0.001, 0.03), self._report, seen, self.life)

    def _report(self, seen: Observation, life: int) -> None:
        if self.brain is None or life != self.life:
            return
        self._guarded(self.brain.report, seen)
        self._reported_at = self.world.now
        self._guarded(self.brain.round)
        self._validate()
        self._pump()
        if self.brain is not None:
            self._look_at(self.world.now + (FULL_SECONDS * self.world.patience if self.brain.settled else self._unsettled()))

    def _unsettled(self) -> float:
        """Ten times a second; less often where nothing happens for long."""
        return min(UNSETTLED_SECONDS * self.world.patience, FULL_SECONDS)

    def _observe(self) -> None:
        assert self.brain is not None
        self._guarded(self.brain.report, self.port.observe())
        self._reported_at = self.world.now

    # What it wants done

    def _pump(self) -> None:
        self._poll()
        if self.brain is None:
            return
        for effect in self._guarded(self.brain.plan):
            if effect.lane in self._in_flight:
                raise Failure("two effects of one lane are in flight", f"{self._in_flight[effect.lane]} and {effect}")
            self._in_flight[effect.lane] = effect
            slow = 0.5 if self.world.is_bad(EFFECTS_SLOW) else 0.005
            self.world.after(self.world.chance.between(f"effect {effect.lane}", 0.0005, slow), self._perform, effect, self.life)

    def _perform(self, effect: Effect, life: int) -> None:
        is_read = isinstance(effect, _READS)
        if life != self.life:
            # Its controller has died since: it arrived, or it did not.
            if not is_read and self.world.chance.happens(f"applied {effect.lane}", 0.5) and life == self.life - 1:
                self.world.note("of a dead controller: {}", effect)
                perform(self.port, effect)
            return
        if self.world.is_bad(EFFECTS_FAIL) and self.world.chance.happens(f"fails {effect.lane}", 0.2):
            if self.world.chance.happens(f"fails {effect.lane}", 0.5):
                perform(self.port, effect)
            done = Done(effect, error="the network failed")
        else:
            done = perform(self.port, effect)
        if not is_read:
            self.world.note("{} -> {}", effect, done.error or done.answer)
        dies = False
        if self._dies_after is not None and not is_read:
            left, told = self._dies_after
            self._dies_after = (left - 1, told)
            dies = left <= 1
            if dies and not told:
                self.die()
                return
        self.world.after(self.world.chance.between(f"done {effect.lane}", 0.0002, 0.003), self._done, done, self.life, dies)

    def _done(self, done: Done, life: int, dies: bool) -> None:
        if self.brain is None or life != self.life:
            return
        self._in_flight.pop(done.effect.lane, None)
        self._guarded(self.brain.done, done)
        if dies:
            self.die()
            return
        self._validate()
        self._pump()

    def _poll(self) -> None:
        still: list[tuple[Message, Pending]] = []
        waiting, self._open = self._open, []
        for message, pending in waiting:
            if message.heard:
                continue
            answer = self._guarded(pending.poll)
            if answer is None and isinstance(message.call, (Enter, Reclaim)) and self.world.now >= message.deadline:
                answer = Reply(None)
            if answer is None:
                still.append((message, pending))
            else:
                self._heard(message, answer)
                self._reply(message, answer)
        self._open = still + self._open
        if any(isinstance(message.call, (Enter, Reclaim)) for message, _ in self._open):
            self._look_at(self.world.now + self._unsettled())

    def _reply(self, message: Message, reply: Reply) -> None:
        wait = self.world.chance.between(f"answer {message.name}", 0.0005, 0.003)
        self.world.after(wait, self._answer, message, reply, self.life)
        if self._dies_over == type(message.call).__name__:
            self.survive()
            self.world.after(0.0, self._die_in, self.life)

    def _answer(self, message: Message, answer: Reply, life: int) -> None:
        if message.heard or (life != self.life and self.world.chance.happens(f"lost {message.name}", 0.5)):
            return  # it is sent again, to the next controller
        message.heard = True
        self._unanswered.pop(message.number, None)
        for heard in message.when_heard:
            heard()
        if not message.sender.alive:
            return
        self.world.checks.answered(message.sender, message.call, answer)
        if message.answered is not None:
            told = answer.value if answer.error is None else answer.error
            self.world.note("{} is answered {}", message.sender.worker_id, told)
            message.answered(answer.value, answer.error)

    # What may not happen

    def _heard(self, message: Message, reply: Reply) -> None:
        """Whatever a caller is told is meant for it."""
        if reply.error is not None and not isinstance(reply.error, RemoraError):
            error = reply.error
            raise Failure("a call fails inside the controller", f"{message.call}: {type(error).__name__}: {error}") from error

    def _validate(self) -> None:
        if self.brain is not None:
            self._guarded(self.brain.validate)

    def _guarded(self, method: Callable[..., Any], *args: Any) -> Any:
        """No exception comes out of a controller."""
        ASIDE.records.clear()
        try:
            found = method(*args)
            ASIDE.raise_first()
            return found
        except Failure:
            raise
        except InvariantError as error:
            raise Failure("the controller contradicts itself", str(error)) from error
        except Exception as error:
            raise Failure("the controller raised an exception", f"{type(error).__name__}: {error}") from error
