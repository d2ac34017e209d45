"""Holds of our own: what they take is nobody's use."""

from __future__ import annotations

from tests.unit.controller.leased import LeasedWorld, wanted

from remora.controller.effects import Put, perform
from remora.wire.keys import HOLDS


def test_a_share_of_which_all_is_held_is_not_in_use_though_the_hold_was_reported_before_its_answer_came():
    world = LeasedWorld("n1", "n2")
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    world.want(cluster_id)
    assert world.free(cluster_id) == 1
    for _ in range(60):
        world.time += 0.2
        world.controller.report(world.port.observe())
        world.controller.round()
        answers = [perform(world.port, effect) for effect in world.controller.plan()]
        world.controller.report(world.port.observe())
        for done in answers:
            world.controller.done(done)
    assert world.port.holds != {}
    assert [row["used"] for row in world.status()["nodes"]] == [{"CPU": 0}, {"CPU": 0}]
    assert {world.place(wanted(cpus=4, labels={"a": "b"}))[1] for _ in range(2)} == {"n1", "n2"}


def test_one_that_was_to_be_made_on_a_node_that_leaves_is_not_remembered():
    world = LeasedWorld("n1", "n2")
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    world.want(cluster_id)
    for _ in range(60):
        world.time += 0.2
        world.controller.report(world.port.observe())
        world.controller.round()
        effects = world.controller.plan()
        hold = next((each.key for each in effects if isinstance(each, Put) and each.key.startswith(HOLDS.prefix)), None)
        if hold is not None:  # it is being remembered
            world.port.leave(HOLDS.parts(hold)[0])
            world.controller.report(world.port.observe())
        for effect in effects:
            world.controller.done(perform(world.port, effect))
        if hold is not None:
            break
    assert hold is not None
    world.pass_time(2)
    assert [key for key in world.port.keys("") if key.startswith(HOLDS.prefix)] == []
