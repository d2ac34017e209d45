"""Why something waits: one sentence for people, a structure for programs, and changes that really help."""

from typing import Any

import pytest

from remora import (
    Exists,
    NodeAffinitySchedulingStrategy,
    VirtualCluster,
    actor_affinity,
    affinity,
    anti_affinity,
    label_in,
    label_not_in,
    node_affinity,
)
from remora.kernel.explaining.explain_clusters import explain_cluster
from remora.kernel.explaining.explain_groups import explain_group
from remora.kernel.placing.amend import amend
from remora.kernel.placing.placement import decide
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Group
from remora.model.groups import parse_group
from remora.model.taints import Tolerations
from remora.testing.builders import make_cluster, make_node, make_nodes

NO_CATS = actor_affinity(label_not_in("type", ["cat"], False))


@pytest.fixture
def five():
    """The five nodes of DESIGN.md, section 5."""
    c = make_cluster(
        (make_node(f"g{i}").cpu(4).taint(gpu_node="true") for i in (1, 2)),
        (make_node(f"c{i}").cpu(4).label(hosts="cat") for i in (1, 2)),
        make_node("full").cpu(4).label(hosts="work"),
    )
    for i in (1, 2):
        c.submit("actor", labels={"type": "cat"}, scheduling_strategy=NodeAffinitySchedulingStrategy(f"c{i}"))
    c.submit("task", resources={"CPU": 4}, label_selector={"hosts": "work"})
    return c


def test_the_sentence_of_the_design(five):
    w = five.submit("actor", resources={"CPU": 1}, labels={"type": "cat"}, scheduling_strategy=NO_CATS)
    assert w.reason == (
        "0/5 nodes fit: 2 have the untolerated taint gpu_node=true, 2 already host an actor with type in (cat), 1 lacks 1 CPU"
    )


def test_the_structure_counts_what_the_sentence_says(five):
    explanation = five.submit("actor", resources={"CPU": 1}, scheduling_strategy=NO_CATS).explain()
    assert [(item.rule, item.count, item.node_ids) for item in explanation.refusals] == [
        ("taints", 2, ("g1", "g2")),
        ("affinity", 2, ("c1", "c2")),
        ("capacity", 1, ("full",)),
    ]
    plain = explanation.to_dict()
    assert plain["reason"] == explanation.reason
    assert [refusal["nodes"] for refusal in plain["refusals"]] == [["g1", "g2"], ["c1", "c2"], ["full"]]
    assert plain["case"] == "affinity and resources"
    assert {"tolerate", "drop_affinity", "free"} == {
        change["action"] for suggestion in plain["suggestions"] for change in suggestion["changes"]
    }


def test_the_suggestions_of_the_design(five):
    w = five.submit("actor", resources={"CPU": 1}, scheduling_strategy=NO_CATS)
    assert w.suggestions == ["tolerate gpu_node", "drop the anti-affinity to actors with type in (cat)", "free 1 CPU on full"]


def test_nothing_to_say_about_what_is_placed_or_finished(five):
    w = five.submit("task", tolerations={"gpu_node": Exists()})
    assert (w.reason, w.suggestions) == ("", [])
    five.finish(w)
    assert (w.reason, w.suggestions) == ("", [])


# The three cases of seed 003, and the fourth: what is already on one full and one free node.
CASES = {
    "resources are enough, but affinity is not satisfied": ({"scheduling_strategy": NO_CATS}, "affinity"),
    "affinity is satisfied, but resources are not enough": ({"resources": {"CPU": 3}}, "resources"),
    "neither affinity nor resources": ({"resources": {"CPU": 3}, "scheduling_strategy": NO_CATS}, "affinity and resources"),
    "no node by its labels": ({"label_selector": {"zone": "z"}}, "nodes"),
}


@pytest.mark.parametrize(("options", "want"), list(CASES.values()), ids=list(CASES))
def test_the_cases_of_seed_003(options, want):
    c = make_cluster(make_nodes(2))
    for node in ("n1", "n2"):
        c.submit(
            "actor", labels={"type": "cat"}, resources={"CPU": 2}, scheduling_strategy=NodeAffinitySchedulingStrategy(node)
        )
    w = c.submit("actor", **{"resources": {"CPU": 1}, **options})
    assert w.state == "PENDING"
    assert w.explain().case == want
    assert w.reason.startswith("0/2 nodes fit: ")


def test_affinity_here_and_resources_there_is_both():
    c = make_cluster(make_nodes(2))
    c.submit("actor", labels={"type": "cat"}, scheduling_strategy=NodeAffinitySchedulingStrategy("n1"))
    c.submit("actor", resources={"CPU": 4}, scheduling_strategy=NodeAffinitySchedulingStrategy("n2"))
    w = c.submit("actor", resources={"CPU": 1}, scheduling_strategy=NO_CATS)
    assert w.explain().case == "affinity and resources"
    assert w.reason == "0/2 nodes fit: 1 already hosts an actor with type in (cat), 1 lacks 1 CPU"


# Each of these waits; each of its suggestions, applied to the request or to the cluster, places it.
WAITING: dict[str, dict[str, Any]] = {
    "a taint": {"label_selector": {"zone": "t"}},
    "two taints": {"label_selector": {"zone": "tt"}},
    "a label that no node has": {"label_selector": {"zone": "z"}},
    "two labels on different nodes": {"label_selector": {"zone": "t", "disk": "ssd"}},
    "an OR that no node meets": {"scheduling_strategy": node_affinity("zone = z or zone = y")},
    "a pin to an unknown node": {"scheduling_strategy": NodeAffinitySchedulingStrategy("n9")},
    "a pin to a tainted node": {"scheduling_strategy": NodeAffinitySchedulingStrategy("t")},
    "too large": {"resources": {"CPU": 64}},
    "busy": {"resources": {"CPU": 3}, "label_selector": {"zone": "full"}},
    "too large and busy": {"resources": {"CPU": 5}, "label_selector": {"zone": "full"}},
    "a resource that is nowhere": {"resources": {"TPU": 1}},
    "near somebody who is nowhere": {"scheduling_strategy": actor_affinity({"type": "bird"})},
    "near a handle that is gone": {"scheduling_strategy": actor_affinity(affinity("gone", False))},
    "away from a handle, on its node": {
        "scheduling_strategy": actor_affinity(anti_affinity("cat", False)),
        "label_selector": {"zone": "full"},
    },
    "away from cats, on their node": {"scheduling_strategy": NO_CATS, "label_selector": {"zone": "full"}},
    "one of two friends, neither there": {
        "scheduling_strategy": actor_affinity([label_in("type", ["x"]), label_in("type", ["y"])], is_or_semantics=True)
    },
    "kept away by somebody": {"labels": {"type": "mouse"}, "label_selector": {"zone": "full"}},
    "a fallback, and neither": {
        "label_selector": {"zone": "z"},
        "fallback_strategy": [{"label_selector": {"zone": "y"}}],
        "tolerations": {"a": "b"},
    },
    "a toleration of the empty value": {"label_selector": {"zone": "t"}, "tolerations": {"other": ""}},
}


def world():
    c = make_cluster(
        make_node("t").cpu(4).label(zone="t").taint(gpu_node="true"),
        make_node("tt").cpu(4).label(zone="tt").taint(gpu_node="true", gpu_type="A100"),
        make_node("ssd").cpu(4).label(zone="s", disk="ssd"),
        make_node("full").cpu(4).label(zone="full"),
    )
    c.submit(
        "actor",
        name="cat",
        resources={"CPU": 2},
        labels={"type": "cat"},
        label_selector={"zone": "full"},
        scheduling_strategy=actor_affinity({"type": "!mouse"}, symmetric=True),
    )
    return c


def apply_to_cluster(c, change):
    if change.action == "free":
        node_id, name, units = change.subject
        node = c.scheduler.cluster.nodes.get(node_id)
        c.scheduler.cluster.resize_node(node, node.total + {name: units})
    elif change.action == "add_node":
        resources, labels = change.subject
        c.add_node("new", resources=resources.to_dict(), labels=dict(labels))


@pytest.mark.parametrize("options", list(WAITING.values()), ids=list(WAITING))
def test_a_suggestion_that_is_followed_places_it(options):
    w = world().submit("actor", **options)
    assert w.state == "PENDING"
    suggestions = w.explain().suggestions
    assert 1 <= len(suggestions) <= 3
    for number, suggestion in enumerate(suggestions):
        assert suggestion.text == w.suggestions[number]
        c = world()
        waiting = c.submit("actor", **options)
        for change in suggestion.changes:
            apply_to_cluster(c, change)
        request, labels = amend(waiting._work.request, waiting._work.labels, suggestion.changes)
        in_place = waiting.state == "PLACED" or decide(c.scheduler.cluster, request, labels, waiting.workload_id) is not None
        assert in_place, suggestion.text


SUGGESTED = {
    "a taint": ["tolerate gpu_node"],
    "two taints": ["add a node with 1 CPU and the label zone=tt", "drop zone=tt"],
    "a label that no node has": ["add a node with 1 CPU and the label zone=z", "drop zone=z"],
    "a pin to a tainted node": ["tolerate gpu_node", "drop the node affinity to t"],
    "busy": ["free 1 CPU on full", "drop zone=full"],
    "a resource that is nowhere": ["add a node with 1 TPU", "ask for no TPU"],
    "near a handle that is gone": ["drop the affinity to the actor gone"],
    "near somebody who is nowhere": ["drop the affinity to actors with type in (bird)"],
    "kept away by somebody": ["drop zone=full", "drop its label type=mouse"],
}


@pytest.mark.parametrize("name", list(SUGGESTED))
def test_the_words_of_the_suggestions(name):
    got = world().submit("actor", **WAITING[name]).suggestions
    missing = [text for text in SUGGESTED[name] if text not in got]
    assert not missing, got


def test_labels_of_a_new_node_that_contradict_each_other_are_not_suggested():
    c = make_cluster(make_nodes(1))
    w = c.submit("task", label_selector=[label_in("zone", ["a"]), label_not_in("zone", ["a"])])
    assert not any("add a node" in text for text in w.suggestions)
    assert w.reason == "0/1 nodes fit: 1 does not match zone=a"


# Inside a virtual cluster


def test_a_full_virtual_cluster_says_what_it_has():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(VirtualCluster(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}))
    c.submit("task", resources={"CPU": 2}, virtual_cluster=vc)
    w = c.submit("task", resources={"CPU": 1}, virtual_cluster=vc)
    assert w.reason == f"0/2 nodes open to {vc.cluster_id} fit: 2 are closed as {vc.cluster_id} has 2 of at most 2 CPU"
    assert w.suggestions == [f"free 1 CPU in {vc.cluster_id}"]
    assert w.explain().case == "resources"


def test_inside_a_virtual_cluster_taints_labels_and_affinity_are_named():
    c = make_cluster(make_node("n1").cpu(4).label(zone="a"))
    vc = c.create_virtual_cluster(VirtualCluster(flexible_resource_min={"CPU": 2}))
    c.submit("actor", labels={"type": "cat"}, virtual_cluster=vc)
    start = f"0/1 virtual nodes of {vc.cluster_id} fit: 1 "
    labels = c.submit("task", label_selector={"zone": "b"}, virtual_cluster=vc)
    near = c.submit("actor", scheduling_strategy=NO_CATS, virtual_cluster=vc)
    c.taint("n1", {"drain": "yes"})
    taint = c.submit("task", virtual_cluster=vc)
    assert labels.reason == start + "does not match zone=b"
    assert taint.reason == start + "has the untolerated taint drain=yes"
    assert taint.suggestions == ["tolerate drain"]
    c.untaint("n1", ["drain"])
    assert near.reason == start + "already hosts an actor with type in (cat)"
    assert near.explain().case == "affinity"


def test_a_toleration_with_a_strange_value_does_not_spoil_the_explanation():
    from remora import NotIn

    c = make_cluster(make_node("n1").cpu(4).taint(drain="yes"))
    vc = c.create_virtual_cluster(VirtualCluster(flexible_resource_min={"CPU": 2}), tolerations={"drain": Exists()})
    w = c.submit("task", tolerations={"other": NotIn("")}, virtual_cluster=vc)
    assert w.suggestions == ["tolerate drain"]


def test_what_would_help_on_most_nodes_comes_first():
    c = make_cluster(make_node("first").cpu(2).taint(gpu_node="true"), (make_node(f"n{i}").cpu(2) for i in range(3)))
    *_, fourth = (c.submit("actor", labels={"type": "cat"}, scheduling_strategy=NO_CATS) for _ in range(4))
    assert [str(each) for each in fourth.explain().suggestions] == [
        "drop the anti-affinity to actors with type in (cat)",
        "tolerate gpu_node",
    ]


def _queued(spec, parent=None):
    return VCluster("vc-9", spec, parent, 0, 9, Tolerations())


def test_a_flexible_minimum_that_is_free_is_about_to_be_reserved():
    c = make_cluster(make_nodes(2))
    why = explain_cluster(c.scheduler.cluster, _queued(VirtualCluster(flexible_resource_min={"CPU": 3})), 1, None)
    assert why.reason == "position 1 in the queue: in the cluster 3 CPU free: it is about to be reserved"
    assert (why.case, why.suggestions) == ("fits", ())


def test_fixed_size_nodes_that_are_free_in_sum_only_are_not_laid_out_as_asked():
    c = make_cluster(make_nodes(2))
    for _ in range(2):
        c.submit("task", resources={"CPU": 1}, scheduling_strategy="SPREAD")
    spec = {"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 4}}]}]}
    assert c.create_virtual_cluster(spec).reason == (
        "position 1 in the queue: in the cluster 4 CPU free, but not laid out as asked"
    )


def test_a_flexible_minimum_that_lies_in_several_virtual_nodes_of_its_parent_says_so():
    c = make_cluster(make_node("n1").cpu(2).gpu(2))
    sizes = [{"CPU": 1, "GPU": 1}, {"CPU": 1}, {"GPU": 1}]
    parent = c.create_virtual_cluster(
        {
            "fixed_size_nodes": [{"nodes": [{"resources": size} for size in sizes]}],
            "flexible_resource_max": {"CPU": 0, "GPU": 0},
        }
    )
    c.submit("task", resources={"CPU": 1, "GPU": 1}, virtual_cluster=parent)
    child = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 1, "GPU": 1}}, parent)
    assert child.reason == (
        f"position 1 in the queue: in {parent.cluster_id} 1 CPU and 1 GPU free, but in virtual nodes whose resources "
        "can not be joined: all that a share has on a node comes from one of them"
    )


@pytest.mark.parametrize(
    ("bundles", "strategy", "want"),
    [
        (2, "STRICT_SPREAD", "it fits on n1, n2: Ray is about to reserve it"),
        (2, "PACK", "it fits on n1: Ray is about to reserve it"),
        (5, "STRICT_SPREAD", "it fits on n1, n2, n3 and 2 more: Ray is about to reserve it"),
    ],
)
def test_a_group_that_fits_is_not_said_to_lack_anything(bundles, strategy, want):
    c = make_cluster(make_nodes(5))
    why = explain_group(c.scheduler.cluster, Group("pg", parse_group([{"CPU": 1}] * bundles, strategy)))
    assert (why.reason, why.case, why.suggestions) == (want, "fits", ())


def test_a_group_that_fits_but_for_one_lost_bundle_says_where_that_goes():
    c = make_cluster(make_nodes(3))
    cluster = c.scheduler.cluster
    group = c.scheduler.submit_group("pg", parse_group([{"CPU": 1}] * 2, "STRICT_SPREAD"))
    cluster.remove_node(cluster.nodes.get("n2"))
    assert explain_group(cluster, group).reason == "it fits on n1, n3: Ray is about to reserve it"
