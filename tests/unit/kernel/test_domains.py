"""Affinity by domain: in, or not in, the same zone or rack instead of the same node."""

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
from remora.errors import InvalidSelectorError, InvalidStrategyError
from remora.sim import SimCluster

CPU = {"CPU": 1}


def zones(count=2, zones="abc", cpus=4):
    """So many nodes in each zone, ``a0``, ``a1``, ..., each in a rack of its own."""
    c = SimCluster()
    for zone in zones:
        for index in range(count):
            c.add_node(f"{zone}{index}", {"CPU": cpus}, labels={"zone": zone, "rack": f"{zone}{index}"})
    return c


def zone_of(c, work):
    return c.scheduler.cluster.nodes.get(work.node).labels["zone"]


def submit(c, strategy=None, labels=None, **options):
    return c.submit("actor", resources=CPU, labels=labels, scheduling_strategy=strategy, **options)


# what the newcomer says beside a web actor on a0, and the zones where it may go
TABLE = {
    "in": (label_in("svc", ["web"], topology="zone"), "a"),
    "in, soft said by name": (label_in("svc", ["web"], soft=False, topology="zone"), "a"),
    "not in": (label_not_in("svc", ["web"], topology="zone"), "bc"),
    "exists": (label_exists("svc", topology="zone"), "a"),
    "does not exist": (label_does_not_exist("svc", topology="zone"), "bc"),
    "in another value": (label_not_in("svc", ["db"], topology="zone"), "abc"),
    "a tuple": (("svc", "IN", ["web"], False, "zone"), "a"),
    "a query": ("svc in [web] within zone", "a"),
    "a query, not": ("svc not in [web] within zone", "bc"),
    "a query over two labels of nodes": ("svc exists within zone and svc not exists within rack", "a"),
    "a soft one": (label_in("svc", ["web"], soft=True, topology="zone"), "a"),
}


@pytest.mark.parametrize(("says", "want"), list(TABLE.values()), ids=list(TABLE))
def test_every_spelling_asks_about_the_domain(says, want):
    c = zones()
    submit(c, labels={"svc": "web"}, label_selector={"rack": "a0"})
    found = set()
    while (work := submit(c, actor_affinity(says))).state == "PLACED" and zone_of(c, work) in want:
        found.add(zone_of(c, work))
    assert found == set(want)
    assert work.state == "PENDING" or "soft" in str(says)


def test_by_handle():
    c = zones()
    first = submit(c)
    near = submit(c, actor_affinity(affinity(first, topology="zone")))
    far = submit(c, actor_affinity(anti_affinity([first, near], topology="zone")))
    assert zone_of(c, near) == zone_of(c, first) != zone_of(c, far)


def test_expressions_of_one_strategy_name_different_labels():
    c = zones()
    submit(c, labels={"svc": "web"}, label_selector={"rack": "a0"})
    both = [label_in("svc", ["web"], topology="zone"), label_not_in("svc", ["web"])]
    assert submit(c, actor_affinity(both)).node == "a1"


def test_tasks_too_and_an_or():
    c = zones()
    c.submit("task", resources=CPU, labels={"stage": "load"}, label_selector={"rack": "b1"})
    either = task_affinity([label_in("stage", ["load"], topology="zone"), label_in("stage", ["x"])], is_or_semantics=True)
    assert zone_of(c, c.submit("task", resources=CPU, affinity=either)) == "b"


def test_symmetric_keeps_newcomers_out_of_the_whole_domain():
    c = zones(zones="ab")
    submit(c, actor_affinity(label_not_in("svc", ["batch"], topology="zone"), symmetric=True), label_selector={"zone": "a"})
    assert [zone_of(c, submit(c, labels={"svc": "batch"})) for _ in range(3)] == ["b"] * 3


def test_a_node_without_the_label_is_in_no_domain():
    c = SimCluster()
    c.add_node("bare", {"CPU": 8})
    submit(c, labels={"svc": "web"})
    assert submit(c, actor_affinity(label_not_in("svc", ["web"], topology="zone"))).node == "bare"
    waits = submit(c, actor_affinity(label_in("svc", ["web"], topology="zone")))
    assert waits.reason == "0/1 nodes fit: 1 has no label zone, so it is in no domain"


def test_exactly_one_a_zone_and_the_reason_with_the_smallest_change():
    c = zones(count=4, cpus=2)
    for node in ("c0", "c1", "c2", "c3"):
        c.submit("actor", resources={"CPU": 2}, label_selector={"rack": node})
    rule = actor_affinity(label_not_in("svc", ["web"], soft=False, topology="zone"))
    made = [submit(c, rule, {"svc": "web"}) for _ in range(3)]
    assert [work.state for work in made] == ["PLACED", "PLACED", "PENDING"]
    assert made[2].reason == ("0/12 nodes fit: 8 are in zones a, b that already host an actor with svc in (web), 4 lack 1 CPU")
    suggestions = [suggestion.text for suggestion in c.scheduler.explain(made[2]._inner).suggestions]
    assert suggestions[0] == "add a node in zone c with 1 CPU"
    c.add_node("c9", {"CPU": 1}, labels={"zone": "c"})
    assert made[2].node == "c9"


def test_when_every_zone_is_taken_a_further_one_is_suggested():
    c = zones(zones="a")
    rule = actor_affinity(label_not_in("svc", ["web"], topology="zone"))
    waits = [submit(c, rule, {"svc": "web"}) for _ in range(2)][1]
    assert waits.reason == "0/2 nodes fit: 2 are in zone a that already hosts an actor with svc in (web)"
    assert [each.text for each in c.scheduler.explain(waits._inner).suggestions] == [
        "add a node in another zone with 1 CPU",
        "drop the anti-affinity to actors with svc in (web) within zone",
    ]


def test_labels_that_change_make_other_domains_and_what_waits_is_decided_again():
    c = zones(zones="ab", count=1)
    rule = actor_affinity(label_not_in("svc", ["web"], topology="zone"))
    first, second, third = (submit(c, rule, {"svc": "web"}) for _ in range(3))
    assert third.state == "PENDING"
    c.label("b0", {"zone": "a"})  # what runs stays: both are in zone a now
    c.validate()
    assert (first.node, second.node, third.state) == ("a0", "b0", "PENDING")
    c.add_node("c0", {"CPU": 4}, labels={"zone": "a"})
    assert third.state == "PENDING"
    c.label("c0", {"zone": "c"})
    assert third.node == "c0"
    c.validate()


def test_a_zone_that_dies_restarts_elsewhere_by_the_same_rules():
    c = zones(zones="abc", count=1)
    rule = actor_affinity(label_not_in("svc", ["web"], topology="zone"))
    made = [submit(c, rule, {"svc": "web"}) for _ in range(2)]
    lost = made[0].node
    c.remove_node(lost)
    assert {zone_of(c, work) for work in made} == {*"abc"} - {lost[0]}


def test_in_a_virtual_cluster_a_domain_is_made_of_its_own_nodes():
    c = zones(zones="ab", count=2)
    share = {"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 2}}] * 2, "scheduling_policy": "STRICT_SPREAD"}]}
    vc = c.create_virtual_cluster(share)
    mine = {node.node_id if hasattr(node, "node_id") else node for node in vc.nodes}
    assert mine
    physical = [vnode.node for vnode in c.scheduler.cluster.tree.get(vc.cluster_id).fixed]
    own = {c.scheduler.cluster.nodes.at(number).node_id for number in physical}
    outside = next(node for node in ("a0", "a1", "b0", "b1") if node not in own)
    submit(c, labels={"svc": "web"}, label_selector={"rack": outside})
    rule = actor_affinity(label_not_in("svc", ["web"], topology="zone"))
    work = submit(c, rule, {"svc": "web"}, virtual_cluster=vc)
    assert work.state == "PLACED"  # the other one is in its zone, but not on a node of the cluster
    zone = zone_of(c, work)
    again = [submit(c, rule, {"svc": "web"}, virtual_cluster=vc) for _ in range(2)]
    others = {c.scheduler.cluster.nodes.at(number).labels["zone"] for number in physical} - {zone}
    assert sum(each.state == "PLACED" for each in again) == len(others)
    c.validate()


BAD = {
    "a number": lambda: label_in("svc", ["web"], topology=3),  # type: ignore[arg-type]
    "a bad key": lambda: label_in("svc", ["web"], topology="a b"),
    "a tuple of six": lambda: actor_affinity([("svc", "IN", ["web"], False, "zone", 1)]),
}


@pytest.mark.parametrize("make", list(BAD.values()), ids=list(BAD))
def test_a_bad_topology_is_refused_with_an_example(make):
    with pytest.raises(InvalidSelectorError, match="for example"):
        make()


def test_a_topology_is_for_what_is_placed_not_for_labels_of_nodes():
    from remora import LabelSelector, node_affinity

    with pytest.raises(InvalidStrategyError, match="own labels"):
        node_affinity(label_in("zone", ["a"], topology="rack"))
    with pytest.raises(InvalidSelectorError, match="names a topology"):
        LabelSelector([label_in("zone", ["a"], topology="rack")])
