"""What programs and people are shown of virtual clusters; and whose a token is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.worlds import World

from remora import FixedSizeNode, FixedSizeNodes
from remora.wire import calls
from remora.wire.tokens import class_token, cluster_of_work, lease_token, share_token, without_tokens


def rows(world: World) -> dict[str, dict[str, Any]]:
    return {row["cluster_id"]: row for row in world.ask(calls.GetTree())}


def test_the_root_is_the_physical_cluster(world: World) -> None:
    (root,) = rows(world).values()
    assert (root["cluster_id"], root["parent"], root["total"], root["used"]) == ("root", None, {"CPU": 8}, {})
    assert [node["labels"] for node in root["nodes"]] == [
        {"ray.io/vnode_id": name, "ray.io/vcluster_id": "root"} for name in ("n1", "n2")
    ]


def test_what_a_virtual_cluster_has_is_not_available_in_the_root(world: World) -> None:
    """The proposal's walk-through: two virtual nodes of one CPU, strictly spread."""
    spread = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    made = world.create(fixed_size_nodes=[spread])
    seen = rows(world)
    assert [node["used"] for node in seen["root"]["nodes"]] == [{"CPU": 1}, {"CPU": 1}]
    own = seen[made]
    assert (own["parent"], own["total"], own["used"]) == (None, {"CPU": 2}, {})
    assert sorted(node["parent"] for node in own["nodes"]) == ["n1", "n2"]


def test_looking_observes_and_writes_nothing(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 2})
    world.want(vc, 2)
    world.later(2)
    world.port.take("n1", {"CPU": 1})
    world.time += 1000  # a round would give back what is idle
    before, keys = world.views(), {key: world.port.get(key) for key in world.port.keys("")}
    assert rows(world)["root"]["used"] == {"CPU": 3}
    assert world.views() == before
    assert {key: world.port.get(key) for key in world.port.keys("")} == keys


def test_no_virtual_cluster_is_shown_for_a_group_and_what_it_has_is_used(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    world.offer(vc)
    world.later(0.1)
    (row,) = world.ask(calls.GetClusters())
    assert (row["cluster_id"], row["used"]) == (vc, {"CPU": 1})


def test_a_closed_one_that_has_given_everything_back_is_not_shown(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 2})
    world.close(vc)
    for _ in range(3):
        world.later(1)
    assert world.state(vc) == "CLOSED"
    assert world.ask(calls.GetClusters()) == []


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"CPU": 1}, None),
        ({"CPU": 1, class_token("abc"): 1}, None),
        ({lease_token("7"): 1}, None),
        ({class_token("vc3.abc"): 1}, "vc3"),
        ({"CPU": 1, share_token("vc3", "CPU"): 1}, "vc3"),
        ({share_token("vc3.abc", "CPU"): 1}, "vc3"),
    ],
)
def test_a_token_tells_whose_work_it_is(resources: dict[str, float], want: str | None) -> None:
    assert cluster_of_work(resources) == want


def test_no_token_is_shown() -> None:
    amounts = {"CPU": 1.0, "CPU_group_ab": 1.0, class_token("x"): 1.0, class_token("x") + "_group_0_ab": 1.0}
    assert without_tokens(amounts) == {"CPU": 1.0, "CPU_group_ab": 1.0}
