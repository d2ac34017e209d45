"""Virtual clusters are reserved at once or queued, in order; what can never be is refused and leaves nothing."""

from __future__ import annotations

import pytest
from tests.unit.controller.worlds import World

from remora import FixedSizeNode, FixedSizeNodes
from remora.errors import InvalidVirtualClusterError
from remora.port.contract import ENDED
from remora.wire import calls


def test_the_minimum_is_reserved_at_once(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 6}, flexible_resource_max={"CPU": 7})
    assert world.state(vc) == "READY"
    assert sum(world.tokens(vc).values()) == 6


def test_a_second_minimum_waits_in_the_queue_and_follows(world: World) -> None:
    first = world.create(flexible_resource_min={"CPU": 6})
    second = world.create(job="j2", flexible_resource_min={"CPU": 6})
    assert world.state(second) == "QUEUED"
    assert world.look(second)["position"] == 1
    assert "CPU" in world.look(second)["reason"]
    world.job("j1", ENDED)
    world.later(0.1)
    assert world.state(first) == "GONE"
    assert world.state(second) == "READY"
    assert sum(world.tokens(second).values()) == 6
    assert not world.tokens(first)


def test_what_can_never_fit_is_refused_and_leaves_nothing(world: World) -> None:
    with pytest.raises(InvalidVirtualClusterError, match="can never fit"):
        world.create(flexible_resource_min={"CPU": 9})
    assert not world.clusters()
    assert not world.controller.registry.records


def test_fixed_nodes_spread_strictly(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes])
    assert world.tokens(vc) == {"n1": 1, "n2": 1}
    world.want(vc, 10)
    assert world.tokens(vc) == {"n1": 1, "n2": 1}


def test_siblings_never_have_more_than_the_node(world: World) -> None:
    first, second = world.create(), world.create(job="j2")
    world.want(first, 100)
    world.want(second, 100)
    assert world.sums() == {"n1": 4, "n2": 4}
    assert not world.tokens(second)


def test_a_nested_one_is_carved_from_its_parent(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 3})
    world.later(0)
    assert world.free(parent) == 1
    assert world.free(child) == 3
    world.want(child, 10)
    assert (world.free(parent), world.free(child)) == (0, 4)
    grandchild = world.create(parent=child, flexible_resource_min={"CPU": 4})
    assert world.state(grandchild) == "READY"
    world.later(0)  # what was just given can be held when it is reported
    assert (world.free(child), world.free(grandchild)) == (0, 4)
    with pytest.raises(InvalidVirtualClusterError, match="can never fit"):
        world.create(parent=parent, flexible_resource_min={"CPU": 5})


def test_a_lost_node_is_made_good_elsewhere(world: World) -> None:
    vc = world.create(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 2})])])
    (node,) = world.tokens(vc)
    world.port.leave(node)
    world.later(0.1)
    (other,) = world.tokens(vc)
    assert other != node


def test_work_outside_is_asked_to_wait_for_a_minimum_too(world: World) -> None:
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 4})
    world.later(0.1)
    waiting = world.create(flexible_resource_min={"CPU": 3})
    world.later(0.1)
    assert world.state(waiting) == "QUEUED"
    assert any("root" in world.fence(node) for node in ("n1", "n2"))


def test_borrowed_shares_are_reclaimed_for_a_minimum(world: World) -> None:
    greedy = world.create()
    world.want(greedy, 100)
    held = [(node, world.run(greedy, node)) for node in ("n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2")]
    world.later(0.1)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    assert world.state(waiting) == "QUEUED"
    world.later(0.1)
    assert any(greedy in world.fence(node) for node in ("n1", "n2"))
    for node, tokens in held[:2]:
        world.port.give(node, tokens)
    world.later(0.1)
    world.later(0.1)
    assert world.state(waiting) == "READY"
    assert sum(world.tokens(waiting).values()) == 2
    assert world.sums() == {"n1": 4, "n2": 4}


def test_that_nothing_was_submitted_in_one_says_nothing_about_those_inside(world: World) -> None:
    """Work that is queued for the share of an inner cluster goes on when the outer one is left."""
    outer = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 2})
    world.want(inner)
    world.close(outer, unused=True)
    assert sum(world.tokens(inner).values()) == 2
    world.later(10)
    assert not world.tokens(inner)
    assert not world.tokens(outer)


def test_an_inner_one_that_was_never_used_goes_with_the_outer_one(world: World) -> None:
    outer = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    world.create(parent=outer, flexible_resource_min={"CPU": 2})
    world.close(outer, unused=True)
    assert not world.clusters()


def test_a_maximum_of_a_resource_that_no_node_has_is_warned_of(world: World) -> None:
    world.job("j1")
    said = world.ask(world.creation(flexible_resource_max={"cpu": 1, "CPU": 4, "custom": 1}))["warnings"]
    assert said == ["no node has cpu, so its maximum limits nothing: did you mean CPU?"]


def test_what_only_a_taint_keeps_out_is_queued(world: World) -> None:
    for name in ("n1", "n2"):
        world.ask(calls.TaintNode(name, (("maintenance", "today"),), []))
    vc = world.create(flexible_resource_min={"CPU": 6})
    assert world.state(vc) == "QUEUED"
    assert "only with the 2 nodes that have the untolerated taint maintenance=today" in world.look(vc)["reason"]
    for name in ("n1", "n2"):
        world.ask(calls.TaintNode(name, (), ["maintenance"]))
    world.later(0.1)
    assert world.state(vc) == "READY"
