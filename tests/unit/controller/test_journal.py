"""What happened, in order, also for whoever comes after a controller that was killed."""

from __future__ import annotations

from tests.unit.controller.leased import LeasedWorld

from remora.wire import calls


def test_what_happened_is_told_in_order_and_remembered_by_the_next_controller():
    world = LeasedWorld("n1", "n2")
    world.taint("n1", k="v")
    world.lose("n2")
    world.later(1)  # it is written once a second
    world.restart()
    told = [(entry["kind"], entry["subject"], entry["text"]) for entry in world.ask(calls.GetEvents())]
    began = "the controller started; it remembers 0 classes"
    joined = "the node 127.0.0.1 joined"
    assert told == [
        ("node", "n1", joined),
        ("node", "n2", joined),
        ("controller", "", began),
        ("taint", "n1", "k=v"),
        ("node", "n2", "the node left"),
        ("controller", "", began),
    ]
