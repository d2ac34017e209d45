"""Placeholders: so that Ray tries a bundle again that has lost its node, but not for ever."""

from __future__ import annotations

from tests.unit.controller.worlds import World

from remora.port.contract import RUNNING, WAITING
from remora.wire.owners import owner_of
from remora.wire.tokens import hold_name


def settled_group(world: World, cpus: float = 1.0) -> tuple[str, str, str]:
    """A group that has been there for a while. Return its cluster, its share and its node."""
    vc = world.create(flexible_resource_max={"CPU": 8})
    offer = world.offer(vc, {"CPU": cpus})
    assert offer.share_id is not None
    world.reserve(offer, "group", cpus)
    world.confirm(offer.share_id, "group")
    for _ in range(5):
        world.later(1)
    return vc, offer.share_id, offer.places()[0]


def token_of(share_id: str) -> str:
    return owner_of(share_id)._replace(bundle=0).token("CPU")


def lose(world: World, node: str) -> None:
    world.port.leave(node)
    world.group("group", WAITING, detail="RESCHEDULING")
    world.later(0.1)


def test_a_bundle_has_a_placeholder_on_another_node_that_nobody_can_take_and_that_counts_for_nothing(world: World) -> None:
    vc, share_id, node = settled_group(world)
    other = "n2" if node == "n1" else "n1"
    token = token_of(share_id)
    assert world.holds() == [(other, {token: 1.0})]
    view = world.view(other)
    assert (view.total[token], view.available[token]) == (1.0, 0.0)
    assert world.sums() == {node: 1.0, other: 0.0}
    world.want(vc, 20)
    assert sum(world.tokens(vc).values()) == 7


def test_the_placeholders_end_with_the_group(world: World) -> None:
    _, share_id, node = settled_group(world)
    world.remove_group("group", [(node, {token_of(share_id): 1, "CPU": 1})])
    world.release("group")
    world.later(0.1)
    world.later(0.1)
    assert world.holds() == []
    assert world.standing(share_id) == 0
    assert not world.group_shares()


def test_a_placeholder_is_not_taken_for_the_group(world: World) -> None:
    """Whoever created the group died before it told its id, and both take the same token."""
    vc = world.create(flexible_resource_max={"CPU": 2})
    offer = world.offer(vc)
    held = world.reserve(offer, "group")
    for _ in range(5):
        world.later(1)
    ((node, amounts),) = world.holds()
    world.group("0123", RUNNING, amounts, name=hold_name(node, 0))
    world.remove_group("group", held)
    world.later(1)
    world.later(1)
    assert not world.group_shares()


def test_where_a_placeholder_is_the_bundle_can_go_itself_and_gets_another(world: World) -> None:
    _, share_id, node = settled_group(world)
    lose(world, node)
    (other,) = {"n1", "n2"} - {node}
    token = token_of(share_id)
    view = world.view(other)
    assert (view.total[token], view.available[token]) == (2.0, 1.0)
    world.port.take(other, {token: 1, "CPU": 1})
    world.group("group", RUNNING)
    world.port.join("n3", {"CPU": 4})
    for _ in range(3):
        world.later(1)
    assert ("n3", {token: 1.0}) in world.holds()


def test_one_that_finds_no_place_is_not_tried_for_ever_and_again_when_a_node_joins(world: World) -> None:
    """GCS tries such a group without a pause, as long as it has a placeholder."""
    _, share_id, node = settled_group(world, 4)
    (other,) = {"n1", "n2"} - {node}
    world.port.take(other, {"CPU": 1})
    lose(world, node)
    assert world.holds()
    for _ in range(4):
        world.later(1)
    assert not world.holds()
    for _ in range(4):
        world.later(1)
    assert world.holds()  # nobody looks at it now
    world.port.join("n3", {"CPU": 4})
    world.later(0.1)
    world.later(0.1)
    assert world.view("n3").available[token_of(share_id)] == 4


def test_nothing_is_held_while_gcs_tries_a_group_that_lost_its_node(world: World) -> None:
    """GCS comes to nothing else meanwhile, and a hold would be refused."""
    vc, _, node = settled_group(world, 4)
    (other,) = {"n1", "n2"} - {node}
    world.port.take(other, {"CPU": 1})
    world.want(vc, 3)  # on the other node; it is idle in a moment
    before = len(world.holds())
    lose(world, node)
    world.time += 5
    world.host.round()
    assert len(world.holds()) <= before


def test_the_token_of_a_placeholder_that_was_about_to_be_held_is_gone_before_its_name_is_given_again(world: World) -> None:
    """Or GCS would reserve the next group there, where nobody decided it."""
    vc = world.create(flexible_resource_max={"CPU": 4})
    offer = world.offer(vc, {"CPU": 1})
    assert offer.share_id is not None
    held = world.reserve(offer, "group")
    world.confirm(offer.share_id, "group")
    world.time += 2.5
    world.controller.report(world.port.observe())
    world.controller.round()
    world.host.pump()  # what was written is in no report yet
    token = token_of(offer.share_id)
    assert not world.holds()
    assert len({view.node_id for view in world.views() if view.total.get(token)}) == 2  # its own, and what is to be held
    world.remove_group("group", held)
    world.release("group")
    second = world.offer(vc, {"CPU": 1}, ask="second")
    ((token, node),) = second.shares().items()
    assert world.offered_on(token) == {node}
    world.later(1)
    world.later(1)
    assert world.standing(offer.share_id) == 0
    assert not world.holds()
