"""Failures as seed 003 tells them."""

import pytest

from remora import actor_affinity, affinity, label_in
from remora.testing.builders import make_cluster, make_node, make_nodes


@pytest.fixture
def pair():
    """B lies with A on n1; n2 is free. A prefers n1 and can be anywhere."""
    c = make_cluster(make_nodes(2))
    a = c.submit("actor", name="A", resources={"CPU": 1}, labels={"name": "a"})
    b = c.submit("actor", name="B", resources={"CPU": 1}, scheduling_strategy=actor_affinity(label_in("name", ["a"], False)))
    assert (a.node, b.node) == ("n1", "n1")
    return c, a, b


def test_a_fails_and_restarts_elsewhere_and_b_stays_and_follows_when_it_fails_too(pair):
    c, a, b = pair
    c.taint("n1", {"broken": "true"})
    c.fail(a)
    assert (a.node, b.node) == ("n2", "n1")
    c.fail(b)
    assert b.node == "n2"


def test_affinity_to_a_handle_follows_the_same_handle(pair):
    c, a, _ = pair
    near = c.submit("actor", resources={"CPU": 1}, scheduling_strategy=actor_affinity(affinity(a, False)))
    assert near.node == "n1"
    c.taint("n1", {"broken": "true"})
    c.fail(a)
    c.fail(near)
    assert (a.node, near.node) == ("n2", "n2")


def test_a_node_dies_and_both_come_back_together(pair):
    c, a, b = pair
    c.remove_node("n1")
    assert (a.node, b.node) == ("n2", "n2")


def test_b_waits_while_a_has_no_place_and_comes_with_it(pair):
    c, a, b = pair
    c.remove_node("n1")
    c.remove_node("n2")
    assert (a.state, b.state) == ("PENDING", "PENDING")
    assert b.reason == "there are no nodes yet"
    make_node("n3").cpu(4).join(c)
    assert (a.node, b.node) == ("n3", "n3")


def test_the_target_is_not_placed_yet():
    c = make_cluster(make_nodes(1))
    full = c.submit("actor", resources={"CPU": 4})
    target = c.submit("actor", name="target", resources={"CPU": 1})
    follower = c.submit("actor", scheduling_strategy=actor_affinity(affinity(target, False)), resources={})
    assert (target.state, follower.state) == ("PENDING", "PENDING")
    assert follower.reason == ("0/1 nodes fit: 1 does not host the actor target; the actor target is placed nowhere")
    c.finish(full)
    assert (target.node, follower.node) == ("n1", "n1")


def test_a_chain_of_followers_comes_at_once():
    c = make_cluster(make_nodes(3))
    links = [c.submit("actor", scheduling_strategy=actor_affinity(label_in("link", ["1"], False)), labels={"link": "0"})]
    for number in range(1, 5):
        strategy = actor_affinity(label_in("link", [str(number + 1)], False))
        links.append(c.submit("actor", labels={"link": str(number)}, scheduling_strategy=strategy))
    assert {link.state for link in links} == {"PENDING"}
    head = c.submit("actor", labels={"link": "5"})
    assert {link.node for link in links} == {head.node}


def test_the_target_is_in_another_namespace_and_stays_invisible():
    c = make_cluster(make_nodes(1))
    c.submit("actor", labels={"name": "a"}, namespace="other")
    w = c.submit("actor", scheduling_strategy=actor_affinity(label_in("name", ["a"], False)))
    assert w.state == "PENDING"
    c.submit("actor", labels={"name": "a"}, namespace="default")
    assert w.state == "PLACED"


def test_what_fails_keeps_its_place_in_the_line():
    c = make_cluster(make_node("n1").cpu(1))
    old = c.submit("actor", resources={"CPU": 1})
    young = c.submit("actor", resources={"CPU": 1})
    c.fail(old)
    assert (old.state, young.state) == ("PLACED", "PENDING")


def test_failing_while_it_waits_changes_nothing():
    c = make_cluster(make_nodes(1))
    w = c.submit("actor", resources={"CPU": 8})
    c.fail(w)
    assert w.state == "PENDING"


def test_the_id_of_a_finished_actor_is_not_given_to_the_next_of_that_name():
    c = make_cluster(make_nodes(2))
    first = c.submit("actor", name="cat")
    near_first = actor_affinity(affinity(first, False))
    c.finish(first)
    second = c.submit("actor", name="cat")
    assert second.workload_id != first.workload_id
    assert c.submit("actor", scheduling_strategy=near_first).state == "PENDING"


def test_no_two_actors_have_one_id():
    """A name that people choose may look like an id that the cluster would make up."""
    c = make_cluster(make_nodes(2))
    named = c.submit("actor", name="actor-2", resources={"CPU": 1})
    unnamed = c.submit("actor", resources={"CPU": 1})
    assert named.workload_id != unnamed.workload_id
    for w in (named, unnamed):
        c.finish(w)


def test_the_same_name_in_two_namespaces_is_two_actors():
    c = make_cluster(make_nodes(2))
    one = c.submit("actor", name="cat", namespace="a")
    two = c.submit("actor", name="cat", namespace="b")
    assert one.workload_id != two.workload_id
