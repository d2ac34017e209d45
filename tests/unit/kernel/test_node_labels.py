"""The label rule: selectors over the nodes' own labels, which may change."""

import pytest

from remora import DoesNotExist, Exists, In, NodeLabelSchedulingStrategy, NotIn, label_in, node_affinity
from remora.testing.builders import make_cluster, make_node

A = make_node("a").cpu(1).label(zone="a", tier="spot")
B = make_node("b").cpu(1).label(zone="b")
BARE = make_node("bare").cpu(1)

# selector: the nodes that it admits
TABLE = {
    "nothing": (None, {"a", "b", "bare"}),
    "an empty selector": ({}, {"a", "b", "bare"}),
    "a value": ({"zone": "a"}, {"a"}),
    "not a value": ({"zone": "!a"}, {"b", "bare"}),
    "in": ({"zone": "in(a, b)"}, {"a", "b"}),
    "not in": ({"zone": "!in(a, b)"}, {"bare"}),
    "exists": ({"zone": "exists()"}, {"a", "b"}),
    "does not exist": ({"zone": "!exists()"}, {"bare"}),
    "two keys": ({"zone": "in(a, b)", "tier": "!spot"}, {"b"}),
    "the operator classes": ({"zone": In("a", "b"), "tier": NotIn("spot")}, {"b"}),
    "Exists and DoesNotExist": ({"zone": Exists(), "tier": DoesNotExist()}, {"b"}),
    "an unknown value": ({"zone": "c"}, set()),
    "an unknown key, wanted": ({"rack": "exists()"}, set()),
    "an unknown key, unwanted": ({"rack": "!1"}, {"a", "b", "bare"}),
    "a query": ("zone in [a, b] and tier not exists", {"b"}),
}


def admitted(**options):
    """Every node on which a task of one CPU lands when as many are submitted as there are nodes of one CPU."""
    c = make_cluster(A, B, BARE)
    return {w.node for w in [c.submit("task", resources={"CPU": 1}, **options) for _ in range(3)] if w.node}


@pytest.mark.parametrize(("selector", "want"), list(TABLE.values()), ids=list(TABLE))
def test_a_selector_admits(selector, want):
    assert admitted(label_selector=selector) == want


@pytest.mark.parametrize(("selector", "want"), list(TABLE.values())[2:], ids=list(TABLE)[2:])
def test_a_node_affinity_admits_what_the_selector_admits(selector, want):
    assert admitted(scheduling_strategy=node_affinity(selector)) == want
    assert admitted(affinity=node_affinity(selector)) == want


def test_selector_and_node_affinity_must_both_hold():
    assert admitted(label_selector={"zone": "exists()"}, scheduling_strategy=node_affinity("tier not exists")) == {"b"}


def test_or_admits_what_one_of_its_expressions_admits():
    strategy = node_affinity([label_in("zone", ["a"]), label_in("zone", ["b"])], is_or_semantics=True)
    assert admitted(scheduling_strategy=strategy) == {"a", "b"}
    assert admitted(scheduling_strategy=node_affinity("zone = a or zone not exists")) == {"a", "bare"}


def test_rays_node_label_strategy_has_hard_rules_and_soft_wishes():
    strategy = NodeLabelSchedulingStrategy(hard={"zone": Exists()}, soft={"zone": In("b")})
    c = make_cluster(A, B, BARE)
    placed = [c.submit("task", resources={"CPU": 1}, scheduling_strategy=strategy) for _ in range(3)]
    assert [w.node for w in placed] == ["b", "a", None]


def test_labels_change_at_run_time():
    c = make_cluster(make_node("n1").cpu(4))
    w = c.submit("task", label_selector={"zone": "a"})
    assert w.state == "PENDING"
    c.label("n1", {"zone": "b"})
    assert w.state == "PENDING"
    c.label("n1", {"zone": "a"})
    assert w.node == "n1"
    c.unlabel("n1", ["zone"])
    assert w.node == "n1"  # what runs stays
    assert c.submit("task", label_selector={"zone": "a"}).state == "PENDING"
    assert c.submit("task", label_selector={"zone": "!a"}).state == "PLACED"


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ({"zone": "a"}, "does not match zone=a"),
        ({"zone": "!b"}, "does not match zone!=b"),
        ({"zone": "in(a, c)"}, "does not match zone in (a, c)"),
        ({"zone": "!in(a, b)"}, "does not match zone not in (a, b)"),
        ({"rack": "exists()"}, "does not match any rack"),
        ({"zone": "!exists()"}, "does not match no zone"),
    ],
)
def test_the_refusal_of_one_node(selector, want):
    c = make_cluster(B)
    assert c.submit("task", label_selector=selector).reason == f"0/1 nodes fit: 1 {want}"


def test_the_refusal_of_two_nodes():
    c = make_cluster(A, BARE)
    assert c.submit("task", label_selector={"zone": "b"}).reason == "0/2 nodes fit: 2 do not match zone=b"


def test_the_refusal_of_an_or():
    c = make_cluster(A)
    w = c.submit("task", scheduling_strategy=node_affinity("zone = b or rack exists"))
    assert w.reason == "0/1 nodes fit: 1 does not match any rack or zone=b"
