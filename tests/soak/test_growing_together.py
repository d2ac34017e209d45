"""What is placed by what else is placed, and groups: how many machines come, and which are kept meanwhile. ``make soak``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from tests.autoscaling_ray import IDLE_SECONDS, Autoscaling, Cat, asked, eventually, kept, kind_of_node, kinds
from tests.scarce_provider import LATE
from tests.soak.growing import assert_empty, attached_cluster

import remora
from remora import actor_affinity, label_in, label_not_in


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaling]:
    yield from attached_cluster(tmp_path_factory)


@pytest.fixture(autouse=True)
def empty(growing: Autoscaling) -> Iterator[None]:
    yield
    assert_empty()


def test_actors_that_keep_apart_get_their_machines_at_once(growing: Autoscaling) -> None:
    known = len(asked())
    apart = actor_affinity(label_not_in("app", ["cat"], False))
    cats = [Cat.options(labels={"app": "cat"}, scheduling_strategy=apart).remote() for _ in range(4)]
    refs = [cat.where.remote() for cat in cats]
    done, waits = ray.wait(refs, num_returns=3, timeout=40)
    assert len(set(ray.get(done))) == 3
    assert "3 nodes of type web asked for" in asked()[known]
    last = cats[refs.index(waits[0])]
    eventually(lambda: "type web is at its maximum of 3" in str(remora.explain(last)), 10)
    for cat in cats:
        ray.kill(cat)


def test_hard_affinity_to_what_is_placed_adds_no_machine(growing: Autoscaling) -> None:
    cat = Cat.options(num_cpus=2, labels={"app": "tom"}).remote()
    ray.get(cat.where.remote(), timeout=40)
    beside = Cat.options(scheduling_strategy=actor_affinity(label_in("app", ["tom"], False))).remote()
    eventually(lambda: "no new node would help" in str(remora.explain(beside)), 10)
    time.sleep(4)
    assert kinds() == ["web"]
    for each in (cat, beside):
        ray.kill(each)


def test_those_that_follow_each_other_come_to_one_new_machine(growing: Autoscaling) -> None:
    """Nobody of them is placed yet: the machine is for both."""
    cat = Cat.options(labels={"app": "jerry"}).remote()
    beside = Cat.options(scheduling_strategy=actor_affinity(label_in("app", ["jerry"], False))).remote()
    where = ray.get([cat.where.remote(), beside.where.remote()], timeout=40)
    assert where[0] == where[1]
    assert kinds() == ["web"]
    for each in (cat, beside):
        ray.kill(each)


def test_soft_rules_add_a_machine_only_where_the_work_could_not_run_otherwise(growing: Autoscaling) -> None:
    first = Cat.options(labels={"app": "cat"}).remote()
    ray.get(first.where.remote(), timeout=40)
    rather_apart = actor_affinity(label_not_in("app", ["cat"], True))
    second = Cat.options(labels={"app": "cat"}, scheduling_strategy=rather_apart).remote()
    assert ray.get(second.where.remote(), timeout=40) == ray.get(first.where.remote())
    assert kinds() == ["web"], "there was room beside it"
    third = Cat.options(labels={"app": "cat"}, scheduling_strategy=rather_apart).remote()
    ray.get(third.where.remote(), timeout=40)
    assert kinds() == ["web", "web"]
    for each in (first, second, third):
        ray.kill(each)


def test_a_gang_gets_all_its_machines_or_none(growing: Autoscaling) -> None:
    too_many = placement_group([{"CPU": 1}] * 4, strategy="STRICT_SPREAD")
    eventually(lambda: "more than may be started" in str(remora.explain(too_many)), 10)
    time.sleep(3)
    assert kinds() == []
    remove_placement_group(too_many)
    gang = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
    assert gang.wait(40)
    assert kinds() == ["web", "web"]
    remove_placement_group(gang)


def test_a_gang_keeps_the_machines_that_came_until_the_others_are_there(growing: Autoscaling) -> None:
    assert ray.get(kind_of_node.remote(), timeout=40) == "web"
    growing.lack(web=LATE)
    gang = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
    eventually(lambda: any("waits for other nodes" in why for why in kept().values()), 20)
    time.sleep(IDLE_SECONDS + 4)
    assert kinds() == ["web"], "it looked idle for longer than machines may be"
    growing.lack()
    assert gang.wait(40)
    assert kinds() == ["web", "web"]
    remove_placement_group(gang)
