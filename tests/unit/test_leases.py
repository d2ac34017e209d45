"""Leases over the in-memory port: one decision each, steered by tokens, kept through restarts of everything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from remora import (
    InvalidStrategyError,
    actor_affinity,
    affinity,
    anti_affinity,
    label_in,
    label_not_in,
    object_affinity,
    task_affinity,
)
from remora.controller.core import Controller
from remora.controller.leases import CLAIM_SECONDS
from remora.controller.why import why_work
from remora.model.strategies import ACTOR, TASK
from remora.seam.memory import MemoryPort
from remora.seam.port import ENDED, RUNNING, WAITING, Work
from remora.wire.leases import LEASE_LABEL, REQUEST_LABEL, Ask, decode_ask, encode_ask
from remora.wire.options import Defaults, rewrite
from remora.wire.tokens import TAKEN, lease_token

LONELY: dict[str, Any] = {
    "labels": {"type": "cat"},
    "scheduling_strategy": actor_affinity(label_not_in("type", ["cat"], False)),
}
WITH_CAT: dict[str, Any] = {"scheduling_strategy": actor_affinity(label_in("type", ["cat"], False))}


def near(who: str, on_failover: str) -> dict[str, Any]:
    return {"scheduling_strategy": actor_affinity(label_in("who", [who], False), on_failover=on_failover)}


def ask(kind: str = ACTOR, cpus: float = 1, **options: Any) -> Ask:
    need = {"CPU": cpus} if cpus else {}
    return rewrite(options, Defaults()).ask(kind, need, need, "tests", [])


class World:
    """A cluster in memory, a controller, and the actors that were created with its leases."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.port = MemoryPort()
        for name in ("n1", "n2", "n3"):
            self.port.join(name, {"CPU": 4})
        self.restart()

    def restart(self) -> None:
        """The controller is killed and comes back."""
        self.controller = Controller(self.port, lambda: self.now)
        self.controller.round()
        self.port.watch(self.controller.inbox.append)

    def create(self, **options: Any) -> Work:
        asked = ask(**options)
        slot, _ = self.controller.place(asked, "01")
        self.steer()
        labels = {**dict(asked.labels), LEASE_LABEL: slot, REQUEST_LABEL: encode_ask(asked)}
        actor_id = f"actor-{len(self.port.find(None))}-{slot}"
        work = Work("actor", actor_id, "", "01", WAITING, "PENDING_CREATION", ({},), namespace="tests", labels=labels)
        self.port.submit(work)
        self.controller.leases.claim(slot, actor_id)
        return self.let_start(work)

    def steer(self) -> None:
        """What happens between rounds."""
        self.controller.hear()
        self.controller.steer_leases(self.controller.due())

    def let_start(self, work: Work) -> Work:
        """As Ray does: it starts where its token is, if it is anywhere."""
        self.controller.round()
        node_id = self.token_on(work)
        if node_id is None:
            return work
        return self.tell(replace(work, state=RUNNING, detail="ALIVE", node_ids=(node_id,)))

    def tell(self, work: Work) -> Work:
        self.port.submit(work)
        self.controller.round()
        return work

    def die(self, work: Work) -> None:
        self.tell(replace(work, state=ENDED, detail="DEAD", node_ids=()))

    def restarts(self, work: Work) -> Work:
        return self.let_start(self.tell(replace(work, state=WAITING, detail="RESTARTING", node_ids=())))

    def token_on(self, work: Work) -> str | None:
        token = lease_token(work.labels[LEASE_LABEL])
        found = [view.node_id for view in self.port.observe().nodes if view.total.get(token)]
        assert len(found) < 2, found
        return found[0] if found else None

    def tokens(self) -> list[str]:
        return [name for view in self.port.observe().nodes for name in view.total if "lease" in name]


@pytest.fixture
def world() -> World:
    return World()


def test_cats_spread_and_the_one_too_many_waits_with_the_reason_until_one_is_gone(world: World):
    cats = [world.create(**LONELY) for _ in range(4)]
    assert sorted(cat.node_ids for cat in cats) == [(), ("n1",), ("n2",), ("n3",)]
    left_over = next(cat for cat in cats if not cat.node_ids)
    assert why_work(world.controller, left_over)["reason"] == "0/3 nodes fit: 3 already host an actor with type in (cat)"
    gone = next(cat for cat in cats if cat.node_ids)
    world.die(gone)
    assert world.let_start(left_over).node_ids == gone.node_ids


def test_a_running_actor_holds_no_token_and_a_dead_one_leaves_no_name(world: World):
    cat = world.create(**LONELY)
    assert world.token_on(cat) is None
    world.die(cat)
    assert world.controller.leases.by_slot == {}
    world.now += 60  # nobody asks any more: what was in reserve goes too
    world.controller.round()
    assert world.tokens() == []


def test_while_leases_are_asked_for_each_node_has_a_few_slots_in_reserve_that_start_at_once(world: World):
    world.create(**LONELY)
    world.now += 1
    world.controller.round()
    standing = world.tokens()
    slot, node_id = world.controller.place(ask(**LONELY), "01")
    assert node_id is not None
    assert lease_token(slot) in standing


def test_between_rounds_tokens_come_with_the_decision_and_go_when_the_actor_runs_or_has_ended(world: World):
    dog = world.create(**WITH_CAT)
    asked = ask(**LONELY)
    slot, node_id = world.controller.place(asked, "01")
    world.steer()
    assert world.token_on(dog) == node_id  # it was decided because the cat was
    world.port.submit(replace(dog, state=RUNNING, detail="ALIVE", node_ids=("n1",)))
    assert lease_token(slot) in world.tokens()
    world.controller.leases.give_up(slot)
    world.steer()
    assert world.token_on(dog) is None
    assert lease_token(slot) not in world.tokens()


def test_a_decision_costs_the_same_however_many_leases_there_are(world: World):
    def one() -> None:
        slot, node_id = world.controller.place(asked, "01")
        world.controller.leases.claim(slot, f"actor-{slot}")
        work = Work("actor", f"actor-{slot}", "", "01", RUNNING, "ALIVE", ({},), node_ids=(str(node_id),))
        world.controller.leases.see(work)
        assert world.controller.due()
        world.controller.leases.see(replace(work, state=ENDED))

    asked = ask(cpus=0.0001, **WITH_CAT)
    world.create(**LONELY)
    one()
    few = calls_in(one)
    for _ in range(300):
        world.controller.place(asked, "01")
    assert calls_in(one) < few + 10


def calls_in(action: Callable[[], None]) -> int:
    count = 0

    def tick(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tick)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_slots_are_used_again_so_that_names_do_not_grow(world: World):
    slots = set()
    for _ in range(50):
        cat = world.create(**LONELY)
        slots.add(cat.labels[LEASE_LABEL])
        world.die(cat)
        world.now += 1
    assert len(slots) <= 16


def test_the_dog_waits_for_the_cat_and_starts_with_it(world: World):
    dog = world.create(**WITH_CAT)
    assert dog.node_ids == ()
    cat = world.create(**LONELY)
    assert world.let_start(dog).node_ids == cat.node_ids


def test_failover_as_in_the_proposal(world: World):
    cat = world.create(**LONELY)
    dog = world.create(**WITH_CAT)
    world.controller.taint(cat.node_ids[0], (("k", "v"),))
    moved = world.restarts(cat)
    assert moved.node_ids not in (cat.node_ids, ())
    assert world.controller.leases.node_of(world.controller.leases.by_slot[dog.labels[LEASE_LABEL]]) == dog.node_ids[0]
    assert world.restarts(dog).node_ids == moved.node_ids


def test_what_was_on_a_lost_node_is_decided_again(world: World):
    cat = world.create(**LONELY)
    world.port.leave(cat.node_ids[0])
    world.controller.round()
    again = world.let_start(replace(cat, state=WAITING, detail="RESTARTING", node_ids=()))
    assert again.node_ids not in (cat.node_ids, ())


def test_handles_name_actors_that_ray_placed_also_before_they_are(world: World):
    other = Work("actor", "abc", "", "01", WAITING, "PENDING_CREATION", ({},), namespace="tests")
    world.port.submit(other)
    near = world.create(scheduling_strategy=actor_affinity(affinity("abc", False)))
    assert near.node_ids == ()
    world.tell(replace(other, state=RUNNING, detail="ALIVE", node_ids=("n2",)))
    assert world.let_start(near).node_ids == ("n2",)
    away = world.create(scheduling_strategy=actor_affinity(anti_affinity("abc", False)))
    assert away.node_ids[0] in ("n1", "n3")
    world.tell(replace(other, state=ENDED, detail="DEAD", node_ids=()))
    late = world.create(scheduling_strategy=actor_affinity(affinity("abc", False)))
    assert late.node_ids == ()


def test_keeping_away_from_an_actor_waits_until_ray_has_placed_it(world: World):
    other = Work("actor", "abc", "", "01", WAITING, "PENDING_CREATION", ({},), namespace="tests")
    world.port.submit(other)
    away = world.create(scheduling_strategy=actor_affinity(anti_affinity("abc", False)))
    assert away.node_ids == ()
    assert why_work(world.controller, away)["reason"] == "Ray has yet to place the actor abc, which it keeps away from"
    world.tell(replace(other, state=RUNNING, detail="ALIVE", node_ids=("n1",)))
    assert world.let_start(away).node_ids[0] in ("n2", "n3")
    world.tell(replace(other, state=ENDED, detail="DEAD", node_ids=()))
    gone = world.create(scheduling_strategy=actor_affinity(anti_affinity("nobody", False)))
    assert gone.node_ids != ()


def test_a_lease_that_nobody_claims_is_taken_back(world: World):
    world.controller.place(ask(**LONELY), "01")
    assert len(world.controller.leases.by_slot) == 1
    world.now += CLAIM_SECONDS + 20
    world.controller.round()
    assert world.controller.leases.by_slot == {}
    assert world.tokens() == []


def test_two_in_one_moment_are_not_promised_the_same_cpus(world: World):
    nodes = [world.controller.place(ask(cpus=4, labels={"k": str(number)}), "01")[1] for number in range(4)]
    assert sorted(nodes, key=str) == sorted(["n1", "n2", "n3", None], key=str)
    world.controller.round()  # the report of the nodes still says that all is free
    assert world.controller.place(ask(cpus=1, labels={"k": "v"}), "01")[1] is None


def test_a_restarted_controller_knows_what_runs_and_what_waits(world: World):
    cats = [world.create(**LONELY) for _ in range(4)]
    world.restart()
    fifth = world.create(**LONELY)
    assert fifth.node_ids == ()
    waiting = next(cat for cat in cats if not cat.node_ids)
    world.die(next(cat for cat in cats if cat.node_ids))
    started = [work for work in (world.let_start(waiting), world.let_start(fifth)) if work.node_ids]
    assert len(started) == 1


def test_a_controller_killed_between_decision_and_start_changes_nothing(world: World):
    asked = ask(**LONELY)
    slot, node_id = world.controller.place(asked, "01")
    world.restart()
    labels = {**dict(asked.labels), LEASE_LABEL: slot, REQUEST_LABEL: encode_ask(asked)}
    work = Work("actor", "late", "", "01", WAITING, "PENDING_CREATION", ({},), namespace="tests", labels=labels)
    world.port.submit(work)
    world.controller.leases.claim(slot, "late")
    assert world.let_start(work).node_ids == (node_id,)
    others = [world.create(**LONELY) for _ in range(3)]
    assert sum(bool(other.node_ids) for other in others) == 2


def test_a_labelled_task_counts_until_it_is_done_also_for_the_next_controller(world: World):
    slot, node_id = world.controller.place(ask(TASK, labels={"stage": "load"}), "01")
    near = ask(TASK, scheduling_strategy=task_affinity(label_in("stage", ["load"], False)))
    assert world.controller.place(near, "01")[1] == node_id
    world.restart()
    assert world.controller.place(near, "01")[1] == node_id
    world.controller.leases.give_up(slot)
    world.controller.round()
    assert world.controller.place(near, "01")[1] is None
    assert lease_token(slot) not in world.tokens()


SELECTIVE = {"label_selector": {"zone": "in(a)"}, "tolerations": {"k": "v"}}


@pytest.mark.parametrize("options", [LONELY, WITH_CAT, near("A", "together"), SELECTIVE])
def test_what_is_asked_survives_its_journey(options: dict[str, Any]):
    asked = ask(**options)
    assert decode_ask(encode_ask(asked)) == asked


def test_a_lease_is_the_smallest_amount_so_that_one_can_take_it(world: World):
    slot, node_id = world.controller.place(ask(TASK, labels={"a": "b"}), "01")
    world.steer()
    view = next(view for view in world.port.observe().nodes if view.node_id == node_id)
    assert view.total[lease_token(slot)] == TAKEN


def test_a_follower_is_restarted_where_the_one_it_joined_went(world: World):
    leader, stays, follows = (
        world.create(labels={"who": "A"}),
        world.create(**near("A", "stay")),
        world.create(**near("A", "follow")),
    )
    assert leader.node_ids == stays.node_ids == follows.node_ids
    world.controller.taint(leader.node_ids[0], (("k", "v"),))
    moved = world.restarts(leader)
    assert moved.node_ids != leader.node_ids
    world.controller.round()
    assert world.port.restarted == [follows.work_id]
    assert world.restarts(follows).node_ids == moved.node_ids
    assert world.port.restarted == [follows.work_id]  # once


def test_a_group_moves_together_to_a_node_that_fits_it_all(world: World):
    leader = world.create(labels={"who": "A"}, cpus=1)
    friend = world.create(**near("A", "together"), cpus=2)
    home = leader.node_ids[0]
    assert friend.node_ids == (home,)
    small, large = (name for name in ("n1", "n2", "n3") if name != home)
    world.port.take(small, {"CPU": 3})  # room for the leader, but not for both
    world.controller.taint(home, (("k", "v"),))
    assert world.restarts(leader).node_ids == (large,)
    assert world.port.restarted == [friend.work_id]
    assert world.restarts(friend).node_ids == (large,)


def test_a_group_that_lost_its_node_comes_back_together(world: World):
    leader = world.create(labels={"who": "A"}, cpus=1)
    friend = world.create(**near("A", "together"), cpus=2)
    home = leader.node_ids[0]
    small, large = (name for name in ("n1", "n2", "n3") if name != home)
    world.port.take(small, {"CPU": 3})
    world.port.leave(home)
    world.controller.round()
    back = [world.let_start(replace(work, state=WAITING, detail="RESTARTING", node_ids=())) for work in (leader, friend)]
    assert [work.node_ids for work in back] == [(large,), (large,)]


def test_where_no_node_fits_all_the_leader_goes_alone(world: World):
    leader = world.create(labels={"who": "A"}, cpus=1)
    friend = world.create(**near("A", "together"), cpus=2)
    home = leader.node_ids[0]
    for name in ("n1", "n2", "n3"):
        if name != home:
            world.port.take(name, {"CPU": 3})
    world.controller.taint(home, (("k", "v"),))
    assert world.restarts(leader).node_ids not in ((home,), ())
    assert world.port.restarted == []
    assert world.controller.leases.node_of(world.controller.leases.by_slot[friend.labels[LEASE_LABEL]]) == home


def test_an_object_with_labels_counts_where_it_lies_until_it_is_dropped(world: World):
    world.controller.leases.ghosts.put_object("o1", (("set", "x"),), "n2", "tests", "01")
    beside = ask(TASK, scheduling_strategy=object_affinity(label_in("set", ["x"], False)))
    assert world.controller.place(beside, "01")[1] == "n2"
    world.restart()
    assert world.controller.place(beside, "01")[1] == "n2"
    world.controller.leases.ghosts.drop_object("o1")
    assert world.controller.place(beside, "01")[1] is None
    world.controller.leases.ghosts.put_object("o2", (("set", "x"),), "n1", "tests", "02")
    world.controller.inbox.append(Work("job", "02", "", "02", ENDED, "DEAD", ()))
    world.controller.round()
    assert world.controller.place(beside, "01")[1] is None


@pytest.mark.parametrize("wrong", ["never", "", None])
def test_an_unknown_failover_is_refused(wrong: Any):
    with pytest.raises(InvalidStrategyError, match="use 'stay', 'follow' or 'together'"):
        actor_affinity(label_in("a", ["b"], False), on_failover=wrong)


def test_the_time_line_of_an_actor_tells_each_decision_and_its_reason(world: World):
    cat = world.create(labels={"type": "cat"}, label_selector={"zone": "!c"})
    dog = world.create(**WITH_CAT)
    home = cat.node_ids[0]
    world.port.leave(home)
    world.controller.round()
    cat = world.restarts(cat)
    dog = world.restarts(dog)
    away = cat.node_ids[0]
    assert away != home
    assert told(world, cat) == [
        f"decided {home} because it asks for zone!=c",
        f"runs on {home}",
        f"its node {home} left",
        f"decided {away} because it asks for zone!=c",
        f"runs on {away}",
    ]
    assert told(world, dog)[0] == f"decided {home} because it asks for actors with type=cat"
    assert told(world, dog)[-1] == f"runs on {away}"
    world.restarts(cat)
    assert told(world, cat)[5:7] == [f"restarts; it was on {away}", f"decided {away} because it asks for zone!=c"]


def test_the_time_line_of_one_that_waits_says_so_and_a_new_controller_repeats_nothing(world: World):
    dog = world.create(**WITH_CAT)
    assert told(world, dog) == ["waits: no node for it now"]
    cat = world.create(labels={"type": "cat"})
    dog = world.let_start(dog)
    (home,) = dog.node_ids
    before = told(world, dog)
    assert before[1:] == [f"decided {home} because it asks for actors with type=cat", f"runs on {home}"]
    assert told(world, cat)[0] == f"decided {home} because any node would do"
    world.controller.round()
    world.restart()
    assert [text for text in told(world, dog) if text.startswith("decided")] == before[1:2]


def told(world: World, work: Work) -> list[str]:
    found = [entry for entry in world.controller.journal.entries() if entry["subject"] == work.work_id]
    return [entry["text"] for entry in found]
