"""Which machines are kept though they look idle, and how idle minima come to lie on few of them."""

import pytest

from remora.kernel.provisioning.plans import Plan
from remora.sim import SimCluster

WEB = {"node_types": {"web": {"resources": {"CPU": 4}}}}


def make(machines=3, types=WEB):
    c = SimCluster()
    c.offer_node_types(types)
    for _ in range(machines):
        c.start_node("web")
    return c


def why(c, **options):
    return {node: kept.why for node, kept in c.kept(**options).items()}


def test_nothing_is_kept_where_nothing_is_promised():
    c = make()
    c.create_virtual_cluster({"flexible_resource_max": {"CPU": 4}})
    assert c.kept() == {}


def test_every_machine_with_a_fixed_size_node_is_kept():
    c = make()
    spec = {"nodes": [{"resources": {"CPU": 1}}] * 2, "scheduling_policy": "STRICT_SPREAD"}
    vc = c.create_virtual_cluster({"fixed_size_nodes": [spec]})
    assert why(c) == {"web-1": "the minimum of vc-1 lies there", "web-2": "the minimum of vc-1 lies there"}
    vc.destroy()
    assert c.kept() == {}


def test_a_flexible_minimum_is_kept_on_as_few_machines_as_carry_it():
    c = make()
    fillers = [c.submit("task", resources={"CPU": cpus}) for cpus in (3, 2, 1)]
    assert [work.node for work in fillers] == ["web-1", "web-2", "web-3"]
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 6}})  # 3 on web-3, 2 on web-2, 1 on web-1
    for work in fillers:
        c.finish(work)
    assert {node: kept.kind for node, kept in c.kept().items()} == dict.fromkeys(["web-1", "web-2", "web-3"], "minimum")
    assert c.scheduler.compact() != 0
    c.validate()
    assert len(c.kept()) == 2


def test_machines_that_are_kept_already_are_kept_on():
    c = make(2)
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 8}})
    a = c.submit("task", resources={"CPU": 4}, virtual_cluster="vc-1")
    b = c.submit("task", resources={"CPU": 4}, virtual_cluster="vc-1")
    c.finish(a)
    c.finish(b)
    (first,) = c.kept()
    assert set(c.kept(before=[first])) == {first}


def test_what_lies_on_a_machine_that_nobody_ends_needs_no_other():
    c = make(1)
    c.add_node("head", resources={"CPU": 8})
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 8}})
    assert c.kept() == {}


def test_the_minimum_of_a_nested_cluster_keeps_its_machine_too():
    c = make(1)
    outer = c.create_virtual_cluster({"flexible_resource_max": {"CPU": 4}})
    inner = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}}, parent=outer)
    assert why(c) == {"web-1": "the minimum of vc-2 lies there"}
    inner.destroy()
    assert c.kept() == {}


def test_work_that_is_about_to_start_and_groups_keep_their_machines():
    c = make(2)
    work = c.submit("actor", name="cat", resources={"CPU": 4})
    group = c.placement_group([{"CPU": 1}], name="gang")
    assert why(c) == {"web-1": "cat is about to start there", "web-2": "the placement group gang is about to start there"}
    c.scheduler.cluster.confirm(work._work)
    assert set(c.kept()) == {"web-2"}
    c.finish(group)
    assert c.kept() == {}


def test_the_machines_of_a_whole_that_has_come_in_part_are_kept_until_the_others_have():
    c = make(0, {"node_types": {"web": {"resources": {"CPU": 2}}}})
    spec = {"nodes": [{"resources": {"CPU": 2}}] * 3, "scheduling_policy": "STRICT_SPREAD"}
    vc = c.create_virtual_cluster({"fixed_size_nodes": [spec]})
    c.start_node("web")
    plan = c.plan({"web": 1})
    assert (plan.add, dict(plan.awaited)) == ({"web": 1}, {"web": 1})
    assert why(c, plan=plan) == {"web-1": "vc-1 is to lie there, and waits for other nodes"}
    for _ in range(2):
        c.start_node("web")
    assert vc.state == "READY"
    assert set(c.kept(c.plan())) == {"web-1", "web-2", "web-3"}
    assert c.kept(Plan(held={"gone": "vc-1"})) == c.kept()


# what fills the machines while the minimum is reserved, the minimum, machines that carry it after compacting
CRUMBS = {
    "two that fit on one": ((2, 2), 4, 1),
    "two that do not": ((2, 2, 4), 4, 1),
    "three on two": ((3, 2, 1), 6, 2),
    "one whole": ((), 4, 1),
}


@pytest.mark.parametrize(("fill", "least", "want"), CRUMBS.values(), ids=CRUMBS)
def test_idle_minima_come_to_lie_on_few_machines(fill, least, want):
    c = make(max(len(fill), 2))
    work = [c.submit("task", resources={"CPU": cpus}) for cpus in fill]
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": least}})
    for each in work:
        c.finish(each)
    c.scheduler.compact()
    c.validate()
    assert len(c.kept()) == want
    assert sum(node.total["CPU"] for node in vc.nodes) == least


def test_compacting_moves_nothing_that_is_in_use_and_nothing_onto_taints():
    c = make(2)
    a, b = (c.submit("task", resources={"CPU": 3}) for _ in range(2))
    assert [a.node, b.node] == ["web-1", "web-2"]
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})  # 1 on each
    inside = [c.submit("task", resources={"CPU": 1}, virtual_cluster="vc-1") for _ in range(2)]
    c.finish(a)
    c.finish(b)
    assert c.scheduler.compact() == 0  # both are in use
    c.finish(inside[0])
    c.taint("web-2", {"broken": "yes"})
    assert c.scheduler.compact() == 0  # the other may not be used
    c.untaint("web-2", ["broken"])
    assert c.scheduler.compact() == 1 << 0
    c.validate()


def test_nested_idle_minima_move_with_their_parents():
    c = make(2)
    fill = [c.submit("task", resources={"CPU": 3}), c.submit("task", resources={"CPU": 3})]
    outer = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 2}})
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}}, parent=outer)
    assert len(c.kept()) == 2
    for work in fill:
        c.finish(work)
    assert c.scheduler.compact() != 0
    c.validate()
    assert len(c.kept()) == 1
    assert {vnode.total["CPU"] for cluster in c.scheduler.cluster.tree.clusters.values() for vnode in cluster.vnodes()} == {
        20_000
    }
