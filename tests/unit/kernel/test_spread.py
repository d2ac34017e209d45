"""spread(...): of everything with the same labels no domain has more than max_skew above the least."""

from collections import Counter

import pytest

from remora import actor_affinity, label_not_in, spread
from remora.errors import InvalidInputError
from remora.sim import SimCluster
from remora.testing.builders import make_node

CPU = {"CPU": 1}
WEB = {"app": "web"}


def cluster(**zones):
    """Nodes of so many CPUs in each zone: ``cluster(a=[4, 4], b=[2])``."""
    c = SimCluster()
    for zone, nodes in zones.items():
        for index, cpus in enumerate(nodes):
            c.add_node(f"{zone}{index}", {"CPU": cpus}, labels={"zone": zone})
    return c


def submit(c, strategy, count=1, labels=WEB, **options):
    return [c.submit("actor", resources=CPU, labels=labels, scheduling_strategy=strategy, **options) for _ in range(count)]


def by_zone(c, works):
    nodes = c.scheduler.cluster.nodes
    return dict(Counter(nodes.get(work.node).labels.get("zone") for work in works if work.state == "PLACED"))


def test_evenly_whatever_the_size_of_the_zones():
    c = cluster(a=[16], b=[4, 4], c=[2, 2, 2])
    assert by_zone(c, submit(c, spread(over="zone"), 9)) == {"a": 3, "b": 3, "c": 3}


def test_a_larger_skew_lets_one_be_ahead_and_no_more():
    c = cluster(a=[16], b=[1])
    assert by_zone(c, submit(c, spread(over="zone", max_skew=3), 9)) == {"a": 4, "b": 1}


def test_a_full_zone_holds_the_others_back_and_the_reason_says_so():
    c = cluster(a=[16], b=[1])
    works = submit(c, spread(over="zone"), 4)
    assert by_zone(c, works) == {"a": 2, "b": 1}
    assert works[3].reason == "0/2 nodes fit: 1 is in zone a that would have too many with app=web (max_skew=1), 1 lacks 1 CPU"
    assert [each.each for each in works[3].explain().refusals] == [
        "is in zone a that would have too many with app=web (max_skew=1)",
        "lacks 1 CPU",
    ]
    assert [each.text for each in c.scheduler.explain(works[3]._inner).suggestions][:2] == [
        "add a node in zone b with 1 CPU",
        "drop the spread over zone",
    ]
    c.add_node("b9", {"CPU": 1}, labels={"zone": "b"})
    assert works[3].node == "b9"


def test_a_smaller_one_elsewhere_lets_the_next_one_go_on():
    c = cluster(a=[4], b=[0.5])
    first, second = submit(c, spread(over="zone", labels=WEB), 1)[0], None
    second = submit(c, spread(over="zone", labels=WEB), 1)[0]
    assert (first.state, second.state) == ("PLACED", "PLACED")  # zone b is too small, so it does not count
    c.add_node("b1", {"CPU": 1}, labels={"zone": "b"})
    third, fourth = submit(c, spread(over="zone", labels=WEB), 2)
    assert (third.node, fourth.state) == ("b1", "PENDING")


DO_NOT_COUNT = {
    "a taint": (make_node("c0").cpu(4).label(zone="c").taint(gpu="true"), {}),
    "a label": (make_node("c0").cpu(4).label(zone="c", tier="spot"), {"label_selector": {"tier": "!spot"}}),
    "the size": (make_node("c0").cpu(0.5).label(zone="c"), {}),
}


@pytest.mark.parametrize(("node", "options"), list(DO_NOT_COUNT.values()), ids=list(DO_NOT_COUNT))
def test_domains_where_it_could_never_run_do_not_count(node, options):
    c = cluster(a=[8], b=[8])
    node.join(c)
    assert by_zone(c, submit(c, spread(over="zone"), 6, **options)) == {"a": 3, "b": 3}


def test_a_toleration_makes_a_tainted_zone_count():
    c = cluster(a=[8], b=[8])
    make_node("c0").cpu(1).label(zone="c").taint(gpu="true").join(c)
    works = submit(c, spread(over="zone"), 6, tolerations={"gpu": "exists()"})
    assert by_zone(c, works) == {"a": 2, "b": 2, "c": 1}


def test_a_floor_of_domains_first_and_then_packed():
    c = cluster(**{zone: [4] for zone in "abcde"})
    works = submit(c, spread(over="zone", min_domains=3), 9)
    assert sorted(by_zone(c, works).values()) == [3, 3, 3]


def test_the_floor_holds_however_large_the_skew():
    c = cluster(**{zone: [8] for zone in "abcde"})
    works = submit(c, spread(over="zone", max_skew=100, min_domains=3), 8)
    assert len(by_zone(c, works)) == 3
    assert len(by_zone(c, works[:3])) == 3


def test_a_floor_that_cannot_be_reached_waits_for_a_further_domain():
    c = cluster(a=[4], b=[4])
    works = submit(c, spread(over="zone", min_domains=3), 4)
    assert by_zone(c, works) == {"a": 1, "b": 1}
    assert "max_skew=1 on at least 3 zones" in works[2].reason
    c.add_node("c0", {"CPU": 1}, labels={"zone": "c"})
    assert by_zone(c, works) == {"a": 2, "b": 1, "c": 1} or by_zone(c, works) == {"a": 1, "b": 2, "c": 1}


def test_a_soft_one_is_as_even_as_there_is_room():
    c = cluster(a=[8], b=[1])
    assert by_zone(c, submit(c, spread(over="zone", soft=True), 6)) == {"a": 5, "b": 1}


def test_a_node_without_the_label_is_refused():
    c = cluster(a=[1])
    c.add_node("bare", {"CPU": 8})
    works = submit(c, spread(over="zone"), 2)
    assert [work.node for work in works] == ["a0", None]
    assert "1 has no label zone, so it is in no domain" in works[1].reason


def test_only_what_has_the_labels_counts_and_only_in_its_namespace():
    c = cluster(a=[8], b=[8])
    submit(c, None, 3, labels={"app": "other"}, label_selector={"zone": "a"})
    submit(c, None, 3, namespace="elsewhere", label_selector={"zone": "a"})
    assert by_zone(c, submit(c, spread(over="zone"), 2)) == {"a": 1, "b": 1}


def test_labels_say_what_counts():
    c = cluster(a=[8], b=[8])
    submit(c, None, 2, labels={"app": "db"}, label_selector={"zone": "a"})
    (work,) = submit(c, spread(over="zone", labels={"app": "in(web, db)"}), 1)
    assert work.node == "b0"


def test_beside_affinity_and_over_two_labels():
    c = SimCluster()
    for zone in "ab":
        for rack in "xy":
            c.add_node(f"{zone}{rack}", {"CPU": 8}, labels={"zone": zone, "rack": f"{zone}{rack}"})
    rules = [spread(over="zone"), spread(over="rack"), actor_affinity(label_not_in("app", ["web"]))]
    works = [c.submit("actor", resources=CPU, labels=WEB, affinity=rules) for _ in range(5)]
    assert {work.node for work in works[:4]} == {"ax", "ay", "bx", "by"}
    assert works[4].state == "PENDING"


def test_a_zone_that_dies_does_not_count_any_more():
    c = cluster(a=[4], b=[4], c=[4])
    works = submit(c, spread(over="zone"), 6)
    c.remove_node("c0")
    c.validate()
    assert by_zone(c, works) == {"a": 3, "b": 3}


def test_in_a_virtual_cluster_only_its_own_nodes_are_domains():
    c = cluster(a=[4], b=[4], c=[4])
    nodes = [{"resources": {"CPU": 3}}] * 2
    vc = c.create_virtual_cluster({"fixed_size_nodes": [{"nodes": nodes, "scheduling_policy": "STRICT_SPREAD"}]})
    works = submit(c, spread(over="zone"), 6, virtual_cluster=vc)
    assert sorted(by_zone(c, works).values()) == [3, 3]
    c.validate()


BAD = {
    "no label": lambda: spread(over="a b"),
    "no skew": lambda: spread(over="zone", max_skew=0),
    "a skew that is True": lambda: spread(over="zone", max_skew=True),
    "no floor": lambda: spread(over="zone", min_domains=0),
    "softness": lambda: spread(over="zone", soft="yes"),  # type: ignore[arg-type]
    "labels": lambda: spread(over="zone", labels={"a b": "c"}),
}


@pytest.mark.parametrize("make", list(BAD.values()), ids=list(BAD))
def test_bad_input_is_refused_with_an_example(make):
    with pytest.raises(InvalidInputError, match="for example"):
        make()
