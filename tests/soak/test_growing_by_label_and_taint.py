"""Which types are started: selectors with fallbacks, taints of types, maxima that are named. ``make soak``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from tests.autoscaling_ray import TOLERATES, TYPES, Autoscaling, asked, eventually, kind_of_node, kinds, node_id
from tests.soak.growing import assert_empty, attached_cluster

import remora

SPARSE = {**TYPES, "fast": {"resources": {"CPU": 2, "fast": 1}, "labels": {"kind": "fast"}, "max_workers": 1}}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaling]:
    """Machines with the resource ``fast`` are rare: they are for those who ask for it."""
    yield from attached_cluster(tmp_path_factory, types=SPARSE, labels={"rare-resource.remora.io/fast": "true"})


@pytest.fixture(autouse=True)
def empty(growing: Autoscaling) -> Iterator[None]:
    yield
    assert_empty()


def reason(ref: ray.ObjectRef) -> str:
    return str(remora.explain(ref))


def test_a_selector_decides_which_type_is_started(growing: Autoscaling) -> None:
    ref = kind_of_node.options(label_selector={"kind": "web"}).remote()
    assert ray.get(ref, timeout=40) == "web"
    assert kinds() == ["web"]


def test_a_fallback_is_taken_when_no_type_could_hold_the_first(growing: Autoscaling) -> None:
    fallback = [{"label_selector": {"kind": "web"}}]
    ref = kind_of_node.options(label_selector={"kind": "none"}, fallback_strategy=fallback).remote()
    assert ray.get(ref, timeout=40) == "web"


def test_a_fallback_is_not_taken_while_a_type_could_hold_the_first(growing: Autoscaling) -> None:
    """All that there may be of the first are busy, so the second of two waits, though a type of its fallback is free."""
    first = {"label_selector": {"kind": "fast"}, "resources": {"fast": 1}}
    holder = kind_of_node.options(**first).remote(12.0)
    eventually(lambda: kinds() == ["fast"], 40)
    waits = kind_of_node.options(**first, fallback_strategy=[{"label_selector": {"kind": "web"}}]).remote()
    eventually(lambda: "type fast is at its maximum of 1" in reason(waits), 10)
    assert ray.get([holder, waits], timeout=60) == ["fast", "fast"]
    assert kinds() == ["fast"]


def test_a_group_gets_machines_for_each_bundle_by_its_own_selector_and_as_a_whole(growing: Autoscaling) -> None:
    group = placement_group([{"CPU": 1}] * 2, bundle_label_selector=[{"kind": "web"}, {"kind": "fast"}], strategy="SPREAD")
    assert not group.wait(5), "plain bundles may not lie on rare machines"
    assert kinds() == []
    remove_placement_group(group)
    mixed = [{"CPU": 1}, {"CPU": 1, "fast": 1}]
    group = placement_group(mixed, bundle_label_selector=[{"kind": "web"}, {"kind": "fast"}], strategy="SPREAD")
    assert group.wait(40)
    assert kinds() == ["fast", "web"]
    remove_placement_group(group)


def test_a_group_falls_back_as_a_whole_when_no_types_could_hold_its_first_choice(growing: Autoscaling) -> None:
    """One web machine and one of a kind that there is not: its fallback needs two web machines, and these come together."""
    group = placement_group(
        [{"CPU": 2}] * 2,
        bundle_label_selector=[{"kind": "web"}, {"kind": "none"}],
        fallback_strategy=[{"bundles": [{"CPU": 2}] * 2, "bundle_label_selector": [{"kind": "web"}] * 2}],
    )
    known = len(asked())
    assert group.wait(40)
    assert kinds() == ["web", "web"]
    assert "2 nodes of type web asked for" in asked()[known]
    assert len(set(placement_group_table(group)["bundles_to_node_id"].values())) == 2
    remove_placement_group(group)


def test_a_hundred_plain_tasks_never_start_tainted_machines_and_let_those_that_are_there_go(growing: Autoscaling) -> None:
    """ray#47866: machines with GPUs idled on for as long as tasks waited that could have run there."""
    assert ray.get(kind_of_node.options(num_gpus=1, **TOLERATES).remote(), timeout=40) == "gpu"
    known = len(asked())
    refs = [kind_of_node.remote(1.5) for _ in range(100)]
    eventually(lambda: "gpu" not in kinds(), 40)
    _, waiting = ray.wait(refs, num_returns=100, timeout=0)
    assert waiting, "they have to wait while the machine goes, or this shows nothing"
    assert kinds() == ["web", "web", "web"]
    assert set(ray.get(refs, timeout=120)) == {"web"}
    assert all("of type web" in text for text in asked()[known:])


def test_a_rare_resource_starts_its_type_for_those_who_ask_for_it(growing: Autoscaling) -> None:
    ref = kind_of_node.options(resources={"fast": 1}).remote()
    assert ray.get(ref, timeout=40) == "fast"
    assert kinds() == ["fast"]


def test_what_tolerates_nothing_says_which_taint_is_in_its_way(growing: Autoscaling) -> None:
    ref = kind_of_node.options(num_gpus=1).remote()
    eventually(lambda: "no type can hold it: gpu has the untolerated taint gpu_node=true" in reason(ref), 10)
    ray.cancel(ref)


def test_a_node_that_is_tainted_makes_another_come(growing: Autoscaling) -> None:
    first = ray.get(node_id.remote(), timeout=40)
    remora.taint_node(first, {"broken": "true"})
    assert ray.get(node_id.remote(), timeout=40) != first
