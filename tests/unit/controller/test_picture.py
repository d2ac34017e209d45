"""What nodes report and what was said about them: labels, taints, rare resources, nodes that join and leave."""

from __future__ import annotations

import pytest
from tests.unit.controller.leased import FaultyPort, LeasedWorld, spec

from remora import UnknownNameError
from remora.errors import ConflictError
from remora.model.taints import isolation_label, rare_resources
from remora.wire import calls
from remora.wire.keys import OVERRIDES

PLAIN, IN_B = spec(), spec(label_selector={"zone": "b"})


@pytest.fixture
def world() -> LeasedWorld:
    port = FaultyPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b", "taint.remora.io/gpu": "true"})
    return LeasedWorld(port=port)


def test_labels_and_taints_said_at_run_time_are_remembered_by_the_next_controller(world: LeasedWorld):
    world.ensure(PLAIN)
    world.ensure(IN_B)
    world.label("n1", zone="b")
    world.taint("n2", "gpu")
    assert (world.offers(PLAIN), world.offers(IN_B)) == ({"n1", "n2"}, {"n1", "n2"})
    world.restart()
    assert (world.offers(PLAIN), world.offers(IN_B)) == ({"n1", "n2"}, {"n1", "n2"})
    world.label("n1", "zone")
    assert world.offers(IN_B) == {"n2"}


def test_a_node_that_left_is_forgotten(world: LeasedWorld):
    world.ensure(PLAIN)
    world.taint("n1", k="v")
    assert world.port.keys(OVERRIDES.prefix) == [OVERRIDES.key("n1")]
    world.lose("n1")
    assert [row["node_id"] for row in world.status()["nodes"]] == ["n2"]
    assert world.port.keys(OVERRIDES.prefix) == []
    assert world.port.holds == {}
    with pytest.raises(UnknownNameError, match="no node has the id 'n1': the nodes are n2"):
        world.taint("n1", k="v")


def test_a_node_is_found_by_its_id_the_beginning_of_it_or_its_address(world: LeasedWorld):
    assert world.ask(calls.FindNode("n2", None)) == "n2"
    world.port.join("abcdef", {"CPU": 1})
    assert world.ask(calls.FindNode("abc", None)) == "abcdef"
    with pytest.raises(UnknownNameError, match=r"3 nodes have the address '127.0.0.1': say which, .*: n1 .*, n2 .*, abcdef"):
        world.ask(calls.FindNode(None, "127.0.0.1"))
    with pytest.raises(UnknownNameError, match="no node has the id ''"):
        world.ask(calls.FindNode("", None))
    assert world.ask(calls.FindNode(None, None, "abc")) == "abcdef"
    world.port.join("ab", {"CPU": 1})
    assert world.ask(calls.FindNode(None, None, "ab")) == "ab"  # whole names come before beginnings
    for number in range(10):
        world.port.join(f"x{number}", {"CPU": 1})
    with pytest.raises(UnknownNameError, match=r"no node has the id, name or address 'z': the nodes are .* and 6 more"):
        world.ask(calls.FindNode(None, None, "z"))


def marks(world: LeasedWorld, node_id: str) -> tuple[dict[str, str], dict[str, str]]:
    (row,) = [row for row in world.status()["nodes"] if row["node_id"] == node_id]
    return row["labels"], row["taints"]


def test_what_is_taken_away_has_to_be_there_with_the_value_that_is_named(world: LeasedWorld):
    world.ask(calls.TaintNode("n1", (("k", "1"), ("l", "")), []))
    for drop, values, message in (
        (["m"], (), "has no taint 'm': its taints are k=1,l=; nothing was changed"),
        (["k"], (("k", "2"),), "has the taint k=1, not k=2; nothing was changed"),
        (["l", "m"], (), "has no taint 'm'"),
    ):
        with pytest.raises(ConflictError, match=message):
            world.ask(calls.TaintNode("n1", (("new", "x"),), drop, "", None, values))
        assert marks(world, "n1")[1] == {"k": "1", "l": ""}
    with pytest.raises(ConflictError, match="has no label 'tier': its labels are zone=a"):
        world.ask(calls.LabelNode("n1", (), ["tier"]))
    world.ask(calls.TaintNode("n1", (), ["k", "l"], "once", None, (("k", "1"),)))
    world.ask(calls.TaintNode("n1", (), ["k", "l"], "once", None, (("k", "1"),)))  # it arrives twice
    assert marks(world, "n1")[1] == {}


def test_a_label_with_the_prefix_of_taints_is_the_taint(world: LeasedWorld):
    world.ensure(PLAIN)
    world.ask(calls.LabelNode("n1", (("taint.remora.io/x", "1"), ("zone", "a")), []))
    assert marks(world, "n1") == ({"zone": "a"}, {"x": "1"})
    assert "n1" not in world.ensure(PLAIN)
    world.ask(calls.LabelNode("n1", (), ["taint.remora.io/x"]))
    assert marks(world, "n1") == ({"zone": "a"}, {})


def test_a_node_with_a_rare_resource_is_tainted_and_who_asks_for_it_tolerates_that():
    port = FaultyPort()
    port.join("head", {"CPU": 1}, {isolation_label("GPU"): "true", isolation_label("odd"): "true"})
    port.join("g", {"CPU": 4, "GPU": 1})
    port.join("o", {"CPU": 4, "Odd": 1})
    world = LeasedWorld(port=port)
    rare = rare_resources({isolation_label("GPU"): "true", isolation_label("odd"): "true", "zone": "true"})
    assert world.controller.picture.rare == rare == {"gpu", "odd"}
    assert world.ensure(PLAIN) == ["head"]
    tolerant = PLAIN.tolerating(["rare_resource.ray.io/gpu"])
    assert world.ensure(tolerant) == ["head", "g"]
    assert {row["node_id"]: row["taints"] for row in world.status()["nodes"]} == {
        "head": {},
        "g": {"rare_resource.ray.io/gpu": "true"},
        "o": {"rare_resource.ray.io/odd": "true"},
    }
    world.taint("g", "rare_resource.ray.io/gpu")
    assert world.offers(PLAIN) == {"head", "g"}
