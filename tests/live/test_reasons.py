"""Why something waits, and what is said about it: typed as users type it, on the shared cluster."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually, waits
from tests.live.typed import remora_command

import remora
from remora.wire.asks import own_labels


class Sitter:
    def where(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


@pytest.mark.core
def test_a_task_an_actor_and_a_name_are_explained_and_start_when_they_can(world: World, where: Any) -> None:
    ref = where.options(label_selector={"team": "red"}).remote()
    actor = ray.remote(Sitter).options(label_selector={"team": "red"}, name="anna").remote()
    for asked in (ref, actor, "anna", actor.where.remote(), actor._actor_id.hex()):
        why = remora.explain(asked)
        assert (why.state, why.reason) == ("waiting", "0/4 nodes fit: 4 do not match team=red")
        assert "drop team=red" in why.suggestions
        assert why.refusals[0]["count"] == 4
    job = ray.get_runtime_context().get_job_id()
    shown = remora_command(world, "explain", "anna")
    assert "does not match team=red" in shown.stdout
    rows = json.loads(remora_command(world, "explain", job, "--json").stdout)
    assert {"task", "actor"} <= {row["kind"] for row in rows if row["reason"].endswith("team=red")}
    remora.label_node(world.ids["b"], {"team": "red"})
    assert world.names([ref, actor.where.remote()]) == ["b", "b"]
    assert remora.explain(actor).reason == f"it runs on {world.ids['b'][:12]}"
    remora.label_node(world.ids["b"], {"team": None})
    ray.kill(actor)
    eventually(lambda: remora.explain(actor).state == "ended")


def test_what_cannot_be_explained_is_said_so(world: World) -> None:
    with pytest.raises(remora.InvalidInputError, match="give an ObjectRef, an actor handle"):
        remora.explain(3)
    done = remora_command(world, "explain", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the id or name 'nobody'" in done.stderr


def test_events_tell_what_happened(world: World) -> None:
    remora.label_node(world.ids["a"], {"mood": "good"})
    remora.taint_node(world.ids["a"], {"k": "v"})
    remora.untaint_node(world.ids["a"], ["k"])
    remora.label_node(world.ids["a"], {"mood": None})
    told = json.loads(remora_command(world, "events", "--json").stdout)
    mine = [(entry["kind"], entry["text"]) for entry in told if entry["subject"] == world.ids["a"]]
    assert [entry for entry in mine if entry[0] in ("label", "taint")][-4:] == [
        ("label", "mood=good"),
        ("taint", "k=v"),
        ("taint", "k-"),
        ("label", "mood-"),
    ]
    assert "taint" in remora_command(world, "events", "--kind", "taint", "--last", "1").stdout
    assert remora_command(world, "events", "--kind", "nonsense").returncode == 2


def test_the_driver_says_what_waits_once(world: World, where: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "remora"):
        ref = where.options(label_selector={"team": "blue"}, name="painting").remote()
        line = eventually(lambda: next((text for text in caplog.messages if "painting" in text), None), timeout=60)
        assert line.startswith("remora: painting (1 CPU), team=blue waits: 0/4 nodes fit: 4 do not match team=blue. What would")
    ray.cancel(ref)


@pytest.mark.core
def test_a_placement_group_falls_back_to_other_bundles(world: World) -> None:
    fallback = [
        {"bundles": [{"CPU": 1}] * 2, "bundle_label_selector": [{"zone": "nowhere"}] * 2},
        {"bundles": [{"CPU": 0.5}] * 3, "bundle_label_selector": [{"zone": "b"}] * 3},
    ]
    group = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "mars"}], fallback_strategy=fallback)
    assert group.wait(60)
    assert group.bundle_count == 3
    assert remora.explain(group).nodes == (world.ids["b"],)
    remove_placement_group(group)


def test_a_placement_group_does_not_fall_back_when_the_first_choice_is_merely_busy(world: World, where: Any) -> None:
    first = placement_group([{"CPU": 2}], bundle_label_selector=[{"zone": "a"}])
    assert first.wait(60)
    fallback = [{"bundle_label_selector": [{"zone": "b"}]}]
    second = placement_group([{"CPU": 2}], bundle_label_selector=[{"zone": "a"}], fallback_strategy=fallback)
    assert not second.wait(1)
    assert remora.explain(second).reason == "1 bundle fits nowhere (of 1): 0/4 nodes fit: 3 do not match zone=a, 1 lacks 2 CPU"
    remove_placement_group(first)
    assert second.wait(60)
    assert remora.explain(second).nodes == (world.ids["a"],)
    remove_placement_group(second)


def test_a_placement_group_that_fits_nowhere_is_created_when_it_does(world: World, where: Any) -> None:
    group = placement_group([{"CPU": 1}], bundle_label_selector=[{"team": "late"}])
    assert not group.wait(0.5)
    ready = group.ready()
    elsewhere = ray.remote(num_cpus=0)(lambda group: group.wait(120)).remote(group)
    eventually(lambda: remora.explain(group).reason == "1 bundle fits nowhere (of 1): 0/4 nodes fit: 4 do not match team=late")
    assert waits(ready, 0.2)
    remora.label_node(world.ids["b"], {"team": "late"})
    assert group.wait(60)
    assert ray.get(ready, timeout=60).id == group.id
    assert ray.get(elsewhere, timeout=60) is True
    inside = PlacementGroupSchedulingStrategy(placement_group=group)
    assert world.names([where.options(scheduling_strategy=inside).remote()]) == ["b"]
    remove_placement_group(group)
    remora.label_node(world.ids["b"], {"team": None})


def test_a_placement_group_that_was_not_created_yet_can_be_removed(world: World) -> None:
    group = placement_group([{"CPU": 1}], bundle_label_selector=[{"team": "never"}])
    remove_placement_group(group)
    assert placement_group_table(group).get("state") != "PENDING"
    with pytest.raises(Exception, match=f"{group.id.hex()}.* does not exist"):
        group.wait(1)


def test_rare_resources_are_kept_for_those_who_ask_for_them(world: World, where: Any) -> None:
    node = world.cluster.add_node(num_cpus=2, resources={"Jewel": 2}, labels={"zone": "jewel"})
    try:
        jewel = eventually(lambda: next((n["NodeID"] for n in ray.nodes() if n["Labels"].get("zone") == "jewel"), None))
        world.ids["jewel"] = jewel
        assert "jewel" not in world.names([where.remote(0.02) for _ in range(12)])
        assert world.names([where.options(resources={"Jewel": 1}).remote()]) == ["jewel"]
        assert waits(where.options(label_selector={"zone": "jewel"}).remote(), 0.5)
        group = placement_group([{"Jewel": 1, "CPU": 1}])
        assert group.wait(60)
        remove_placement_group(group)
    finally:
        world.ids.pop("jewel", None)
        world.cluster.remove_node(node)
        eventually(lambda: len(remora.status()["nodes"]) == 4)


def test_labels_for_the_whole_job_are_on_everything_that_it_submits(world: World) -> None:
    try:
        remora.init(labels={"team": "green"})
        actor = ray.remote(Sitter).options(num_cpus=0, name="greenling").remote()
        ray.get(actor.where.remote())
        assert labels_of("greenling") == {"team": "green"}
        other = ray.remote(Sitter).options(num_cpus=0, name="redling", labels={"team": "red"}).remote()
        ray.get(other.where.remote())
        assert labels_of("redling") == {"team": "red"}
        ray.kill(actor)
        ray.kill(other)
    finally:
        remora.detach()
        remora.attach()


def labels_of(name: str) -> dict[str, str]:
    from ray.core.generated import gcs_pb2

    table = ray._private.state.state._connect_and_get_accessor().get_actor_table(None, None)
    found = (gcs_pb2.ActorTableData.FromString(data) for data in table)
    return dict(next(own_labels(data.labels) for data in found if data.name == name))
