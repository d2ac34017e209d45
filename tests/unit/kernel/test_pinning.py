"""Node affinity by id: a hard pin is a rule, a soft one a wish."""

import pytest

from remora import NodeAffinitySchedulingStrategy
from remora.testing.builders import make_cluster, make_nodes


def pin(node_id, soft=False):
    return NodeAffinitySchedulingStrategy(node_id, soft=soft)


# pin, the node that a task of one CPU gets on n1, n2, n3 (n3 is full)
TABLE = {
    "a hard pin goes there": (pin("n2"), "n2"),
    "a soft pin goes there": (pin("n2", soft=True), "n2"),
    "a hard pin to a full node waits": (pin("n3"), None),
    "a soft pin to a full node goes elsewhere": (pin("n3", soft=True), "n1"),
    "a hard pin to an unknown node waits": (pin("n9"), None),
    "a soft pin to an unknown node goes elsewhere": (pin("n9", soft=True), "n1"),
}


@pytest.mark.parametrize(("strategy", "want"), list(TABLE.values()), ids=list(TABLE))
def test_a_pin(strategy, want):
    c = make_cluster(make_nodes(3))
    c.submit("actor", resources={"CPU": 4}, scheduling_strategy=pin("n3"))
    assert c.submit("task", resources={"CPU": 1}, scheduling_strategy=strategy).node == want


def test_a_hard_pin_waits_for_its_node_to_join():
    c = make_cluster(make_nodes(1))
    w = c.submit("task", scheduling_strategy=pin("n2"))
    assert w.reason == "0/1 nodes fit: 1 is not the node n2"
    for node in make_nodes(2)[1:]:
        node.join(c)
    assert w.node == "n2"


def test_a_hard_pin_waits_after_its_node_died_and_a_soft_one_moves():
    c = make_cluster(make_nodes(3))
    hard = c.submit("actor", resources={"CPU": 1}, scheduling_strategy=pin("n1"))
    soft = c.submit("actor", resources={"CPU": 1}, scheduling_strategy=pin("n1", soft=True))
    c.remove_node("n1")
    assert hard.state == "PENDING"
    assert soft.node == "n2"
    assert hard.reason == "0/2 nodes fit: 2 are not the node n1"


def test_dropping_the_pin_is_suggested():
    c = make_cluster(make_nodes(1))
    assert c.submit("task", scheduling_strategy=pin("n9")).suggestions == ["drop the node affinity to n9"]
