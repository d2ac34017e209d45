"""Shares that were only borrowed are reclaimed for a minimum, whatever becomes of the borrower meanwhile."""

from __future__ import annotations

import pytest
from tests.unit.controller.worlds import World

from remora.port.contract import ENDED


def borrow_everything(world: World) -> tuple[str, list[tuple[str, dict[str, float]]]]:
    greedy = world.create()
    world.want(greedy, 100)
    held = [(node, world.run(greedy, node)) for node in ("n1", "n2") for _ in range(4)]
    world.later(0.1)
    return greedy, held


@pytest.mark.parametrize("told", ["before its processes end", "after its processes end", "never, but looked up"])
def test_a_driver_that_is_killed_while_its_share_is_reclaimed_holds_nobody_up(world: World, told: str) -> None:
    """Nothing is set aside on the way (the host of these tests would say so), and whoever is queued gets its minimum."""
    greedy, held = borrow_everything(world)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    world.later(0.1)
    assert world.state(waiting) == "QUEUED"
    assert any(greedy in world.fence(node) for node in ("n1", "n2"))
    world.host.deaf = told == "never, but looked up"
    if told != "after its processes end":
        world.job("j1", ENDED)
        world.later(0.1)
    for node, tokens in held:  # its workers are killed, one after the other
        world.port.give(node, tokens)
        world.later(0.1)
    if told == "after its processes end":
        world.job("j1", ENDED)
    for _ in range(3):
        world.later(8)
    assert world.state(waiting) == "READY"
    assert world.state(greedy) == "GONE"
    assert sum(world.tokens(waiting).values()) == 2
    assert not any(world.fence(node) for node in ("n1", "n2"))


def test_a_share_that_looked_idle_for_a_moment_and_is_used_again_comes_back_all_the_same(world: World) -> None:
    """A report shows a worker between two tasks of its lease; what the kernel gives away then is in use when it is taken."""
    greedy, held = borrow_everything(world)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    world.later(0.1)
    node = next(node for node in ("n1", "n2") if greedy in world.fence(node))
    idle = [tokens for where, tokens in held if where == node][:2]
    for tokens in idle:
        world.port.give(node, tokens)
    world.host.controller.report(world.port.observe())
    world.host.controller.round()
    for tokens in idle:
        world.port.take(node, tokens)
    world.host.pump()
    assert world.state(waiting) == "READY"
    for _ in range(5):
        world.later(0.1)
    assert greedy in world.fence(node)  # or it would go on for as long as there is anything to do
    for tokens in idle:
        world.port.give(node, tokens)
        world.later(0.1)
    world.later(0.1)
    assert sum(world.tokens(waiting).values()) == 2
    for _ in range(5):
        world.later(0.1)
    assert not any(world.fence(each) for each in ("n1", "n2"))


def test_a_driver_that_is_killed_with_all_its_processes_at_once_holds_nobody_up(world: World) -> None:
    """Its cluster is gone in the very round that reclaims its share."""
    greedy, held = borrow_everything(world)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    world.later(0.1)
    assert world.state(waiting) == "QUEUED"
    world.job("j1", ENDED)
    for node, tokens in held:
        world.port.give(node, tokens)
    world.later(0.1)
    assert world.state(greedy) == "GONE"
    world.later(0.1)
    assert world.state(waiting) == "READY"


def test_whoever_is_queued_may_be_killed_too(world: World) -> None:
    greedy, held = borrow_everything(world)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    world.later(0.1)
    world.job("j2", ENDED)
    world.later(0.1)
    world.later(0.1)
    assert world.state(waiting) == "GONE"
    assert not any(world.fence(node) for node in ("n1", "n2"))
    world.port.give(*held[0])
    world.want(greedy, 1)
    assert world.free(greedy) == 1


def test_a_node_may_leave_while_shares_on_it_are_reclaimed(world: World) -> None:
    _, held = borrow_everything(world)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    world.later(0.1)
    world.port.leave("n2")
    world.later(0.1)
    for node, tokens in held[:2]:
        world.port.give(node, tokens)
    world.later(0.1)
    world.later(0.1)
    assert world.state(waiting) == "READY"


def test_borrowed_shares_are_reclaimed_for_one_that_lost_its_node(world: World) -> None:
    """It is not in the queue, and waited for as long as the borrower had anything to do."""
    owner = world.create(job="j2", fixed_size_nodes=[{"nodes": [{"resources": {"CPU": 2}}]}])
    home = next(iter(world.tokens(owner)))
    other = "n2" if home == "n1" else "n1"
    greedy = world.create()
    world.want(greedy, 100)
    held = [(other, world.run(greedy, other)) for _ in range(4)]
    world.later(0.1)
    world.port.leave(home)
    world.later(0.1)
    world.later(0.1)
    assert greedy in world.fence(other)
    for node, tokens in held[:2]:
        world.port.give(node, tokens)
    world.later(0.1)
    world.later(0.1)
    assert world.tokens(owner) == {other: 2}
