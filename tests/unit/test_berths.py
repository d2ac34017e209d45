"""Placement groups in virtual clusters: a berth each, with tokens that nobody else can take."""

from __future__ import annotations

import pytest
from tests.unit.test_sharing import ONE, World

from remora.controller.core import Controller, GroupOffer
from remora.seam.port import ENDED, GROUP, JOB, RUNNING, WAITING, Work
from remora.wire.tokens import bundle_id, counts_for, hold_name, share_of_token, share_token


@pytest.fixture
def world() -> World:
    return World()


def berths(world: World) -> list[str]:
    return [record.vcluster.cluster_id for record, _ in world.controller.sharing.clusters.berths()]


def nodes_of(offer: GroupOffer) -> list[str]:
    return [node for token, (node, *_) in offer.nodes.items() if share_of_token(token) is not None]


def standing(world: World, berth: str | None) -> float:
    """All tokens of it on all nodes."""
    return sum(
        amount
        for view in world.port.observe().nodes
        for name, amount in view.total.items()
        if (owner := share_of_token(name)) is not None and counts_for(owner[0]) == berth
    )


def test_a_group_has_tokens_of_its_own_and_its_cluster_has_less(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 3}, flexible_resource_max={"CPU": 3})
    offer = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD")
    assert offer.berth is not None
    assert sorted(nodes_of(offer)) == ["n1", "n2"]
    assert standing(world, offer.berth) == 2
    assert world.free(vc) == 1


def test_a_group_grows_its_cluster_up_to_its_maximum_and_not_beyond(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 3})
    first = world.offer(vc, {"CPU": 2}, ask="first")
    assert first.berth is not None
    second = world.offer(vc, {"CPU": 2}, ask="second")
    assert second.berth is None
    assert "2 lack 2 CPU; it has 2 of at most 3 CPU" in second.why.reason
    assert world.offer(vc, {"CPU": 1}, ask="third").berth is not None


def test_groups_lie_where_their_strategy_says(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 8})
    together = nodes_of(world.offer(vc, {"CPU": 1}, {"CPU": 2}, strategy="STRICT_PACK", ask="a"))
    apart = nodes_of(world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD", ask="b"))
    assert (len(set(together)), len(set(apart))) == (1, 2)
    assert world.offer(vc, *[{"CPU": 1.0}] * 3, strategy="STRICT_SPREAD", ask="c").berth is None


def test_what_is_just_in_use_is_not_given_to_a_group(world: World) -> None:
    """The report is older than the start: the raylet itself says so."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    observe = world.port.observe
    old = observe()
    world.run(vc, node)
    world.port.observe = lambda: old  # type: ignore[method-assign]
    offer = world.offer(vc)
    assert offer.berth is None
    assert "just being used" in offer.why.reason
    assert not berths(world)
    world.port.observe = observe  # type: ignore[method-assign]
    world.later(0.1)
    assert sum(world.tokens(vc).values()) == 1


def test_the_same_question_gets_the_same_answer(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    first = world.offer(vc, ask="one")
    world.controller = Controller(world.port, lambda: world.time)
    world.controller.round()
    assert world.offer(vc, ask="one").berth == first.berth
    assert world.offer(vc, ask="two").berth != first.berth
    assert len(berths(world)) == 2


def test_what_a_group_had_is_its_clusters_again_when_it_is_removed(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    offer = world.offer(vc, {"CPU": 2})
    assert offer.berth is not None
    held = world.reserve(offer, "group", 2)
    world.controller.sharing.take_berth(offer.berth, "group")
    world.later(0.1)
    assert world.free(vc) == 0
    world.remove_group("group", held)
    assert world.controller.sharing.leave_berth("group")
    assert world.free(vc) == 2
    assert not berths(world)
    assert standing(world, offer.berth) == 0
    assert not world.controller.sharing.leave_berth("group")


def test_a_group_that_ended_without_a_word_is_found_by_what_its_nodes_report(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    offer = world.offer(vc)
    held = world.reserve(offer, "group")
    world.later(0.1)
    assert not world.controller.sharing.berths.under_way([str(offer.berth)])
    world.later(30)
    assert berths(world) == [offer.berth]
    world.remove_group("group", held)
    world.later(0.1)
    assert not berths(world)
    assert world.free(vc) == 1


def test_one_that_was_never_created_gives_back_what_was_kept_for_it(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    world.offer(vc)
    world.later(10)
    assert berths(world)
    world.later(10)
    assert not berths(world)
    assert world.free(vc) == 1


def test_one_that_waits_in_gcs_and_that_nobody_knows_of_is_removed(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    offer = world.offer(vc)
    (token,) = (token for token in offer.nodes if share_of_token(token) is not None)
    world.port.submit(Work(GROUP, "orphan", "", "j1", WAITING, "", ({token: 1.0},)))
    removed: list[str] = []
    world.port.let_go = removed.append  # type: ignore[assignment, method-assign]
    world.later(20)
    assert removed == ["orphan"]
    assert not berths(world)


def test_a_new_controller_knows_who_has_what(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    offer = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD")
    assert offer.berth is not None
    held = world.reserve(offer, "group")
    world.controller.sharing.take_berth(offer.berth, "group")
    world.later(0.1)
    world.controller = Controller(world.port, lambda: world.time)
    world.controller.round()
    world.later(30)
    assert berths(world) == [offer.berth]
    assert world.offer(vc, ask="another").berth is None
    world.remove_group("group", held)
    world.later(0.1)
    assert not berths(world)
    assert world.free(vc) == 2


def test_nobody_goes_on_beyond_the_maximum_while_a_group_is_under_way(world: World) -> None:
    """It has its tokens already, and GCS reserves them when it comes to it."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    sharing = world.controller.sharing
    world.run(vc, node)
    sharing.wait("w1", vc, node, ONE)
    world.later(0.1)
    offer = world.offer(vc)
    assert offer.berth is not None
    sharing.come_back("w1", vc, node, ONE)
    for _ in range(10):
        world.later(0.2)
    assert sharing.answer("w1") is None
    world.reserve(offer, "group")
    sharing.take_berth(offer.berth, "group")
    world.later(0.1)
    assert sharing.answer("w1") == "go"


def test_who_comes_back_goes_on_when_the_group_is_given_up(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    sharing = world.controller.sharing
    world.run(vc, node)
    sharing.wait("w1", vc, node, ONE)
    world.later(0.1)
    offer = world.offer(vc)
    assert offer.berth is not None
    sharing.come_back("w1", vc, node, ONE)
    assert sharing.answer("w1") is None
    sharing.leave_berth(offer.berth)
    world.later(0.1)
    assert sharing.answer("w1") == "go"
    assert not sharing.is_overdrawn(vc)


def test_a_group_takes_nothing_that_is_owed_to_a_minimum(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 8})
    for node in ("n1", "n2"):
        world.want(vc, 8)
        for _ in range(3):
            world.run(vc, node)
    world.later(0.1)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 4})
    world.later(0.1)
    assert world.state(waiting) == "QUEUED"
    assert "owed" in world.offer(vc).why.reason


def test_a_group_outlives_the_with_that_it_was_made_in(world: World) -> None:
    outer = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 2})
    offer = world.offer(inner, {"CPU": 1})
    assert offer.berth is not None
    held = world.reserve(offer, "group")
    world.controller.sharing.take_berth(offer.berth, "group")
    world.later(0.1)
    under_way = world.offer(inner, {"CPU": 1}, ask="under way")
    world.controller.sharing.close(inner, unused=True)
    world.later(5)
    assert berths(world) == [offer.berth, under_way.berth]
    assert world.free(outer) == 2
    world.controller.sharing.leave_berth(str(under_way.berth))
    world.remove_group("group", held)
    world.controller.sharing.leave_berth("group")
    for _ in range(3):
        world.later(1)
    assert world.free(outer) == 4


def test_a_bundle_that_lost_its_node_gets_a_token_elsewhere(world: World) -> None:
    world.port.join("n3", {"CPU": 4})
    vc = world.create(flexible_resource_max={"CPU": 2})
    offer = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD")
    assert offer.berth is not None
    world.reserve(offer, "group")
    world.controller.sharing.take_berth(offer.berth, "group")
    world.later(0.1)
    lost, kept = nodes_of(offer)
    world.port.leave(lost)
    world.port.submit(Work(GROUP, "group", "", "j1", WAITING, "RESCHEDULING", ()))
    world.later(0.1)
    (record, _), *_ = world.controller.sharing.clusters.berths()
    now = {world.controller.sharing.clusters.node_id(vnode.node) for vnode in record.vcluster.vnodes()}
    assert now == {"n1", "n2", "n3"} - {lost}
    assert standing(world, offer.berth) == 2
    assert kept in now


def test_a_bundle_that_lost_its_node_gets_none_while_nothing_may_start(world: World) -> None:
    """It may have had it already; GCS has just not come to it."""
    world.port.join("n3", {"CPU": 4})
    vc = world.create(flexible_resource_max={"CPU": 5})
    offer = world.offer(vc, {"CPU": 4})
    assert offer.berth is not None
    world.reserve(offer, "group", 4)
    sharing = world.controller.sharing
    sharing.take_berth(offer.berth, "group")
    world.want(vc)
    (busy,) = world.tokens(vc)
    world.run(vc, busy)
    sharing.wait("w1", vc, busy, ONE)
    world.later(0.1)
    inner = world.run(vc, busy)
    (lost,) = nodes_of(offer)
    assert lost != busy
    world.port.leave(lost)
    world.port.submit(Work(GROUP, "group", "", "j1", WAITING, "RESCHEDULING", ()))
    world.later(0.1)
    assert standing(world, offer.berth) == 4
    sharing.come_back("w1", vc, busy, ONE)
    world.later(0.1)
    assert standing(world, offer.berth) == 0
    assert sharing.answer("w1") == "go"
    world.later(0.1)
    assert standing(world, offer.berth) < 4  # it needs all of it
    world.port.give(busy, inner)
    world.later(0.1)
    world.later(0.1)
    assert standing(world, offer.berth) == 4


def test_what_was_offered_on_a_node_that_is_tainted_then_is_taken_back(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    offer = world.offer(vc)
    (node,) = nodes_of(offer)
    world.controller.taint(node, (("k", "v"),))
    assert standing(world, offer.berth) == 0
    assert not berths(world)
    (other,) = nodes_of(world.offer(vc, ask="again"))
    assert other != node


def settled_group(world: World, cpus: float = 1.0) -> tuple[str, str, str]:
    """A group that has been there for a while: its cluster, its berth and its node."""
    vc = world.create(flexible_resource_max={"CPU": 8})
    offer = world.offer(vc, {"CPU": cpus})
    assert offer.berth is not None
    world.reserve(offer, "group", cpus)
    world.controller.sharing.take_berth(offer.berth, "group")
    for _ in range(5):
        world.later(1)
    return vc, offer.berth, nodes_of(offer)[0]


def lose(world: World, node: str) -> None:
    world.port.leave(node)
    world.port.submit(Work(GROUP, "group", "", "j1", WAITING, "RESCHEDULING", ()))
    world.later(0.1)


def stand_ins(world: World) -> list[tuple[str, dict[str, float]]]:
    return [(node, dict(amounts)) for node, amounts in world.port.holds.values()]


def test_a_bundle_has_a_stand_in_on_another_node_that_nobody_can_take_and_that_counts_for_nothing(world: World) -> None:
    vc, berth, node = settled_group(world)
    other = "n2" if node == "n1" else "n1"
    token = share_token(bundle_id(berth, 0), "CPU")
    assert stand_ins(world) == [(other, {token: 1.0})]
    view = next(view for view in world.port.observe().nodes if view.node_id == other)
    assert (view.total[token], view.available[token]) == (1.0, 0.0)
    assert world.sums() == {node: 1.0, other: 0.0}
    world.want(vc, 20)
    assert sum(world.tokens(vc).values()) == 7


def test_the_stand_ins_end_with_the_group(world: World) -> None:
    _, berth, node = settled_group(world)
    world.remove_group("group", [(node, {share_token(bundle_id(berth, 0), "CPU"): 1, "CPU": 1})])
    world.controller.sharing.leave_berth("group")
    world.later(0.1)
    world.later(0.1)
    assert stand_ins(world) == []
    assert standing(world, berth) == 0
    assert not berths(world)


def test_a_stand_in_is_not_taken_for_the_group(world: World) -> None:
    """Whoever created the group died before it told its id, and both take the same token."""
    vc = world.create(flexible_resource_max={"CPU": 2})
    offer = world.offer(vc)
    held = world.reserve(offer, "group")
    for _ in range(5):
        world.later(1)
    ((node, amounts),) = stand_ins(world)
    world.port.submit(Work(GROUP, "0123", hold_name(node, 0), "j1", RUNNING, "", (amounts,)))
    world.remove_group("group", held)
    world.later(1)
    world.later(1)
    assert not berths(world)


def test_a_detached_group_keeps_what_it_has_when_its_job_ends(world: World) -> None:
    vc, berth, node = settled_group(world)
    world.job("j1", ENDED)
    world.controller.inbox.append(Work(JOB, "j1", "", "j1", ENDED, "", ()))
    for _ in range(3):
        world.later(20)
    assert berths(world) == [berth]
    assert world.sums()[node] == 1
    world.remove_group("group", [(node, {share_token(bundle_id(berth, 0), "CPU"): 1, "CPU": 1})])
    for _ in range(3):
        world.later(1)
    assert not berths(world)
    assert vc not in world.controller.sharing.clusters.records


def test_where_a_stand_in_is_the_bundle_can_go_itself_and_gets_another(world: World) -> None:
    _, berth, node = settled_group(world)
    lose(world, node)
    (other,) = {"n1", "n2"} - {node}
    token = share_token(bundle_id(berth, 0), "CPU")
    view = next(view for view in world.port.observe().nodes if view.node_id == other)
    assert (view.total[token], view.available[token]) == (2.0, 1.0)
    world.port.take(other, {token: 1, "CPU": 1})
    world.port.submit(Work(GROUP, "group", "", "j1", RUNNING, "", ()))
    world.port.join("n3", {"CPU": 4})
    for _ in range(3):
        world.later(1)
    assert ("n3", {token: 1.0}) in stand_ins(world)


def test_one_that_finds_no_place_is_not_tried_for_ever_and_again_when_a_node_joins(world: World) -> None:
    """GCS tries such a group without a pause, as long as it has a stand-in."""
    _, berth, node = settled_group(world, 4)
    (other,) = {"n1", "n2"} - {node}
    world.port.take(other, {"CPU": 1})
    lose(world, node)
    assert stand_ins(world)
    assert not world.controller.steering.may_hold
    for _ in range(4):
        world.later(1)
    assert not stand_ins(world)
    for _ in range(4):
        world.later(1)
    assert stand_ins(world)  # nobody looks at it now
    world.port.join("n3", {"CPU": 4})
    world.later(0.1)
    world.later(0.1)
    view = next(view for view in world.port.observe().nodes if view.node_id == "n3")
    assert view.available[share_token(bundle_id(berth, 0), "CPU")] == 4


def test_no_virtual_cluster_is_shown_for_a_group_and_what_it_has_is_used(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    world.offer(vc)
    world.later(0.1)
    (row,) = world.controller.sharing.tree()
    assert (row["cluster_id"], row["used"]) == (vc, {"CPU": 1})
