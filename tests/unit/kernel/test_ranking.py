"""Which of several good nodes is taken."""

import pytest

from remora import NodeAffinitySchedulingStrategy, actor_affinity, label_in, label_not_in, node_affinity
from remora.testing.builders import make_cluster, make_node, make_nodes


def where(c, count, **options):
    return [c.submit("task", resources={"CPU": 1}, **options).node for _ in range(count)]


def test_the_default_packs_to_half_then_takes_the_least_used():
    c = make_cluster(make_nodes(2))
    assert where(c, 9) == ["n1", "n1", "n2", "n2", "n1", "n2", "n1", "n2", None]


def test_memory_counts_like_cpu():
    c = make_cluster(node.holds(memory=100) for node in make_nodes(2))
    c.submit("task", resources={"memory": 60})
    assert where(c, 1) == ["n2"]


def test_a_custom_resource_does_not_make_a_node_busy():
    c = make_cluster(node.holds(custom=1) for node in make_nodes(2))
    c.submit("task", resources={"custom": 1})
    assert where(c, 1) == ["n1"]


def test_spread_goes_round_the_least_used():
    c = make_cluster(make_nodes(3))
    assert where(c, 7, scheduling_strategy="SPREAD") == ["n1", "n2", "n3", "n1", "n2", "n3", "n1"]


def test_spread_goes_round_even_when_nothing_stays():
    c = make_cluster(make_nodes(3))
    seen = []
    for _ in range(4):
        w = c.submit("task", resources={"CPU": 1}, scheduling_strategy="SPREAD")
        seen.append(w.node)
        c.finish(w)
    assert seen == ["n1", "n2", "n3", "n1"]


def test_spread_prefers_the_least_used_to_its_turn():
    c = make_cluster(make_nodes(3))
    c.submit("task", resources={"CPU": 2}, scheduling_strategy=NodeAffinitySchedulingStrategy("n1"))
    assert where(c, 4, scheduling_strategy="SPREAD") == ["n2", "n3", "n2", "n3"]


def test_work_without_gpu_leaves_gpu_nodes_alone():
    c = make_cluster(make_node("gpu").cpu(4).gpu(1), make_node("cpu").cpu(2))
    assert where(c, 3) == ["cpu", "cpu", "gpu"]
    assert c.submit("task", resources={"GPU": 1}).node == "gpu"


def test_spread_leaves_gpu_nodes_alone_too():
    c = make_cluster(make_node("gpu").cpu(4).gpu(1), make_node("cpu").cpu(2))
    assert where(c, 2, scheduling_strategy="SPREAD") == ["cpu", "cpu"]


def test_wishes_come_before_gpu_avoidance_and_packing():
    c = make_cluster(make_node("cpu").cpu(4), make_node("gpu").cpu(4).gpu(1).label(zone="a"))
    wish = node_affinity(label_in("zone", ["a"], True))
    assert where(c, 1, scheduling_strategy=wish) == ["gpu"]


# wishes, the node that satisfies most of them
WISHES = {
    "one wish": ([label_in("zone", ["a"], True)], "a-ssd"),
    "two wishes, one node has both": ([label_in("zone", ["a"], True), label_in("disk", ["hdd"], True)], "a-hdd"),
    "three wishes, two are the most": (
        [label_in("zone", ["b"], True), label_in("disk", ["ssd"], True), label_in("gen", ["9"], True)],
        "b-ssd",
    ),
    "a wish to keep away": ([label_not_in("zone", ["a"], True)], "b-ssd"),
    "a wish that nobody grants": ([label_in("zone", ["z"], True)], "a-ssd"),
}


@pytest.mark.parametrize(("wishes", "want"), list(WISHES.values()), ids=list(WISHES))
def test_the_node_that_satisfies_most_wishes(wishes, want):
    c = make_cluster(
        make_node(f"{zone}-{disk}").cpu(4).label(zone=zone, disk=disk) for zone in ("a", "b") for disk in ("ssd", "hdd")
    )
    assert where(c, 1, scheduling_strategy=node_affinity(wishes)) == [want]


def test_wishes_of_different_rules_are_counted_together():
    c = make_cluster(make_nodes(3))
    for node in ("n2", "n3"):
        c.label(node, {"zone": "a"})
    c.submit("actor", labels={"type": "cat"}, scheduling_strategy=NodeAffinitySchedulingStrategy("n3"))
    wishes = [node_affinity(label_in("zone", ["a"], True)), actor_affinity(label_in("type", ["cat"], True))]
    assert where(c, 1, affinity=wishes) == ["n3"]


def test_a_full_node_grants_no_wish():
    c = make_cluster(make_nodes(2))
    c.submit("task", resources={"CPU": 4}, scheduling_strategy=NodeAffinitySchedulingStrategy("n2"))
    assert where(c, 1, scheduling_strategy=NodeAffinitySchedulingStrategy("n2", soft=True)) == ["n1"]


@pytest.mark.parametrize(("seed", "want"), [(0, "n1"), (1, "n2"), (2, "n3"), (3, "n1")])
def test_the_seed_turns_the_order_of_equals(seed, want):
    assert where(make_cluster(make_nodes(3), seed=seed), 1) == [want]
    assert where(make_cluster(make_nodes(3), seed=seed), 1, scheduling_strategy="SPREAD") == [want]


def test_the_same_steps_with_the_same_seed_end_the_same():
    def story(seed):
        c = make_cluster(make_nodes(5), seed=seed)
        first = where(c, 6)
        c.remove_node("n2")
        return first + where(c, 6, scheduling_strategy="SPREAD")

    assert story(7) == story(7)
