"""What people are told is true: taints in the way of virtual clusters, smallest suggestions, fallbacks, names, ids."""

from __future__ import annotations

from typing import Any

import pytest

from remora import In, NodeAffinitySchedulingStrategy, actor_affinity, affinity
from remora.errors import InvalidVirtualClusterError
from remora.kernel.explaining.never_fits import lookalikes
from remora.model.ids import short_id
from remora.model.resources import Resources, show_amounts
from remora.testing.builders import make_cluster, make_node, make_nodes

TEAM = {"nodes": [{"resources": {"CPU": 3}}] * 3, "scheduling_policy": "STRICT_SPREAD"}


def test_a_minimum_that_only_taints_keep_out_is_queued_and_the_taint_is_named():
    c = make_cluster(make_nodes(2))
    for name in ("n1", "n2"):
        c.taint(name, {"maintenance": "today"})
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 6}})
    assert vc.state == "QUEUED"
    assert vc.reason == (
        "position 1 in the queue: the cluster could hold 6 CPU only with the 2 nodes that have the untolerated taint "
        "maintenance=today"
    )
    assert [str(each) for each in vc.explain().suggestions] == ["tolerate maintenance"]
    c.untaint("n1", ["maintenance"])
    assert (vc.state, "only with the 1 node that has" in vc.reason) == ("QUEUED", True)
    c.untaint("n2", ["maintenance"])
    assert (vc.state, vc.reason) == ("READY", "")


def test_the_fewest_taints_are_named_and_one_that_waits_for_a_taint_holds_nobody_up():
    c = make_cluster(make_node("n1").cpu(2).taint(a="1"), make_node("n2").cpu(2).taint(b="1"), make_node("n3").cpu(1))
    one = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 3}})
    both = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 5}})
    assert one.reason.endswith("only with the 1 node that has the untolerated taint a=1")
    assert both.reason.endswith("only with the 2 nodes that have the untolerated taints a=1 and b=1")
    assert c.create_virtual_cluster({"flexible_resource_min": {"CPU": 1}}).state == "READY"
    with pytest.raises(
        InvalidVirtualClusterError, match=r"can never fit the cluster of 3 nodes, .* it has 1 CPU; ask for less"
    ):
        c.create_virtual_cluster({"flexible_resource_min": {"CPU": 6}})


NEVER: dict[str, tuple[dict[str, Any], str]] = {
    "too few nodes": (
        {"fixed_size_nodes": [TEAM]},
        "STRICT_SPREAD asks for 3 different nodes, and 2 have 3 CPU; ask for fewer or smaller fixed-size nodes, or for SPREAD",
    ),
    "too large a node": ({"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 7}}]}]}, "no node has 7 CPU by itself"),
    "in sum": ({"flexible_resource_min": {"CPU": 13}}, "it has 12 CPU; ask for less"),
    "nowhere": ({"flexible_resource_min": {"TPU": 1}}, "it has no TPU; ask for less"),
    "misspelled": ({"flexible_resource_min": {"cpu": 1}}, "cpu is in no node: did you mean CPU?"),
}


@pytest.mark.parametrize("name", NEVER)
def test_why_a_minimum_can_never_fit_is_true(name: str):
    spec, message = NEVER[name]
    c = make_cluster(make_node("n1").cpu(6), make_node("n2").cpu(6))
    with pytest.raises(InvalidVirtualClusterError) as caught:
        c.create_virtual_cluster(spec)
    assert "can never fit the cluster of 2 nodes, even when nothing else runs" in str(caught.value)
    assert message in str(caught.value)
    assert c.create_virtual_cluster({"flexible_resource_min": {"CPU": 12}}).state == "READY"


def test_names_that_look_alike():
    has = {"CPU": 1, "GPU": 1, "my_disk": 1, "memory": 1}
    assert lookalikes(has, ["cpu", "CPUs", "num_gpus", "my-disk", "mydisk", "Memory", "CPU", "disk", "TPU"]) == [
        ("cpu", "CPU"),
        ("CPUs", "CPU"),
        ("num_gpus", "GPU"),
        ("my-disk", "my_disk"),
        ("mydisk", "my_disk"),
        ("Memory", "memory"),
    ]


GROUPS = {
    "one is enough": ([{"CPU": 4}] * 3, "PACK", "add a node with 4 CPU"),
    "two alike": ([{"CPU": 4}] * 4, "SPREAD", "add 2 nodes with 4 CPU"),
    "the smaller one": ([{"CPU": 4}, {"CPU": 4}, {"CPU": 1}], "PACK", "add a node with 1 CPU"),
    "apart": ([{"CPU": 1}] * 3, "STRICT_SPREAD", "add a node with 1 CPU"),
    "together": ([{"CPU": 3}, {"CPU": 3}], "STRICT_PACK", "add a node with 6 CPU"),
    "too large": ([{"CPU": 9}, {"CPU": 1}], "PACK", "add a node with 9 CPU"),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_needs_no_more_new_nodes_than_are_suggested_and_no_fewer(name: str):
    bundles, strategy, want = GROUPS[name]
    c = make_cluster(make_nodes(2))
    pg = c.placement_group(bundles, strategy=strategy)
    (suggestion,) = pg.explain().suggestions
    assert (pg.state, str(suggestion)) == ("PENDING", want)
    for number, change in enumerate(suggestion.changes):
        assert pg.state == "PENDING"
        c.add_node(f"new{number}", resources=change.subject[0].to_dict())
    assert pg.state == "PLACED"


def test_a_fallback_is_part_of_the_reason_and_of_what_would_help():
    c = make_cluster(make_nodes(2))
    w = c.submit("task", resources={"CPU": 5}, label_selector={"tier": "t0"}, fallback_strategy=[{"label_selector": {}}])
    assert w.reason == "0/2 nodes fit: 2 do not match tier=t0; nor the fallback any node: 2 are too small for 5 CPU"
    assert str(w.explain().suggestions[0]) == "add a node with 5 CPU"
    c.add_node("large", resources={"CPU": 5})
    assert w.node == "large"


def test_who_waits_for_a_fallback_is_told_so():
    c = make_cluster(make_node("n1").cpu(4).label(zone="b"))
    c.submit("task", resources={"CPU": 4})
    fallback = [{"label_selector": {"zone": "b"}}]
    w = c.submit("task", resources={"CPU": 1}, label_selector={"zone": "a"}, fallback_strategy=fallback)
    assert w.reason == "0/1 nodes fit the fallback zone=b: 1 lacks 1 CPU"


def test_work_that_tolerates_another_value_is_told_which():
    c = make_cluster(make_node("n1").cpu(4).taint(k="a"))
    w = c.submit("task", resources={"CPU": 1}, tolerations={"k": In("z")})
    assert "tolerate k=a" in [str(each) for each in w.explain().suggestions]
    plain = c.submit("task", resources={"CPU": 1})
    assert "tolerate k" in [str(each) for each in plain.explain().suggestions]
    pg = c.placement_group([{"CPU": 1}], tolerations={"k": In("z")})
    assert str(pg.explain().suggestions[0]) == "tolerate k=a"


def test_affinity_to_nobody_is_said():
    c = make_cluster(make_nodes(2))
    gone = "ab" * 16
    w = c.submit("actor", scheduling_strategy=actor_affinity(affinity([gone])))
    assert w.reason == ("0/2 nodes fit: 2 do not host the actor abababababab; the actor abababababab is placed nowhere")


def test_ids_of_rays_are_short_and_names_are_whole():
    node_id = "0123456789abcdef" * 3 + "01234567"
    c = make_cluster(make_node(node_id).cpu(1), make_node("a-node-with-a-long-name-of-its-own").cpu(1))
    c.submit("task", resources={"CPU": 1}, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id))
    w = c.submit("task", resources={"CPU": 1}, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id))
    told = w.reason + " ".join(map(str, w.explain().suggestions))
    assert "0123456789ab" in told
    assert node_id not in told
    assert short_id("a-node-with-a-long-name-of-its-own") == "a-node-with-a-long-name-of-its-own"


def test_amounts_as_people_read_them():
    assert show_amounts(Resources.parse({"memory": 10_000_000_000_000, "CPU": 0.5})) == "0.5 CPU and 9.095 TiB memory"
    assert show_amounts(Resources.parse({"object_store_memory": 2**30})) == "1 GiB object_store_memory"
    assert show_amounts(Resources.parse({"accelerator_type:A100": 0.001})) == "accelerator_type:A100"
