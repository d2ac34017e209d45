"""Workers that wait lend their share and reclaim it; while more runs than may, whoever wants to start waits for admission."""

from __future__ import annotations

from tests.unit.controller.worlds import World

from remora import FixedSizeNode, FixedSizeNodes
from remora.wire import calls
from remora.wire.timing import BURIED_SECONDS


def one_cpu(world: World) -> tuple[str, str]:
    """Return a cluster of exactly one CPU, and its node."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    return vc, next(iter(world.tokens(vc)))


def come_back(world: World, vc: str, node: str) -> dict[str, float]:
    """One of the cluster's workers waits, another uses its share, and the first comes back: one more than the share runs."""
    world.run(vc, node)
    world.lend("w1", vc, node)
    inner = world.run(vc, node)
    world.reclaim("w1", vc, node)
    world.later(0.5)
    world.later(0.1)
    assert world.reclaim("w1", vc, node, again=True) == "go"
    return inner


def test_a_worker_that_waits_lends_its_share_and_takes_it_again(world: World) -> None:
    vc, node = one_cpu(world)
    world.run(vc, node)
    world.later(0.1)
    assert world.free(vc) == 0
    world.lend("w1", vc, node)
    assert world.free(vc) == 1
    assert world.reclaim("w1", vc, node) == "go"
    assert world.free(vc) == 0
    assert not world.fence(node)


def test_one_that_comes_back_while_others_use_its_share_goes_on_once_everybody_knows(world: World) -> None:
    vc, node = one_cpu(world)
    world.run(vc, node)
    world.lend("w1", vc, node)
    inner = world.run(vc, node)
    assert world.reclaim("w1", vc, node) is None
    assert world.fence(node) == {vc}
    world.later(0.1)
    world.later(0.1)
    assert world.reclaim("w1", vc, node, again=True) is None
    world.later(0.2)
    assert world.reclaim("w1", vc, node, again=True) == "go"
    assert world.fence(node) == {vc}
    world.port.give(node, inner)
    world.later(0.1)
    assert world.tokens(vc) == {node: 1}
    assert not world.fence(node)


def test_one_that_comes_back_goes_on_as_soon_as_there_is_room(world: World) -> None:
    vc, node = one_cpu(world)
    world.run(vc, node)
    world.lend("w1", vc, node)
    inner = world.run(vc, node)
    assert world.reclaim("w1", vc, node) is None
    world.port.give(node, inner)
    world.later(0.1)
    assert world.reclaim("w1", vc, node, again=True) == "go"
    assert not world.fence(node)


def test_what_comes_back_to_a_child_holds_up_its_siblings_where_their_parent_is_used_up(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    one, other = (world.create(parent, flexible_resource_min={"CPU": 1}) for _ in range(2))
    (node,) = world.tokens(one)
    world.run(one, node)
    world.lend("w1", one, node)
    world.run(one, node)
    world.reclaim("w1", one, node)
    assert world.tokens(other)
    assert all(other in world.fence(each) for each in world.tokens(other))


def test_what_a_worker_said_before_it_ended_is_not_heard_after(world: World) -> None:
    vc, node = one_cpu(world)
    world.worker_ended("w1")
    world.lend("w1", vc, node)
    assert sum(world.tokens(vc).values()) == 1
    world.later(BURIED_SECONDS + 2)
    world.lend("w1", vc, node)  # nobody has this id any more; it is not remembered for ever
    assert sum(world.tokens(vc).values()) == 2


def test_what_is_taken_back_from_one_that_was_killed_while_it_waited_is_not_given_twice(world: World) -> None:
    """Its death is told by its raylet, and by the token that is free; the second may be heard of first."""
    vc, node = one_cpu(world)
    held = world.run(vc, node)
    world.lend("w1", vc, node)
    world.run(vc, node)
    world.lend("w2", vc, node)
    world.run(vc, node)
    world.host.deaf = True  # its death is not told
    world.worker_ended("w1")
    world.port.give(node, held)
    assert world.reclaim("w2", vc, node) is None
    world.later(0.1)
    assert world.reclaim("w2", vc, node, again=True) is None  # the third runs


def test_who_waits_for_admission_for_long_is_not_admitted_for_that(world: World) -> None:
    vc, node = one_cpu(world)
    come_back(world, vc, node)
    for _ in range(30):
        assert world.enter("w2", vc, node) is None
        world.later(1)
    world.later(30)  # it was not heard of any more
    assert world.enter("w2", vc, node, again=True) is None


def test_a_closed_one_admits_who_waits(world: World) -> None:
    """What is made for them is not taken back as idle."""
    vc, node = one_cpu(world)
    world.run(vc, node)
    world.close(vc)
    answers = [world.enter("w1", vc, node)]
    for _ in range(3):
        world.later(1)
        answers.append(world.enter("w1", vc, node, again=True))
    assert answers[-1] == "go"


def test_who_waits_where_its_cluster_has_no_share_any_more_is_sent_on(world: World) -> None:
    greedy = world.create()
    world.want(greedy, 100)
    held = [(node, world.run(greedy, node)) for node in ("n1", "n2") for _ in range(4)]
    world.later(0.1)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 4})
    world.later(0.1)
    assert greedy in world.fence("n1")
    inside = [f"w{number}" for number, (where, _) in enumerate(held) if where == "n1"]
    for worker in inside:  # one ends, and the next in the raylet's queue takes its token
        world.enter(worker, greedy, "n1", may_go=worker != inside[0])
        world.port.give("n1", {"CPU": 1})
    told: dict[str, str | None] = dict.fromkeys(inside)
    for _ in range(4):
        world.later(1)
        for worker in inside:
            told[worker] = told[worker] or world.enter(worker, greedy, "n1", may_go=worker != inside[0], again=True)
    assert world.state(waiting) == "READY"
    assert told.pop(inside[0]) is None
    assert set(told.values()) == {"elsewhere"}
    assert world.sums()["n1"] == 4 + 4  # what they hold is theirs until they are done, and nobody else's


def test_while_a_cluster_is_full_starters_wait_for_admission(world: World) -> None:
    vc, node = one_cpu(world)
    outer = come_back(world, vc, node)
    assert world.enter("w2", vc, node) is None
    world.later(0.1)
    assert world.enter("w2", vc, node, again=True) is None
    world.port.give(node, outer)
    world.later(0.1)
    assert world.enter("w2", vc, node, again=True) == "go"
    assert world.tokens(vc) == {node: 1}


def test_nothing_starts_in_a_placement_group_and_none_is_created_until_what_came_back_is_repaid(world: World) -> None:
    vc, node = one_cpu(world)
    inner = come_back(world, vc, node)
    assert world.enter("in a group", vc, node, cpus=0, may_go=False) is None
    world.later(0.1)
    assert world.enter("in a group", vc, node, cpus=0, may_go=False, again=True) is None
    assert "came back" in world.offer(vc).reason
    world.port.give(node, inner)
    world.later(0.1)
    world.later(0.1)
    assert world.enter("in a group", vc, node, cpus=0, may_go=False, again=True) == "go"
    assert "came back" not in world.offer(vc).reason


def test_what_is_used_too_much_on_one_node_is_not_started_on_another(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes])
    inner = come_back(world, vc, "n1")
    assert [world.fence(node) for node in ("n1", "n2")] == [{vc}, {vc}]
    world.run(vc, "n2")
    assert world.enter("w2", vc, "n2") is None
    world.later(0.1)
    assert world.enter("w2", vc, "n2", again=True) is None
    world.port.give("n1", inner)
    world.later(0.1)
    assert world.enter("w2", vc, "n2", again=True) == "go"
    assert [world.fence(node) for node in ("n1", "n2")] == [set(), set()]


def test_below_its_maximum_a_cluster_grows_for_what_it_uses_too_much_elsewhere(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes], flexible_resource_max={"CPU": 1})
    come_back(world, vc, "n1")
    answers = [world.enter("w2", vc, "n2")]
    world.run(vc, "n2")
    for _ in range(2):
        world.later(0.1)
        answers.append(answers[-1] or world.enter("w2", vc, "n2", again=True))
    assert answers[-1] == "go"


def test_the_share_of_a_worker_that_dies_while_it_waits_is_lent_no_longer(world: World) -> None:
    vc, node = one_cpu(world)
    held = world.run(vc, node)
    world.lend("w1", vc, node)
    assert world.free(vc) == 1
    world.port.give(node, held)
    world.worker_ended("w1")
    world.host.pump()
    assert world.tokens(vc) == {node: 1}


def test_work_that_is_gone_without_a_word_is_forgotten(world: World) -> None:
    vc, node = one_cpu(world)
    world.lend("w1", vc, node)
    assert world.free(vc) == 2
    world.later(7)
    assert world.free(vc) == 1


def test_work_outside_that_waits_starts_when_no_cluster_has_anything_there_any_more(world: World) -> None:
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 4})
    world.later(0.1)
    waiting = world.create(flexible_resource_min={"CPU": 3})
    world.later(0.1)
    (node, *_) = (each for each in ("n1", "n2") if "root" in world.fence(each))
    world.port.give(node, {"CPU": 1})
    assert world.enter("w1", "root", node) is None
    world.later(0.1)
    assert world.enter("w1", "root", node, again=True) is None
    world.close(waiting, unused=True)
    world.later(0.1)
    assert world.enter("w1", "root", node, again=True) == "go"


def test_an_admission_is_not_lost_when_it_is_asked_for_again(world: World) -> None:
    """The answer to the first question was lost on its way: whoever asks again has been admitted, and uses its share."""
    vc, node = one_cpu(world)
    world.run(vc, node)
    world.lend("w1", vc, node)
    inner = world.run(vc, node)
    assert world.reclaim("w1", vc, node) is None
    world.port.give(node, inner)
    world.host.round()  # admitted, and nobody was told
    assert world.reclaim("w1", vc, node, again=True) == "go"
    assert world.free(vc) == 0  # it uses its share


def test_a_dead_neighbour_that_is_told_of_at_the_door_lends_nothing_any_more(world: World) -> None:
    vc, node = one_cpu(world)
    world.run(vc, node)
    world.lend("w1", vc, node)
    assert world.free(vc) == 1
    world.run(vc, node)  # what w1 lent is used; then w1 is killed, and its raylet starts the next with its token
    answer = world.ask(calls.Enter(world.who("w3", vc, node), False, True, ["w1"]))
    assert answer is None  # one runs


def test_what_is_held_of_one_that_was_killed_while_it_waited_is_not_given_twice(world: World) -> None:
    """Its token is free and is held, because its cluster has shrunk by it; until it is known to be dead it seems to lend it."""
    vc, node = one_cpu(world)
    first = world.run(vc, node)
    world.lend("w1", vc, node)
    world.run(vc, node)
    world.lend("w2", vc, node)
    world.run(vc, node)  # w3, which waits for admission
    world.restart()  # as far as the next one knows, all that stands is the size of the share
    for worker in ("w1", "w2"):
        world.lend(worker, vc, node)
    assert world.reclaim("w2", vc, node) is None
    assert world.enter("w3", vc, node) is None
    assert world.reclaim("w2", vc, node, again=True) == "go"
    world.later(0.1)
    world.host.deaf = True
    world.worker_ended("w1")  # nobody is told
    world.port.give(node, first)
    for _ in range(3):
        world.later(0.1)
        assert world.enter("w3", vc, node, again=True) is None  # w2 runs
    assert world.holds()


def test_who_comes_back_is_counted_before_a_token_is_raised_while_another_is_lowered(world: World) -> None:
    """A token that is in use is lowered again and again. Whoever waits to come back meanwhile has the room that is left; if a
    placement group got it, it would be taken from it in the next moment, and so on for ever."""
    outer = world.create(flexible_resource_max={"CPU": 2})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    (node,) = world.tokens(inner)
    offer = world.offer(outer)
    world.reserve(offer, "group")
    world.confirm(str(offer.share_id), "group")
    world.run(inner, node)
    world.lend("w1", inner, node)
    world.run(inner, node)
    world.lend("w2", inner, node)
    world.run(inner, node)
    world.later(0.1)
    (where,) = offer.places()
    world.port.give(where, {next(iter(offer.shares())): 1, "CPU": 1})  # GCS tries it again
    for _ in range(3):
        world.reclaim("w1", inner, node, again=True)
        world.reclaim("w2", inner, node, again=True)
        world.later(0.1)
        assert len(world.host.performed) < 200
