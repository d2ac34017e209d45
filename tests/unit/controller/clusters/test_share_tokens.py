"""Share tokens on the nodes: what may be queued for is held rather than removed, and what a dead controller left is found."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.controller.worlds import World

from remora import FixedSizeNode, FixedSizeNodes
from remora.controller.recovery import recover
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.tokens import share_token


def test_what_was_never_offered_to_work_is_taken_back_and_not_held(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 3})
    assert (world.free(parent), world.free(child)) == (1, 3)
    assert not world.holds()
    world.want(parent)
    world.later(0)
    world.create(parent=parent, flexible_resource_min={"CPU": 1})
    assert world.holds()  # from now on something may be queued for it


def test_what_a_controller_before_us_gave_may_have_been_offered(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 4})
    world.restart()
    world.later(0)
    world.create(parent=parent, flexible_resource_min={"CPU": 3})
    assert world.holds()


def test_a_share_that_shrinks_leaves_its_total_so_that_queued_work_stays_feasible(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    world.want(vc, 1, Resources.parse({"CPU": 4}))
    world.later(6)
    world.later(6)
    assert max(world.tokens(vc).values()) == 4
    assert world.free(vc) == 0
    world.want(vc, 1, Resources.parse({"CPU": 4}))
    assert world.free(vc) == 4
    world.later(6)
    assert world.free(vc) == 0


def test_a_new_controller_finds_everything_again(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    fixed = world.create(fixed_size_nodes=[nodes])
    parent = world.create(flexible_resource_min={"CPU": 3}, flexible_resource_max={"CPU": 4})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 2})
    queued = world.create(flexible_resource_min={"CPU": 8})
    world.later(0)
    before = {vc: world.tokens(vc) for vc in (fixed, parent, child)}
    writes = world.port.writes
    world.restart()
    world.later(0)
    assert {vc: world.tokens(vc) for vc in (fixed, parent, child)} == before
    assert world.port.writes == writes
    assert world.state(queued) == "QUEUED"
    world.want(child, 9)
    world.later(0.1)
    assert sum(world.tokens(child).values()) == 4
    assert sum(world.sums().values()) == 6
    assert max(world.sums().values()) <= 4


def test_a_new_controller_believes_nodes_rather_than_their_reports(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 2})
    world.want(vc, 1)
    (node,) = world.tokens(vc)
    (other,) = {"n1", "n2"} - {node}
    old = world.port.observe()
    world.port.resize(other, {share_token(vc, "CPU"): 1.0})  # the last that it did
    world.port.observe = lambda: old  # type: ignore[method-assign]
    world.restart()
    world.later(0)
    world.want(vc, 5)
    assert sum(world.sums().values()) == 2


def test_a_hold_that_was_only_about_to_be_made_holds_nothing(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    world.want(vc, 4)
    world.later(6)
    assert world.holds()
    for name in list(world.port.holds):
        world.port.let_go(name)  # its controller died before it had it
    after = recover(world.port, world.clock)
    assert all(after.book.held(node, share_token(vc, "CPU")) == 0 for node in world.tokens(vc))
    world.restart()
    assert {key.split("/")[-1] for key in world.port.keys("hold/")} == set(world.port.holds)
    assert world.free(vc) == 0


def test_what_is_held_is_not_let_go_while_work_of_a_closed_one_waits(world: World) -> None:
    """It would start at once, whatever runs elsewhere."""
    vc = world.create(flexible_resource_max={"CPU": 2})
    world.want(vc, 2)
    world.later(6)
    assert world.holds()
    other = world.create(job="j2", flexible_resource_min={"CPU": 8})
    assert world.state(other) == "READY"
    world.close(vc)
    for _ in range(5):
        world.later(1)
        world.want(vc, 2)  # it waits, and there is no room for it
        world.later(0.6)
        assert world.free(vc) == 0
        assert world.holds()
    world.later(4)
    world.later(4)
    assert not world.holds()
    assert not world.tokens(vc)


def test_the_part_of_a_cluster_that_a_class_selects_is_held_when_one_inside_gets_it(world: World) -> None:
    """Who is queued for it would be failed by Ray, if no node had it any more."""
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 2}, labels={"part": "0"}), FixedSizeNode({"CPU": 2}, labels={"part": "1"})])
    vc = world.create(fixed_size_nodes=[nodes])
    spec = ClassSpec((NodeClass(LabelSelector({"part": "0"}), Tolerations()),), cluster=vc)
    world.ask(calls.WantShares([calls.Hint(spec.encode(), {"CPU": 1.0}, 1)]))
    world.later(0)
    (node,) = world.tokens(spec.part_id)
    token = share_token(spec.part_id, "CPU")
    child = world.create(parent=vc, fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 2}), FixedSizeNode({"CPU": 2})])])
    world.later(1)
    assert world.state(child) == "READY"
    assert world.tokens(spec.part_id) == {node: 2}
    assert world.held(node, token) == 2
    assert not world.view(node).available.get(token)
    world.restart()
    world.later(1)
    assert (world.tokens(spec.part_id), world.held(node, token)) == ({node: 2}, 2)
    world.close(child, unused=True)
    world.later(1)
    assert world.view(node).available[token] == 2
    world.close(vc, unused=True)
    world.later(5)
    assert not world.tokens(spec.part_id)
    assert not world.holds()


def test_a_worker_that_waits_lends_the_part_of_its_cluster_too(world: World) -> None:
    """What it waits for may have to run on the part that it selected itself."""
    vc = world.create(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 1}, labels={"part": "0"})])])
    spec = ClassSpec((NodeClass(LabelSelector({"part": "0"}), Tolerations()),), cluster=vc)
    world.ask(calls.WantShares([calls.Hint(spec.encode(), {"CPU": 1.0}, 1)]))
    (node,) = world.tokens(spec.part_id)
    token = share_token(spec.part_id, "CPU")
    held = {**world.run(vc, node), token: 1.0}
    world.port.take(node, {token: 1.0})
    world.later(0)
    me = replace(world.who("w1", vc, node), part=spec.part_id)
    world.ask(calls.Lend(me))
    assert (world.free(vc), world.view(node).available[token]) == (1, 1)
    world.ask(calls.Reclaim(replace(me, turn=me.turn + 0.5), False))
    assert (world.free(vc), world.view(node).available[token]) == (0, 0)
    world.port.give(node, held)
    world.later(0)
    assert (world.free(vc), world.view(node).available[token]) == (1, 1)
