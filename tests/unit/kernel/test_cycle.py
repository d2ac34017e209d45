"""Everything that waits is decided again on every change, oldest first."""

from typing import Any

import pytest

from remora import Exists, NodeAffinitySchedulingStrategy, VirtualCluster, actor_affinity
from remora.testing.builders import make_cluster, make_node, make_nodes

FULL: dict[str, Any] = {"resources": {"CPU": 4}}

# what waits on a full node n1, and the change that places it
CHANGES = {
    "a node joins": (dict(FULL), lambda c, running: make_node("n2").cpu(4).join(c)),
    "something finishes": (dict(FULL), lambda c, running: c.finish(running)),
    "a taint goes": ({"resources": {}, "tolerations": None}, lambda c, running: c.untaint("n1", ["t"])),
    "a taint changes its value": ({"resources": {}, "tolerations": {"t": "w"}}, lambda c, running: c.taint("n1", {"t": "w"})),
    "a label comes": (
        {"resources": {}, "tolerations": {"t": Exists()}, "label_selector": {"zone": "a"}},
        lambda c, running: c.label("n1", {"zone": "a"}),
    ),
    "a label goes": (
        {"resources": {}, "tolerations": {"t": Exists()}, "label_selector": {"old": "!exists()"}},
        lambda c, running: c.unlabel("n1", ["old"]),
    ),
    "a friend comes": (
        {"resources": {}, "tolerations": {"t": Exists()}, "scheduling_strategy": actor_affinity({"type": "dog"})},
        lambda c, running: c.submit("actor", resources={}, labels={"type": "dog"}, tolerations={"t": Exists()}),
    ),
    "a foe goes": (
        {"resources": {}, "tolerations": {"t": Exists()}, "scheduling_strategy": actor_affinity({"type": "!cat"})},
        lambda c, running: c.finish(running),
    ),
    "its pinned node joins": (
        {"resources": {}, "scheduling_strategy": NodeAffinitySchedulingStrategy("n9")},
        lambda c, running: make_node("n9").join(c),
    ),
}


@pytest.mark.parametrize(("options", "change"), list(CHANGES.values()), ids=list(CHANGES))
def test_what_waits_is_placed_when(options, change):
    c = make_cluster(make_node("n1").cpu(4).label(old="1"))
    running = c.submit("actor", labels={"type": "cat"}, **FULL)
    c.taint("n1", {"t": "v"})
    options = {"tolerations": {"t": Exists()}, **options}
    w = c.submit("actor", **options)
    assert w.state == "PENDING"
    assert w.reason
    change(c, running)
    assert w.state == "PLACED"
    assert (w.reason, w.suggestions) == ("", [])


def test_equal_requests_are_placed_first_come_first_served():
    c = make_cluster(make_node("n1").cpu(1))
    line = [c.submit("task", resources={"CPU": 1}) for _ in range(4)]
    for position, w in enumerate(line):
        assert [other.state for other in line[position:]] == ["PLACED"] + ["PENDING"] * (3 - position)
        c.finish(w)


def test_the_oldest_goes_first_among_different_requests():
    c = make_cluster(make_node("n1").cpu(2))
    running = c.submit("task", resources={"CPU": 2})
    old, young = c.submit("task", resources={"CPU": 2}), c.submit("task", resources={"CPU": 1})
    c.finish(running)
    assert (old.state, young.state) == ("PLACED", "PENDING")


def test_a_small_one_passes_a_large_one_that_does_not_fit():
    c = make_cluster(make_node("n1").cpu(2))
    c.submit("task", resources={"CPU": 1})
    large, small = c.submit("task", resources={"CPU": 2}), c.submit("task", resources={"CPU": 1})
    assert (large.state, small.state) == ("PENDING", "PLACED")


def test_one_that_is_withdrawn_leaves_the_line():
    c = make_cluster(make_node("n1").cpu(1))
    running, second, third = (c.submit("task", resources={"CPU": 1}) for _ in range(3))
    c.finish(second)
    assert second.state == "FINISHED"
    c.finish(running)
    assert third.state == "PLACED"


def test_a_node_dies_and_its_work_goes_ahead_of_those_that_came_later():
    c = make_cluster(make_nodes(2, make_node("").cpu(1)))
    first, second, waiting = (c.submit("task", resources={"CPU": 1}) for _ in range(3))
    c.remove_node(str(first.node))
    assert (first.state, second.state, waiting.state) == ("PENDING", "PLACED", "PENDING")
    make_node("n9").cpu(1).join(c)
    assert (first.node, waiting.state) == ("n9", "PENDING")


def test_many_nodes_come_and_go_and_numbers_are_used_again():
    c = make_cluster(make_nodes(3))
    w = c.submit("actor", resources={"CPU": 1})
    for turn in range(10):
        make_node(f"x{turn}").cpu(4).label(turn=str(turn)).join(c)
        c.remove_node(str(w.node))
        assert w.state == "PLACED"
        c.validate()


def test_work_in_a_queued_virtual_cluster_waits_and_then_runs():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", **FULL)
    vc = c.create_virtual_cluster(VirtualCluster(flexible_resource_min={"CPU": 2}))
    w = c.submit("task", resources={"CPU": 1}, virtual_cluster=vc)
    pg = c.placement_group([{"CPU": 1}], virtual_cluster=vc)
    assert w.reason == pg.reason == f"its virtual cluster {vc.cluster_id} is queued"
    c.finish(running)
    assert (vc.state, w.state, pg.state) == ("READY", "PLACED", "PLACED")


def test_a_node_that_left_and_came_back_is_a_new_node():
    c = make_cluster(make_node("n1").cpu(4).taint(old="1").label(zone="a"))
    c.remove_node("n1")
    make_node("n1").cpu(2).join(c)
    assert c.submit("task", resources={"CPU": 2}).node == "n1"
    assert c.submit("task", resources={}, label_selector={"zone": "a"}).state == "PENDING"
