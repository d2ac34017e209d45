"""symmetric=True: what is placed keeps away whom it could not have joined itself."""

import pytest

from remora import actor_affinity, anti_affinity, label_does_not_exist, label_in, label_not_in, task_affinity
from remora.testing.builders import make_cluster, make_nodes


def keeps_away(expressions, **options):
    return dict(scheduling_strategy=actor_affinity(expressions, symmetric=True), **options)


# what the first one says, the labels of the newcomer, whether the newcomer may come
TABLE = {
    "not in keeps that value away": (label_not_in("type", ["cat"], False), {"type": "cat"}, False),
    "not in lets another value in": (label_not_in("type", ["cat"], False), {"type": "dog"}, True),
    "not in lets another key in": (label_not_in("type", ["cat"], False), {"kind": "cat"}, True),
    "not in lets one without labels in": (label_not_in("type", ["cat"], False), {}, True),
    "does not exist keeps every value away": (label_does_not_exist("type", False), {"type": "bird"}, False),
    "does not exist lets another key in": (label_does_not_exist("type", False), {"kind": "bird"}, True),
    "a soft one keeps nobody away": (label_not_in("type", ["cat"], True), {"type": "cat"}, True),
    "several values": (label_not_in("type", ["cat", "dog"], False), {"type": "dog"}, False),
}


@pytest.mark.parametrize(("says", "labels", "want"), list(TABLE.values()), ids=list(TABLE))
def test_what_is_placed_keeps_newcomers_away(says, labels, want):
    c = make_cluster(make_nodes(1))
    assert c.submit("actor", **keeps_away(says)).state == "PLACED"
    assert c.submit("actor", labels=labels).state == ("PLACED" if want else "PENDING")


def test_without_symmetric_only_the_newcomer_decides():
    c = make_cluster(make_nodes(1))
    c.submit("actor", scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], False)))
    assert c.submit("actor", labels={"type": "cat"}).state == "PLACED"


def test_the_newcomer_goes_to_another_node():
    c = make_cluster(make_nodes(2))
    loner = c.submit("actor", **keeps_away({"type": "!cat"}))
    assert c.submit("actor", labels={"type": "cat"}).node != loner.node


def test_the_newcomers_own_rule_holds_too():
    c = make_cluster(make_nodes(1))
    c.submit("actor", labels={"type": "cat"})
    assert c.submit("actor", **keeps_away({"type": "!cat"})).state == "PENDING"


def test_a_positive_expression_is_not_turned_round():
    c = make_cluster(make_nodes(1))
    c.submit("actor", labels={"type": "dog"})
    assert c.submit("actor", **keeps_away(label_in("type", ["dog"], False))).state == "PLACED"
    assert c.submit("actor", labels={"type": "cat"}).state == "PLACED"


def test_another_namespace_is_not_kept_away():
    c = make_cluster(make_nodes(1))
    c.submit("actor", namespace="a", **keeps_away({"type": "!cat"}))
    assert c.submit("actor", labels={"type": "cat"}, namespace="b").state == "PLACED"
    assert c.submit("actor", labels={"type": "cat"}, namespace="a").state == "PENDING"


def test_tasks_are_kept_away_by_task_affinity_and_actors_are_not():
    c = make_cluster(make_nodes(1))
    c.submit("actor", scheduling_strategy=task_affinity({"stage": "!load"}, symmetric=True))
    assert c.submit("task", labels={"stage": "load"}).state == "PENDING"
    assert c.submit("actor", labels={"stage": "load"}).state == "PLACED"


def test_an_actor_that_fails_is_kept_away_by_its_id():
    c = make_cluster(make_nodes(2))
    cat = c.submit("actor", name="cat", resources={"CPU": 1}, label_selector=None)
    loner = c.submit("actor", resources={"CPU": 1}, **keeps_away(anti_affinity(cat, False)))
    assert {cat.node, loner.node} == {"n1", "n2"}
    c.remove_node(str(cat.node))
    assert cat.state == "PENDING"
    assert cat.reason == "0/1 nodes fit: 1 hosts something that keeps away actor_id=cat"


def test_it_ends_with_the_one_that_said_so():
    c = make_cluster(make_nodes(1))
    loner = c.submit("actor", **keeps_away({"type": "!cat"}))
    cat = c.submit("actor", labels={"type": "cat"})
    assert cat.state == "PENDING"
    c.finish(loner)
    assert cat.state == "PLACED"
    assert not c.scheduler.cluster.refusals


def test_equal_requests_with_other_labels_pass_each_other_by():
    c = make_cluster(make_nodes(1))
    c.submit("actor", **keeps_away({"type": "!cat"}))
    cat, dog = c.submit("actor", labels={"type": "cat"}), c.submit("actor", labels={"type": "dog"})
    assert (cat.state, dog.state) == ("PENDING", "PLACED")


@pytest.mark.parametrize(("count", "verb"), [(1, "hosts"), (2, "host")])
def test_the_refusal_in_singular_and_plural(count, verb):
    c = make_cluster(make_nodes(count))
    for _ in range(count):
        c.submit("actor", labels={"loner": "1"}, **keeps_away([label_not_in("type", ["cat"]), label_not_in("loner", ["1"])]))
    w = c.submit("actor", labels={"type": "cat"})
    assert w.reason == f"0/{count} nodes fit: {count} {verb} something that keeps away type=cat"
    assert "drop its label type=cat" in w.suggestions
