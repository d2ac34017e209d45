"""Placement groups that wait to be created: to everybody who looks they are as Ray's own that are pending."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.exceptions import RaySystemError
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually, line_of, run_driver, waits

import remora
from remora.live.adapter.kv import Kv
from remora.wire.keys import LATE_GROUPS


@pytest.fixture
def team(world: World) -> Iterator[Any]:
    """A label that no node has, until one gets it."""
    name, given = f"t{time.monotonic_ns()}", []

    def give() -> None:
        remora.label_node(world.ids["b"], {name: "yes"})
        given.append(name)

    yield give, {name: "yes"}
    if given:
        remora.label_node(world.ids["b"], {name: None})


def kept() -> list[str]:
    return Kv().keys(LATE_GROUPS.prefix)


def inside(group: Any, index: int = -1) -> dict[str, Any]:
    return {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, index), "num_cpus": 1}


@pytest.mark.core
def test_it_can_be_looked_at_and_what_is_submitted_into_it_waits_without_a_word(world: World, where: Any, team: Any) -> None:
    give, selector = team
    began = time.monotonic()
    group = placement_group([{"CPU": 1}, {"CPU": 1}], name="the late one", bundle_label_selector=[selector] * 2)
    again = get_placement_group("the late one")
    table = placement_group_table(group)
    task, other = where.options(**inside(group, 0)).remote(), where.options(**inside(again)).remote()
    actor = ray.remote(Sitter).options(**inside(group, 1)).remote()
    where_actor, ready = actor.node.remote(), group.ready()
    assert time.monotonic() - began < 10  # nothing of this waits for the group
    assert not group.is_empty
    assert again == group
    assert again.bundle_specs == group.bundle_specs == [{"CPU": 1.0}, {"CPU": 1.0}]
    assert (table["state"], table["name"], table["strategy"]) == ("PENDING", "the late one", "PACK")
    assert placement_group_table()[group.id.hex()]["state"] == "PENDING"
    assert not group.wait(0.5)
    for ref in (task, other, where_actor, ready):
        assert waits(ref, 0.1)
    give()
    assert ray.get(ready, timeout=60) == group
    assert group.wait(10)
    assert world.names([task, where_actor]) == ["b", "b"]
    ray.kill(actor)
    assert world.names([other]) == ["b"]
    assert placement_group_table(group)["state"] == "CREATED"
    remove_placement_group(group)
    eventually(lambda: not kept(), 30)


class Sitter:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def test_whoever_waits_for_one_that_is_removed_is_told(world: World, team: Any) -> None:
    _, selector = team
    group = placement_group([{"CPU": 1}], bundle_label_selector=[selector])
    ready, answers = group.ready(), []

    def wait() -> None:
        try:
            answers.append(group.wait(60))
        except Exception as error:  # noqa: BLE001 - that is what Ray raises
            answers.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits(ready, 0.5)
    remove_placement_group(group)
    with pytest.raises(Exception, match="removed"):
        ray.get(ready, timeout=20)
    waiting.join(20)
    assert answers == [f"Placement group {group.id} does not exist."]
    assert placement_group_table(group).get("state") != "PENDING"
    eventually(lambda: not kept(), 30)


def test_two_of_a_name_are_refused_also_while_they_wait(world: World, team: Any) -> None:
    _, selector = team
    group = placement_group([{"CPU": 1}], name="twice", bundle_label_selector=[selector])
    with pytest.raises(RaySystemError, match="name 'twice' already exists"):
        placement_group([{"CPU": 1}], name="twice", bundle_label_selector=[selector])
    with pytest.raises(RaySystemError, match="name 'twice' already exists"):
        placement_group([{"CPU": 1}], name="twice")
    remove_placement_group(group)
    with pytest.raises(ValueError, match="twice"):
        get_placement_group("twice")


def test_one_that_is_removed_in_the_moment_in_which_it_becomes_possible_is_gone(world: World) -> None:
    """Again and again, a little later each time."""
    free = ray.available_resources()["CPU"]
    for number in range(12):
        label = {f"now{number}": "yes"}
        group = placement_group([{"CPU": 1}], bundle_label_selector=[label])
        remora.label_node(world.ids["b"], label)
        time.sleep(0.05 * number)
        remove_placement_group(group)
        remora.label_node(world.ids["b"], dict.fromkeys(label))
    eventually(lambda: not kept(), 60)
    eventually(lambda: ray.available_resources().get("CPU") == free, 30)
    states = {entry["state"] for entry in placement_group_table().values()}
    assert states <= {"REMOVED", "CREATED"}


def test_one_that_a_task_asked_for_comes_although_its_worker_is_gone(world: World, team: Any) -> None:
    give, selector = team

    @ray.remote(num_cpus=0, max_calls=1)
    def ask() -> Any:
        return placement_group([{"CPU": 1}], bundle_label_selector=[selector])

    group = ray.get(ask.remote(), timeout=60)
    time.sleep(1)
    give()
    assert group.wait(60)
    remove_placement_group(group)


def test_it_survives_the_controller_and_ends_with_its_job(world: World, team: Any) -> None:
    give, selector = team
    code = f"""
        import time
        import remora
        from ray.util import placement_group

        remora.init(address=address, logging_level="ERROR", log_to_driver=False)
        print(placement_group([{{"CPU": 1}}], bundle_label_selector=[{selector!r}]).id.hex(), flush=True)
        time.sleep(600)
        """
    with run_driver(world, code) as driver:
        try:
            theirs = line_of(driver).strip()
            ours = placement_group([{"CPU": 1}], bundle_label_selector=[selector])
            ray.kill(ray.get_actor("remora-controller", namespace="remora"), no_restart=False)
            assert placement_group_table()[theirs]["state"] == "PENDING"
        finally:
            driver.kill()
    eventually(lambda: LATE_GROUPS.key(theirs) not in kept(), 30)
    give()
    assert ours.wait(60)
    assert placement_group_table().get(theirs, {}).get("state") != "CREATED"
    remove_placement_group(ours)
