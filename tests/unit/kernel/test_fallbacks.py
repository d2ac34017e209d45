"""Fallbacks: in order, and only when the earlier choice can never be, not when it is busy."""

import pytest

from remora import Exists, VirtualCluster
from remora.testing.builders import make_cluster, make_node


def zone(name, cpu=4):
    return make_node(f"in-{name}").cpu(cpu).label(zone=name)


def prefer(*zones, **options):
    """In the first of these zones, else in the second, ..."""
    first, *rest = [{"zone": name} if name else {} for name in zones]
    return dict(label_selector=first, fallback_strategy=[{"label_selector": selector} for selector in rest], **options)


# nodes, zones in order of preference, the node
TABLE = {
    "the first choice when it is there": ([zone("a"), zone("b")], ("a", "b"), "in-a"),
    "the second when no node has the first": ([zone("b")], ("a", "b"), "in-b"),
    "the third when no node has the others": ([zone("c")], ("a", "b", "c"), "in-c"),
    "in order, not by node": ([zone("c"), zone("b")], ("a", "b", "c"), "in-b"),
    "anywhere, which makes it a wish": ([zone("x")], ("a", None), "in-x"),
    "the second when the first is too small for ever": ([zone("a", cpu=0.5), zone("b")], ("a", "b"), "in-b"),
    "the second when the first is tainted": ([zone("a").taint(x="y"), zone("b")], ("a", "b"), "in-b"),
    "nowhere when no choice fits": ([zone("x")], ("a", "b"), None),
}


@pytest.mark.parametrize(("nodes", "zones", "want"), list(TABLE.values()), ids=list(TABLE))
def test_choices_are_tried_in_order(nodes, zones, want):
    c = make_cluster(nodes)
    assert c.submit("task", resources={"CPU": 1}, **prefer(*zones)).node == want


def test_a_busy_first_choice_is_waited_for():
    c = make_cluster(zone("a"), zone("b"))
    busy = c.submit("task", resources={"CPU": 4}, label_selector={"zone": "a"})
    w = c.submit("task", resources={"CPU": 1}, **prefer("a", "b"))
    assert w.state == "PENDING"
    assert w.reason == "0/2 nodes fit: 1 does not match zone=a, 1 lacks 1 CPU"
    c.finish(busy)
    assert w.node == "in-a"


def test_a_waiting_one_falls_back_when_its_node_dies():
    c = make_cluster(zone("a"), zone("b"))
    c.submit("task", resources={"CPU": 4}, label_selector={"zone": "a"})
    w = c.submit("task", resources={"CPU": 1}, **prefer("a", "b"))
    c.remove_node("in-a")
    assert w.node == "in-b"


def test_a_waiting_one_falls_back_when_its_node_is_tainted_or_relabelled():
    for spoil in (lambda c: c.taint("in-a", {"x": "y"}), lambda c: c.label("in-a", {"zone": "z"})):
        c = make_cluster(zone("a"), zone("b"))
        c.submit("task", resources={"CPU": 4}, label_selector={"zone": "a"})
        w = c.submit("task", resources={"CPU": 1}, **prefer("a", "b"))
        spoil(c)
        assert w.node == "in-b"


def test_tolerations_hold_for_every_choice():
    c = make_cluster(zone("b").taint(gpu_node="true"))
    assert c.submit("task", **prefer("a", "b", tolerations={"gpu_node": Exists()})).node == "in-b"


def test_what_is_placed_by_a_fallback_stays_when_the_first_choice_comes():
    c = make_cluster(zone("b"))
    w = c.submit("task", **prefer("a", "b"))
    zone("a").join(c)
    assert w.node == "in-b"
    assert c.submit("task", **prefer("a", "b")).node == "in-a"


def test_affinity_does_not_make_a_choice_infeasible():
    from remora import actor_affinity

    c = make_cluster(zone("a"), zone("b"))
    c.submit("actor", labels={"type": "cat"}, label_selector={"zone": "a"})
    w = c.submit("actor", scheduling_strategy=actor_affinity({"type": "!cat"}), **prefer("a", "b"))
    assert w.state == "PENDING"


def test_fallbacks_inside_a_virtual_cluster():
    c = make_cluster(zone("a"), zone("b"))
    vc = c.create_virtual_cluster(VirtualCluster(flexible_resource_max={"CPU": 2}))
    assert c.submit("task", resources={"CPU": 2}, virtual_cluster=vc, **prefer("x", "b")).node == "in-b"
    busy = c.submit("task", resources={"CPU": 1}, virtual_cluster=vc, **prefer("a", "b"))
    assert busy.state == "PENDING"


def test_the_reason_is_about_the_choice_that_is_waited_for():
    c = make_cluster(zone("b"))
    c.submit("task", resources={"CPU": 4})
    w = c.submit("task", resources={"CPU": 1}, **prefer("a", "b"))
    assert w.reason == "0/1 nodes fit the fallback zone=b: 1 lacks 1 CPU"
    none = c.submit("task", resources={"CPU": 1}, **prefer("x", "y"))
    assert none.reason == "0/1 nodes fit: 1 does not match zone=x; nor the fallback zone=y: 1 does not match zone=y"
