"""Names of virtual clusters are used again, but not while anything is left of the last one, nor soon after."""

from __future__ import annotations

from tests.unit.controller.worlds import World

from remora.port.contract import ENDED, RUNNING, WAITING
from remora.wire.timing import COOL_SECONDS


def test_a_name_is_used_again_after_a_while(world: World) -> None:
    """Ray never forgets a kind of task, and each name makes new kinds."""
    first = world.create(flexible_resource_min={"CPU": 1})
    world.close(first, unused=True)
    assert world.state(first) == "GONE"
    assert world.create(flexible_resource_min={"CPU": 1}) != first
    world.later(COOL_SECONDS + 1)
    assert world.create(flexible_resource_min={"CPU": 1}) == first


def test_a_name_rests_also_when_the_controller_was_restarted(world: World) -> None:
    """Processes trust what they know of it for as long, whoever the controller is."""
    first = world.create(flexible_resource_min={"CPU": 1})
    world.later(2)
    world.close(first, unused=True)
    world.later(2)
    world.restart()
    assert world.create(flexible_resource_min={"CPU": 1}) != first
    world.later(COOL_SECONDS + 1)
    assert world.create(flexible_resource_min={"CPU": 1}) == first


def test_a_name_rests_when_its_cluster_was_made_by_a_controller_before(world: World) -> None:
    first = world.create(flexible_resource_min={"CPU": 1})
    world.restart()
    world.later(COOL_SECONDS + 1)
    world.close(first, unused=True)
    assert world.create(flexible_resource_min={"CPU": 1}) != first


def test_a_name_is_not_used_again_while_a_token_of_it_stands(world: World) -> None:
    """Work of its last cluster holds it; only its job has ended, and it was forgotten."""
    first = world.create(flexible_resource_min={"CPU": 1})
    (node,) = world.tokens(first)
    held = world.run(first, node)
    world.port.put(f"vc/{first}", None)
    world.restart()
    world.later(COOL_SECONDS + 1)
    assert world.tokens(first) == {node: 1}
    assert world.create(flexible_resource_min={"CPU": 1}) != first
    world.port.give(node, held)
    world.later(0.1)
    assert not world.tokens(first)
    assert world.create(flexible_resource_min={"CPU": 1}) == first


def test_a_name_is_not_used_again_while_a_token_of_it_is_only_held(world: World) -> None:
    first = world.create(flexible_resource_max={"CPU": 2})
    world.want(first, 2)
    world.later(6)
    assert world.free(first) == 0
    assert world.holds()
    world.port.let_go = lambda _: (_ for _ in ()).throw(OSError("GCS does not answer"))  # type: ignore[assignment, method-assign]
    world.host.allows_failures = True
    world.job("j1", ENDED)
    world.later(0.1)
    assert world.state(first) == "GONE"
    world.later(COOL_SECONDS + 1)
    assert world.tokens(first)
    assert world.create(job="j2", flexible_resource_min={"CPU": 1}) != first


def test_a_name_is_not_used_again_while_an_actor_lives_that_was_made_in_it(world: World) -> None:
    """It bears the name, and may restart there."""
    first = world.create(flexible_resource_max={"CPU": 1})
    world.actor("a1", RUNNING, first, node_ids=("n1",))
    world.job("j1", ENDED)
    world.later(1)
    world.port.put(f"vc/{first}", None)
    world.restart()
    world.later(COOL_SECONDS + 1)
    assert world.create(job="j2", flexible_resource_min={"CPU": 1}) != first
    world.actor("a1", ENDED, first, "DEAD")
    world.later(COOL_SECONDS + 1)
    world.later(0.1)
    assert world.create(job="j2", flexible_resource_min={"CPU": 1}) == first


# Actors that outlive their ``with``


def test_an_actor_that_outlives_its_with_keeps_the_record_and_nothing_is_reserved(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    (node,) = world.tokens(vc)
    actor = world.actor("a1", RUNNING, vc, node_ids=(node,))
    world.close(vc)
    for _ in range(80):
        world.later(10)
    assert world.state(vc) == "CLOSED"
    assert world.sums() == {"n1": 0, "n2": 0}
    other = world.create(job="j2", flexible_resource_min={"CPU": 8})
    assert world.state(other) == "READY"
    world.close(other, unused=True)

    # It restarts: it waits for a share of its cluster, and gets it.
    world.actor(actor.work_id, WAITING, vc, "RESTARTING", restarts=1)
    world.want(vc, 1)
    assert sum(world.tokens(vc).values()) == 1
    (where,) = world.tokens(vc)
    held = world.run(vc, where)
    world.actor(actor.work_id, RUNNING, vc, node_ids=(where,))
    for _ in range(3):
        world.later(10)
    assert world.state(vc) == "CLOSED"
    assert world.tokens(vc) == {where: 1}

    world.port.give(where, held)
    world.actor(actor.work_id, ENDED, vc, "DEAD")
    for _ in range(80):
        world.later(10)
    assert world.state(vc) == "GONE"
    assert not world.port.keys("vc/")
    assert not world.tokens(vc)


def test_a_restarted_controller_keeps_the_record_too(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 2})
    world.actor("a1", RUNNING, vc, node_ids=("n1",))
    world.job("j1", ENDED)  # the actor is detached
    world.later(1)
    world.restart()
    world.later(1)
    assert world.state(vc) == "CLOSED"
    world.actor("a1", ENDED, vc, "DEAD")
    world.later(1)
    world.later(1)
    assert world.state(vc) == "GONE"
