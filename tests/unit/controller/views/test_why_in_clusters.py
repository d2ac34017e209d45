"""Why work waits inside a virtual cluster, and why a virtual cluster is queued: each for its own reason, and true."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.worlds import ANY, World

from remora import FixedSizeNode, FixedSizeNodes
from remora.port.memory_port import MemoryPort
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.shapes import shape_key
from remora.wire.tokens import TAKEN, class_token, share_token


def shape_of(vc: str, spec: ClassSpec, cpus: float = 1.0) -> dict[str, float]:
    """Return what a task asks for: the share token is the last, and the same for all selectors."""
    return {"CPU": cpus, class_token(spec.class_id): TAKEN, share_token(vc, "CPU"): cpus}


def selecting(vc: str, zone: str) -> ClassSpec:
    choices = rewrite({"label_selector": {"zone": zone}}, Defaults()).spec.choices
    return ClassSpec(choices, cluster=vc)


def test_what_waits_in_a_full_cluster_is_told_why(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 1})
    spec = ClassSpec((ANY,), cluster=vc)
    world.want(vc)
    (node,) = world.tokens(vc)
    world.run(vc, node)
    shape = shape_of(vc, spec)
    world.port.wait(shape, 3)
    world.later(0.1)
    (row,) = world.ask(calls.GetWaiting([shape_key((shape,))]))
    assert row["count"] == 3
    assert vc in row["reason"]
    assert row["busy"]


def test_two_selectors_in_a_cluster_wait_for_reasons_of_their_own() -> None:
    port = MemoryPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    world = World(nodes=(), port=port)
    vc = world.create(flexible_resource_max={"CPU": 4})
    world.want(vc, 4)
    (node,) = world.tokens(vc)
    world.run(vc, node, 4)
    shapes = []
    for zone in ("a", "b"):
        spec = selecting(vc, zone)
        world.ask(calls.EnsureClass(spec.encode()))
        shapes.append(shape_of(vc, spec))
        world.port.wait(shapes[-1])
    world.later(0.1)
    full, nowhere = world.ask(calls.GetWaiting([shape_key((shape,)) for shape in shapes]))
    assert full["reason"] != nowhere["reason"]
    assert (full["wants"], full["busy"]) == ("zone=a", True)
    assert (nowhere["wants"], nowhere["busy"]) == ("zone=b", False)
    assert "zone=b" in nowhere["reason"]
    assert world.ask(calls.GetWaiting(["nobody waits for this"])) == [None]


@pytest.mark.parametrize(
    ("spec", "said", "unsaid"),
    [
        ({"flexible_resource_min": {"CPU": 3}}, "3 CPU needed, 2 free", "laid out"),
        (
            {"fixed_size_nodes": [FixedSizeNodes([FixedSizeNode({"CPU": 2})])]},
            "2 CPU free, but not laid out as asked",
            "needed",
        ),
    ],
)
def test_a_layout_is_the_reason_only_where_one_was_asked_for(
    world: World, spec: dict[str, Any], said: str, unsaid: str
) -> None:
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 3})
    world.later(0.1)
    vc = world.create(**spec)
    look = world.look(vc)
    assert look["state"] == "QUEUED"
    assert said in look["reason"]
    assert unsaid not in look["reason"]


def test_a_minimum_that_fits_and_is_not_reserved_yet_is_said_to_be_about_to_be(world: World) -> None:
    """Between what the nodes report and the round that reserves it. It asks for no layout, and none is the reason."""
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 3})
    world.later(0.1)
    vc = world.create(flexible_resource_min={"CPU": 3})
    world.port.give("n1", {"CPU": 3})
    look = world.look(vc)
    assert look["state"] == "READY" or "about to be reserved" in look["reason"]
    assert "laid out" not in look["reason"]


def test_a_node_that_shrank_below_its_shares_makes_no_question_fail(world: World) -> None:
    """Its raylet came back with fewer CPUs, or a device failed: what was reserved there is more than it has."""
    vc = world.create(
        fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 4}), FixedSizeNode({"CPU": 4})], "STRICT_SPREAD")]
    )
    world.port.resize("n1", {"CPU": 2})
    world.later(0.1)
    offer = world.offer(vc, {"CPU": 2}, ask="g1")
    assert offer.share_id is not None or offer.reason
    offer = world.offer(vc, {"CPU": 5}, ask="g2")
    assert (offer.option, offer.share_id) == (None, None)
    inner = world.create(parent=vc, flexible_resource_min={"CPU": 1})
    assert world.state(inner) in ("READY", "QUEUED")
    other = world.create(job="j2", flexible_resource_min={"CPU": 4})
    assert world.state(other) == "QUEUED"
    assert world.look(other)["reason"]
