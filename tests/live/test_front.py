"""The typed front door: the same as Ray's own functions, and what is misspelled is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray._common import ray_option_utils
from tests.live.conftest import World
from tests.live.test_virtual_clusters import which

import remora
from remora import InvalidInputError, RemoraError, VirtualCluster, options


@ray.remote(**options(num_cpus=1, label_selector={"zone": "in(a, b)"}))
def node_id() -> str:
    found: str = ray.get_runtime_context().get_node_id()
    return found


def test_options_are_those_of_ray_and_ours(world: World) -> None:
    """Contract: an option that a Ray adds has to be added to ``Options``."""
    known = {name for name in ray_option_utils.valid_options if not name.startswith("_")}
    assert known == set(remora.Options.__annotations__)


def test_checked_options_decorate_and_are_given(world: World) -> None:
    assert ray.get(node_id.remote()) in {node["NodeID"] for node in ray.nodes()}
    assert ray.get(node_id.options(**options(label_selector={"ray.io/node-id": world.ids["a"]})).remote()) == world.ids["a"]


@pytest.mark.parametrize("what", ["a task", "an actor", "a decorator"])
def test_a_misspelled_option_is_refused_with_what_was_meant(world: World, what: str) -> None:
    class Cat:
        pass

    makes = {
        "a task": lambda: node_id.options(toleration={}),
        "an actor": lambda: ray.remote(Cat).options(toleration={}),
        "a decorator": lambda: ray.remote(toleration={})(Cat),
    }
    with pytest.raises(ValueError, match=r"Invalid option keyword toleration .*\. Did you mean 'tolerations'\?"):
        makes[what]()


def test_a_misspelled_argument_of_init_is_refused_with_what_was_meant(world: World) -> None:
    with pytest.raises(InvalidInputError, match=r"no argument 'tolerance': did you mean 'tolerations'\?"):
        remora.init(tolerance={})


def test_a_placement_group_with_our_options(world: World) -> None:
    group = remora.placement_group([{"CPU": 1}], "STRICT_PACK", bundle_label_selector=[{"ray.io/node-id": world.ids["b"]}])
    try:
        assert group.wait(30)
        table = ray.util.placement_group_table(group)
        assert set(table["bundles_to_node_id"].values()) == {world.ids["b"]}
        assert table["strategy"] == "STRICT_PACK"
    finally:
        ray.util.remove_placement_group(group)


def test_where_this_process_is(world: World) -> None:
    assert remora.current_cluster().cluster_id() == "root"
    with VirtualCluster(flexible_resource_min={"CPU": 1}, timeout=60):
        inside = remora.current_cluster()
        assert inside.cluster_id() == ray.get(which.remote())
        assert [row["cluster_id"] for row in remora.virtual_clusters()] == [inside.cluster_id()]
    assert remora.current_node().node_id() == ray.get_runtime_context().get_node_id()


@pytest.mark.parametrize("what", [remora.current_cluster, remora.current_node, lambda: remora.placement_group([{"CPU": 1}])])
def test_who_is_not_attached_is_told_to_attach(stock: World, what: Callable[[], Any]) -> None:
    with pytest.raises(RemoraError, match=r"call remora\.init\(\), or remora\.attach\(\) after ray\.init\(\)"):
        what()
