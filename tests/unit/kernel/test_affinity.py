"""The affinity rule: the newcomer's expressions over what is placed on a node."""

from typing import Any

import pytest

from remora import (
    actor_affinity,
    affinity,
    anti_affinity,
    label_does_not_exist,
    label_exists,
    label_in,
    label_not_in,
    task_affinity,
)
from remora.testing.builders import make_cluster, make_nodes


def put(c, node, kind="actor", **options):
    """Something on that very node."""
    return c.submit(kind, resources={}, label_selector={"ray.io/node-id": node}, **options)


def cluster(count=3):
    return make_cluster(node.cpu(100).label({"ray.io/node-id": node.node_id}) for node in make_nodes(count))


# Placed: n1 has a cat of breed x and a dog, n2 has a cat of breed y, n3 has nothing. The nodes that an expression admits:
TABLE = {
    "in": (label_in("type", ["cat"], False), {"n1", "n2"}),
    "in several": (label_in("type", ["dog", "bird"], False), {"n1"}),
    "in nothing that is there": (label_in("type", ["bird"], False), set()),
    "not in": (label_not_in("type", ["cat"], False), {"n3"}),
    "not in, of one of two labels": (label_not_in("type", ["dog"], False), {"n2", "n3"}),
    "exists": (label_exists("breed", False), {"n1", "n2"}),
    "does not exist": (label_does_not_exist("type", False), {"n3"}),
    "and, over different actors of a node": ([label_in("type", ["dog"]), label_in("breed", ["x"])], {"n1"}),
    "and, on no single node": ([label_in("type", ["dog"]), label_in("breed", ["y"])], set()),
    "with and without": ([label_in("type", ["cat"]), label_not_in("type", ["dog"])], {"n2"}),
    "an unknown key, wanted": (label_exists("colour", False), set()),
    "an unknown key, unwanted": (label_does_not_exist("colour", False), {"n1", "n2", "n3"}),
}


@pytest.fixture
def animals():
    c = cluster()
    put(c, "n1", labels={"type": "cat", "breed": "x"})
    put(c, "n1", labels={"type": "dog"})
    put(c, "n2", labels={"type": "cat", "breed": "y"})
    return c


def admitted(c, **options):
    """The nodes that a newcomer of 60 CPUs finds, one after the other."""
    return {w.node for w in [c.submit("actor", resources={"CPU": 60}, **options) for _ in range(3)] if w.node}


@pytest.mark.parametrize(("expressions", "want"), list(TABLE.values()), ids=list(TABLE))
def test_an_expression_is_judged_over_everything_on_a_node(animals, expressions, want):
    assert admitted(animals, scheduling_strategy=actor_affinity(expressions)) == want


@pytest.mark.parametrize(("expressions", "want"), list(TABLE.values()), ids=list(TABLE))
def test_affinity_is_a_second_dimension_beside_the_strategy(animals, expressions, want):
    assert admitted(animals, scheduling_strategy="SPREAD", affinity=actor_affinity(expressions)) == want


def test_or_is_met_by_one_of_its_expressions(animals):
    either = actor_affinity([label_in("breed", ["y"]), label_does_not_exist("type")], is_or_semantics=True)
    assert admitted(animals, scheduling_strategy=either) == {"n2", "n3"}


def test_labels_of_tasks_and_of_actors_are_apart():
    c = cluster(2)
    put(c, "n1", "task", labels={"stage": "load"})
    put(c, "n2", "actor", labels={"stage": "load"})
    assert admitted(c, scheduling_strategy=task_affinity(label_in("stage", ["load"], False))) == {"n1"}
    assert admitted(c, scheduling_strategy=actor_affinity(label_in("stage", ["load"], False))) == {"n2"}


def test_actor_and_task_affinity_together():
    c = cluster(3)
    for node in ("n1", "n2"):
        put(c, node, "task", labels={"stage": "load"})
    put(c, "n2", "actor", labels={"type": "cat"})
    strategies = [task_affinity({"stage": "load"}), actor_affinity({"type": "!cat"})]
    assert admitted(c, affinity=strategies) == {"n1"}


def test_another_namespace_is_invisible():
    c = cluster(2)
    put(c, "n1", labels={"type": "cat"}, namespace="theirs")
    wants = actor_affinity({"type": "cat"})
    assert c.submit("actor", namespace="ours", scheduling_strategy=wants).state == "PENDING"
    assert c.submit("actor", namespace="theirs", scheduling_strategy=wants).node == "n1"
    assert admitted(c, namespace="ours", scheduling_strategy=actor_affinity({"type": "!cat"})) == {"n1", "n2"}


def test_a_handle_may_be_named_from_any_namespace():
    c = cluster(2)
    cat = put(c, "n2", namespace="theirs")
    assert c.submit("actor", namespace="ours", scheduling_strategy=actor_affinity(affinity(cat, False))).node == "n2"


def test_affinity_to_handles_as_seed_003_writes_it():
    c = cluster(3)
    actor_0, actor_1 = put(c, "n2"), put(c, "n3")

    def where(*expressions):
        return c.submit("actor", scheduling_strategy=actor_affinity(list(expressions))).node

    assert where(affinity(actor_0, False)) == "n2"
    assert where(affinity([actor_0, actor_1], False)) in {"n2", "n3"}
    assert where(anti_affinity(actor_0, False)) in {"n1", "n3"}
    assert where(anti_affinity(actor_0, False), anti_affinity(actor_1, False)) == "n1"
    assert where(anti_affinity([actor_0, actor_1], False)) == "n1"


def test_cats_spread_over_the_nodes_as_seed_001_shows():
    c = make_cluster(make_nodes(4))
    apart = actor_affinity(label_not_in("type", ["cat"], False))
    cats = [c.submit("actor", labels={"type": "cat"}, scheduling_strategy=apart) for _ in range(5)]
    assert sorted(str(cat.node) for cat in cats[:4]) == ["n1", "n2", "n3", "n4"]
    assert cats[4].reason == "0/4 nodes fit: 4 already host an actor with type in (cat)"


def test_dogs_come_together_as_seed_001_shows():
    c = make_cluster(make_nodes(4))
    dogs = [c.submit("actor", labels={"type": "dog"})]
    together = actor_affinity(label_in("type", ["dog"], False))
    dogs += [c.submit("actor", scheduling_strategy=together) for _ in range(3)]
    assert {dog.node for dog in dogs} == {dogs[0].node}


def test_cats_spread_and_each_has_three_dogs_as_seed_001_shows():
    c = make_cluster(make_nodes(4))
    apart = actor_affinity(label_not_in("type", ["cat"], False))
    cats = [
        c.submit("actor", labels={"type": "cat", "id": f"cat-{i}"}, scheduling_strategy=apart, resources={"CPU": 1})
        for i in range(4)
    ]
    for i, cat in enumerate(cats):
        near = actor_affinity(label_in("id", [f"cat-{i}"], False))
        dogs = [c.submit("actor", labels={"type": "dog"}, scheduling_strategy=near, resources={"CPU": 1}) for _ in range(3)]
        assert [dog.node for dog in dogs] == [cat.node] * 3


def test_the_first_of_a_group_that_is_affine_to_itself_waits():
    c = make_cluster(make_nodes(2))
    options: dict[str, Any] = {"labels": {"team": "x"}, "scheduling_strategy": actor_affinity(label_in("team", ["x"], False))}
    first, second = c.submit("actor", **options), c.submit("actor", **options)
    assert (first.state, second.state) == ("PENDING", "PENDING")
    seed = c.submit("actor", labels={"team": "x"})
    assert {first.node, second.node} == {seed.node}


def test_a_soft_affinity_to_itself_starts_by_itself():
    c = make_cluster(make_nodes(2))
    options: dict[str, Any] = {"labels": {"team": "x"}, "scheduling_strategy": actor_affinity(label_in("team", ["x"], True))}
    assert len({c.submit("actor", resources={"CPU": 1}, **options).node for _ in range(4)}) == 1


def test_only_the_rules_of_the_newcomer_are_checked():
    c = make_cluster(make_nodes(1))
    c.submit("actor", labels={"type": "dog"}, scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], False)))
    assert c.submit("actor", labels={"type": "cat"}).state == "PLACED"


def test_labels_count_until_death():
    c = make_cluster(make_nodes(1))
    options: dict[str, Any] = {"labels": {"type": "cat"}, "scheduling_strategy": actor_affinity({"type": "!cat"})}
    first, second = c.submit("actor", **options), c.submit("actor", **options)
    assert second.state == "PENDING"
    c.finish(first)
    assert second.state == "PLACED"


def test_a_label_counts_until_the_last_that_has_it_is_gone():
    c = make_cluster(make_nodes(1))
    cats = [c.submit("actor", labels={"type": "cat"}) for _ in range(3)]
    w = c.submit("actor", scheduling_strategy=actor_affinity({"type": "!cat"}))
    for cat in cats:
        assert w.state == "PENDING"
        c.finish(cat)
        c.validate()
    assert w.state == "PLACED"


@pytest.mark.parametrize("count", [1, 2])
def test_the_refusals_in_singular_and_plural(count):
    c = cluster(count)
    cats = [put(c, f"n{i + 1}", labels={"type": "cat"}, name=f"cat-{i}") for i in range(count)]
    one = count == 1

    def reason(*expressions, **more):
        return c.submit("actor", scheduling_strategy=actor_affinity(list(expressions), **more)).reason

    hosts = f"0/{count} nodes fit: {count} already {'hosts' if one else 'host'}"
    assert reason(label_not_in("type", ["cat", "dog"])) == f"{hosts} an actor with type in (cat, dog)"
    assert reason(label_does_not_exist("type")) == f"{hosts} an actor with any type"
    lacks = f"0/{count} nodes fit: {count} {'hosts' if one else 'host'} no actor with"
    assert reason(label_in("type", ["dog"])) == f"{lacks} type in (dog)"
    assert reason(label_exists("breed")) == f"{lacks} any breed"
    either = [label_in("type", ["dog"]), label_exists("breed")]
    want = f"{count} {'meets' if one else 'meet'} none of an actor with any breed or an actor with type=dog"
    assert reason(*either, is_or_semantics=True) == f"0/{count} nodes fit: {want}"
    c.fail(cats[0])
    gone = c.submit("actor", name="gone")
    c.finish(gone)
    want = f"0/{count} nodes fit: {count} {'does' if one else 'do'} not host the actor gone"
    want += "; the actor gone is placed nowhere"
    assert reason(affinity("gone", False)) == want


def test_the_refusal_names_the_actor_that_is_in_the_way():
    c = cluster(1)
    cat = put(c, "n1", name="cat-0")
    w = c.submit("actor", scheduling_strategy=actor_affinity(anti_affinity(cat, False)))
    assert w.reason == "0/1 nodes fit: 1 already hosts the actor cat-0"


def test_a_task_is_called_a_task():
    c = cluster(1)
    w = c.submit("task", scheduling_strategy=task_affinity({"stage": "load"}))
    assert w.reason == "0/1 nodes fit: 1 hosts no task with stage in (load)"
