"""Placement groups in virtual clusters: a share each, with tokens that nobody else can take."""

from __future__ import annotations

import pytest
from tests.unit.controller.worlds import World

from remora.controller.effects import Resize
from remora.port.contract import RUNNING, WAITING
from remora.wire import calls
from remora.wire.timing import GROUP_CREATED_SECONDS


def test_a_group_has_tokens_of_its_own_and_its_cluster_has_less(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 3}, flexible_resource_max={"CPU": 3})
    offer = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD")
    assert offer.share_id is not None
    assert sorted(offer.places()) == ["n1", "n2"]
    assert world.standing(offer.share_id) == 2
    assert world.free(vc) == 1


def test_a_group_grows_its_cluster_up_to_its_maximum_and_not_beyond(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 3})
    assert world.offer(vc, {"CPU": 2}, ask="first").share_id is not None
    second = world.offer(vc, {"CPU": 2}, ask="second")
    assert second.share_id is None
    assert "2 are closed as vc1 has 2 of at most 3 CPU" in second.reason
    assert world.offer(vc, {"CPU": 1}, ask="third").share_id is not None


def test_groups_lie_where_their_strategy_says(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 8})
    together = world.offer(vc, {"CPU": 1}, {"CPU": 2}, strategy="STRICT_PACK", ask="a").places()
    apart = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD", ask="b").places()
    assert (len(set(together)), len(set(apart))) == (1, 2)
    assert world.offer(vc, *[{"CPU": 1.0}] * 3, strategy="STRICT_SPREAD", ask="c").share_id is None


def test_what_is_just_in_use_is_not_given_to_a_group(world: World) -> None:
    """The report is older than the start: the raylet itself says so."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    observe = world.port.observe
    old = observe()
    world.run(vc, node)
    world.port.observe = lambda: old  # type: ignore[method-assign]
    offer = world.offer(vc)
    assert offer.share_id is None
    assert "just being used" in offer.reason
    assert not world.group_shares()
    world.port.observe = observe  # type: ignore[method-assign]
    world.later(0.1)
    assert sum(world.tokens(vc).values()) == 1


def test_the_same_question_gets_the_same_answer(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    first = world.offer(vc, ask="one")
    assert world.offer(vc, ask="one") == first
    world.restart()
    assert world.offer(vc, ask="one").share_id == first.share_id
    assert world.offer(vc, ask="two").share_id != first.share_id
    assert len(world.group_shares()) == 2


def test_what_a_group_had_is_its_clusters_again_when_it_is_removed(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    offer = world.offer(vc, {"CPU": 2})
    assert offer.share_id is not None
    held = world.reserve(offer, "group", 2)
    world.confirm(offer.share_id, "group")
    world.later(0.1)
    assert world.free(vc) == 0
    world.remove_group("group", held)
    assert world.release("group")
    assert world.free(vc) == 2
    assert not world.group_shares()
    assert world.standing(offer.share_id) == 0
    assert not world.release("group")


def test_a_group_that_ended_without_a_word_is_found_by_what_its_nodes_report(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    offer = world.offer(vc)
    held = world.reserve(offer, "group")
    world.later(0.1)
    world.later(30)
    assert world.group_shares() == [offer.share_id]
    world.remove_group("group", held)
    world.later(0.1)
    assert not world.group_shares()
    assert world.free(vc) == 1


def test_one_that_was_never_created_gives_back_what_was_kept_for_it(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    world.offer(vc)
    world.later(10)
    assert world.group_shares()
    world.later(10)
    assert not world.group_shares()
    assert world.free(vc) == 1


def test_one_that_waits_in_gcs_and_that_nobody_knows_of_is_removed(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    (token,) = world.offer(vc).shares()
    world.group("orphan", WAITING, {token: 1.0})
    removed: list[str] = []
    world.port.let_go = removed.append  # type: ignore[assignment, method-assign]
    world.later(20)
    assert removed == ["orphan"]
    assert not world.group_shares()


def test_a_new_controller_knows_who_has_what(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    offer = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD")
    assert offer.share_id is not None
    held = world.reserve(offer, "group")
    world.confirm(offer.share_id, "group")
    world.later(0.1)
    world.restart()
    world.later(30)
    assert world.group_shares() == [offer.share_id]
    assert world.offer(vc, ask="another").share_id is None
    world.remove_group("group", held)
    world.later(0.1)
    assert not world.group_shares()
    assert world.free(vc) == 2


def test_nobody_goes_on_beyond_the_maximum_while_a_group_is_under_way(world: World) -> None:
    """It has its tokens already, and GCS reserves them when it comes to it."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    world.lend("w1", vc, node)
    world.later(0.1)
    offer = world.offer(vc)
    assert offer.share_id is not None
    world.reclaim("w1", vc, node)
    for _ in range(10):
        world.later(0.2)
        assert world.reclaim("w1", vc, node, again=True) is None
    world.reserve(offer, "group")
    world.confirm(offer.share_id, "group")
    world.later(0.1)
    assert world.reclaim("w1", vc, node, again=True) == "go"


def test_who_comes_back_goes_on_when_the_group_is_given_up(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    world.lend("w1", vc, node)
    world.later(0.1)
    offer = world.offer(vc)
    assert offer.share_id is not None
    assert world.reclaim("w1", vc, node) is None
    world.release(offer.share_id)
    world.later(0.1)
    assert world.reclaim("w1", vc, node, again=True) == "go"
    assert not world.fence(node)


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
    assert "owed" in world.offer(vc).reason


def test_a_group_outlives_the_with_that_it_was_made_in(world: World) -> None:
    outer = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 2})
    offer = world.offer(inner, {"CPU": 1})
    assert offer.share_id is not None
    held = world.reserve(offer, "group")
    world.confirm(offer.share_id, "group")
    world.later(0.1)
    under_way = world.offer(inner, {"CPU": 1}, ask="under way")
    world.close(inner, unused=True)
    world.later(5)
    assert world.group_shares() == [offer.share_id, under_way.share_id]
    assert world.free(outer) == 2
    world.release(str(under_way.share_id))
    world.remove_group("group", held)
    world.release("group")
    for _ in range(3):
        world.later(1)
    assert world.free(outer) == 4


def test_a_bundle_that_lost_its_node_gets_a_token_elsewhere(world: World) -> None:
    world.port.join("n3", {"CPU": 4})
    vc = world.create(flexible_resource_max={"CPU": 2})
    offer = world.offer(vc, {"CPU": 1}, {"CPU": 1}, strategy="STRICT_SPREAD")
    assert offer.share_id is not None
    world.reserve(offer, "group")
    world.confirm(offer.share_id, "group")
    world.later(0.1)
    (token, lost), (other, kept) = offer.shares().items()
    world.port.leave(lost)
    world.group("group", WAITING, detail="RESCHEDULING")
    world.later(0.1)
    (instead,) = {"n1", "n2", "n3"} - {lost, kept}
    assert world.view(instead).available[token] == 1
    assert world.view(kept).total[other] == 1
    assert world.standing(offer.share_id) == 2


def test_a_bundle_that_lost_its_node_gets_none_while_nothing_may_start(world: World) -> None:
    """It may have had it already; GCS has just not come to it."""
    world.port.join("n3", {"CPU": 4})
    vc = world.create(flexible_resource_max={"CPU": 5})
    offer = world.offer(vc, {"CPU": 4})
    assert offer.share_id is not None
    world.reserve(offer, "group", 4)
    world.confirm(offer.share_id, "group")
    world.want(vc)
    (busy,) = world.tokens(vc)
    world.run(vc, busy)
    world.lend("w1", vc, busy)
    world.later(0.1)
    inner = world.run(vc, busy)
    (lost,) = offer.places()
    assert lost != busy
    world.port.leave(lost)
    world.group("group", WAITING, detail="RESCHEDULING")
    world.later(0.1)
    assert world.standing(offer.share_id) == 4
    (token,) = offer.shares()
    done = len(world.host.performed)
    assert world.reclaim("w1", vc, busy) == "go"  # beside the one that uses its share, in the room that the group leaves
    assert any(isinstance(each, Resize) and each.amounts.get(token) == 0 for each in world.host.performed[done:])
    for _ in range(5):
        world.later(0.1)
        assert world.standing(offer.share_id) < 4  # it needs all of it
    world.port.give(busy, inner)
    world.later(0.1)
    world.later(0.1)
    assert world.standing(offer.share_id) == 4


def test_what_was_offered_on_a_node_that_is_tainted_then_is_taken_back(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    offer = world.offer(vc)
    (node,) = offer.places()
    world.ask(calls.TaintNode(node, (("k", "v"),), []))
    assert world.standing(offer.share_id) == 0
    assert not world.group_shares()
    (other,) = world.offer(vc, ask="again").places()
    assert other != node


def test_a_detached_group_keeps_what_it_has_when_its_job_ends(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 8})
    offer = world.offer(vc)
    held = world.reserve(offer, "group")
    world.confirm(str(offer.share_id), "group")
    for _ in range(5):
        world.later(1)
    world.job("j1", "ended")
    for _ in range(3):
        world.later(20)
    assert world.group_shares() == [offer.share_id]
    (node,) = offer.places()
    assert world.sums()[node] == 1
    world.remove_group("group", held)
    for _ in range(3):
        world.later(1)
    assert not world.group_shares()
    assert world.state(vc) == "GONE"


def test_a_share_that_gcs_has_reserved_and_nobody_confirmed_is_found_reserved(world: World) -> None:
    """Its creator was killed before it said so."""
    vc = world.create(flexible_resource_max={"CPU": 2})
    offer = world.offer(vc)
    world.reserve(offer, "group")
    world.group("group", RUNNING, *({token: 1.0} for token in offer.shares()))
    world.later(20)
    world.restart()
    world.later(20)
    assert world.group_shares() == [offer.share_id]


def test_what_is_said_late_about_a_share_is_not_taken_for_the_next_group_that_has_it(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 1})
    first = world.offer(vc, ask="first")
    assert first.share_id is not None
    assert world.release(first.share_id, "first")
    world.later(GROUP_CREATED_SECONDS + 1)
    second = world.offer(vc, ask="second")
    assert second.share_id == first.share_id
    assert not world.release(first.share_id, "first")  # the message arrives twice
    world.confirm(first.share_id, "first")
    world.later(1)
    assert world.group_shares() == [second.share_id]
    assert world.offer(vc, ask="second") == second
    assert world.release("second")  # by the id of the group, though it was never confirmed
    assert not world.group_shares()


def test_the_name_of_a_share_that_was_given_back_rests(world: World) -> None:
    """Whoever was offered it may still be waiting for its tokens, and would take those of the next group that has the name."""
    vc = world.create(flexible_resource_max={"CPU": 1})
    first = world.offer(vc, ask="first")
    assert world.release(str(first.share_id), "first")
    assert world.offer(vc, ask="second").share_id not in (None, first.share_id)


def test_the_name_of_a_share_that_a_controller_before_us_gave_back_rests_too(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 1})
    first = world.offer(vc, ask="first")
    assert world.release(str(first.share_id), "first")
    world.later(0.1)
    world.restart()
    assert world.offer(vc, ask="second").share_id not in (None, first.share_id)


def test_a_group_that_is_tried_again_has_its_new_share_when_the_old_one_is_gone(world: World) -> None:
    """The old one ends late, because something holds its token still."""
    vc = world.create(flexible_resource_max={"CPU": 2})
    first = world.offer(vc, ask="group")
    held = world.reserve(first, "group")
    assert world.release(str(first.share_id), "group")
    again = world.offer(vc, ask="group")
    assert again.share_id not in (None, first.share_id)
    for node, amounts in held:
        world.port.give(node, amounts)
    world.later(0.1)
    assert world.group_shares() == [again.share_id]
    assert world.offer(vc, ask="group") == again


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
def test_a_group_goes_where_others_have_not_filled_the_node_of_its_cluster(world: World, strategy: str) -> None:
    """Ray could not reserve it there, and would be asked again and again."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3})
    (has,) = world.tokens(vc)
    world.port.take(has, {"CPU": 4})
    world.later(0)
    (where,) = world.offer(vc, {"CPU": 1}, strategy=strategy).places()
    assert where != has
