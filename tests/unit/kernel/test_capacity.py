"""The capacity rule: what is asked for must be there, and free."""

import pytest

from remora.testing.builders import make_cluster, make_node, make_nodes

# node resources, what runs there, what is asked for, whether it is placed
TABLE = {
    "all of it": ({"CPU": 4}, {}, {"CPU": 4}, True),
    "more than there is": ({"CPU": 4}, {}, {"CPU": 4.0001}, False),
    "exactly what is left": ({"CPU": 4}, {"CPU": 3}, {"CPU": 1}, True),
    "a little more than is left": ({"CPU": 4}, {"CPU": 3}, {"CPU": 1.0001}, False),
    "nothing on a full node": ({"CPU": 4}, {"CPU": 4}, {}, True),
    "nothing on an empty node": ({}, {}, {}, True),
    "an unknown resource": ({"CPU": 4}, {}, {"GPU": 1}, False),
    "two resources, one of them short": ({"CPU": 4, "GPU": 1}, {"GPU": 1}, {"CPU": 1, "GPU": 1}, False),
    "a custom resource": ({"4c8g": 1}, {}, {"4c8g": 1}, True),
    "a custom resource that is in use": ({"4c8g": 1}, {"4c8g": 0.5}, {"4c8g": 1}, False),
}


@pytest.mark.parametrize(("total", "running", "asked", "want"), list(TABLE.values()), ids=list(TABLE))
def test_a_node_must_have_it_free(total, running, asked, want):
    c = make_cluster(make_node("n1").holds(total))
    c.submit("actor", resources=running)
    assert c.submit("task", resources=asked).state == ("PLACED" if want else "PENDING")


def test_ten_tenths_fill_one_cpu_exactly():
    c = make_cluster(make_node("n1").cpu(1))
    tenths = [c.submit("task", resources={"CPU": 0.1}) for _ in range(11)]
    assert [w.state for w in tenths] == ["PLACED"] * 10 + ["PENDING"]
    for w in tenths:
        c.finish(w)
    assert c.submit("task", resources={"CPU": 1}).state == "PLACED"


def test_what_is_finished_or_failed_is_free_again():
    c = make_cluster(make_node("n1").cpu(1))
    first, second = c.submit("task", resources={"CPU": 1}), c.submit("task", resources={"CPU": 1})
    c.finish(first)
    assert (first.state, second.state) == ("FINISHED", "PLACED")
    assert first.node is None


def test_a_default_actor_needs_a_cpu_to_start_and_none_to_live():
    c = make_cluster(make_node("n1").cpu(1))
    assert [c.submit("actor").state for _ in range(3)] == ["PLACED"] * 3
    c.submit("task")
    waiting = c.submit("actor")
    assert waiting.state == "PENDING"
    assert waiting.reason == "0/1 nodes fit: 1 lacks 1 CPU"


@pytest.mark.parametrize(
    ("nodes", "asked", "want"),
    [
        (1, {"CPU": 8}, "0/1 nodes fit: 1 is too small for 8 CPU"),
        (2, {"CPU": 8}, "0/2 nodes fit: 2 are too small for 8 CPU"),
        (1, {"CPU": 1}, "0/1 nodes fit: 1 lacks 1 CPU"),
        (2, {"CPU": 0.5}, "0/2 nodes fit: 2 lack 0.5 CPU"),
        (2, {"CPU": 1, "GPU": 1}, "0/2 nodes fit: 2 lack 1 CPU"),
        (2, {"GPU": 1}, "0/2 nodes fit: 2 are too small for 1 GPU"),
    ],
)
def test_the_refusal_tells_too_small_from_too_busy(nodes, asked, want):
    c = make_cluster(make_nodes(nodes))
    for _ in range(nodes):
        c.submit("actor", resources={"CPU": 4})
    assert c.submit("task", resources=asked).reason == want


def test_the_suggestion_names_the_node_that_lacks_least():
    c = make_cluster(make_nodes(2))
    c.submit("actor", resources={"CPU": 4})
    c.submit("actor", resources={"CPU": 3})
    assert c.submit("task", resources={"CPU": 2}).suggestions == ["free 1 CPU on n2"]


def test_no_node_at_all():
    c = make_cluster()
    w = c.submit("task")
    assert w.reason == "there are no nodes yet"
    assert w.suggestions == ["add a node with 1 CPU"]
