"""Cases that once went wrong, each in the fewest steps; the names say what has to hold."""

from __future__ import annotations

import pytest

from remora import (
    Exists,
    InvalidVirtualClusterError,
    NodeAffinitySchedulingStrategy,
    VirtualCluster,
    actor_affinity,
    anti_affinity,
    label_in,
    node_affinity,
)
from remora.sim import SimCluster


def cluster(**cpus: float) -> SimCluster:
    c = SimCluster()
    for node_id, amount in cpus.items():
        c.add_node(node_id, {"CPU": amount})
    return c


def fixed(*nodes: dict, policy: str = "PACK") -> dict:
    return {"nodes": list(nodes), "scheduling_policy": policy}


def node(cpu: float = 1, **labels: str) -> dict:
    return {"resources": {"CPU": cpu}, "labels": labels}


def pinned(node_id: str) -> object:
    return NodeAffinitySchedulingStrategy(node_id)


def test_a_selector_is_asked_of_the_virtual_node_that_growth_would_make():
    c = cluster(n1=4)
    parent = c.create_virtual_cluster({"fixed_size_nodes": [fixed(node(2, slot="0"))]})
    child = c.create_virtual_cluster({}, parent)
    assert c.submit(label_selector={"slot": "!0"}, virtual_cluster=child).state == "PENDING"
    assert c.submit(label_selector={"slot": "0"}, virtual_cluster=child).state == "PLACED"
    assert child.nodes[0].labels["slot"] == "0"
    c.validate()


def test_a_virtual_node_can_be_avoided_by_its_id():
    c = cluster(n1=4)
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 1}})
    avoid = {"ray.io/vnode_id": f"!{vc.nodes[0].node_id}"}
    assert c.submit(label_selector=avoid, virtual_cluster=vc).state == "PENDING"


def test_bundles_obey_the_labels_of_virtual_nodes():
    c = cluster(n1=4)
    parent = c.create_virtual_cluster({"fixed_size_nodes": [fixed(node(2, slot="0"))]})
    child = c.create_virtual_cluster({}, parent)
    away = c.placement_group([{"CPU": 1}], bundle_label_selector=[{"slot": "!0"}], virtual_cluster=child)
    there = c.placement_group([{"CPU": 1}], bundle_label_selector=[{"slot": "0"}], virtual_cluster=child)
    assert (away.state, there.state) == ("PENDING", "PLACED")


def test_or_and_wishes_over_node_labels_see_the_labels_of_virtual_nodes():
    c = cluster(n1=2, n2=2)
    spec = {"fixed_size_nodes": [fixed(node(slot="0"), node(slot="1"), policy="STRICT_SPREAD")]}
    vc = c.create_virtual_cluster(spec)
    by_slot = {vnode.labels["slot"]: vnode.parent for vnode in vc.nodes}
    wish = c.submit(virtual_cluster=vc, scheduling_strategy=node_affinity(label_in("slot", ["1"], True)))
    assert wish.node == by_slot["1"]
    either = [label_in("slot", ["0"], False), label_in("slot", ["7"], False)]
    assert c.submit(virtual_cluster=vc, scheduling_strategy=node_affinity(either, True)).node == by_slot["0"]


def test_several_sets_of_fixed_nodes_are_placed_whatever_their_order():
    c = cluster(n1=2, n2=1)
    vc = c.create_virtual_cluster({"fixed_size_nodes": [fixed(node(1)), fixed(node(2))]})
    assert [vnode.parent for vnode in vc.nodes] == ["n2", "n1"]


def test_a_tight_packing_is_found():
    c = cluster(a=10, b=10, c=10, d=10)
    assert c.placement_group([{"CPU": 4}] * 4 + [{"CPU": 3}] * 8, "PACK").state == "PLACED"


def test_a_rare_resource_decides_where_a_flexible_node_comes_from():
    c = SimCluster()
    c.add_node("A", {"CPU": 4, "GPU": 1})
    c.add_node("B", {"CPU": 4})
    gpu = {"resources": {"GPU": 1}}
    parent = c.create_virtual_cluster({"fixed_size_nodes": [fixed(node(4), gpu), fixed(node(4))]})
    assert c.create_virtual_cluster({"flexible_resource_min": {"CPU": 4, "GPU": 1}}, parent).state == "READY"


def test_nobody_overtakes_one_that_is_itself_held_up():
    c = SimCluster()
    c.add_node("n1", {"CPU": 4, "GPU": 1})
    c.submit(resources={"CPU": 2})
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 4}})
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 1, "GPU": 1}})
    assert c.create_virtual_cluster({"flexible_resource_min": {"GPU": 1}}).state == "QUEUED"


def test_a_share_that_moves_away_makes_room_for_what_waits_there():
    c = cluster(n1=2, n2=2)
    vc = c.create_virtual_cluster(VirtualCluster({"CPU": 2}, {"CPU": 2}))
    waiting = c.submit(resources={"CPU": 2}, scheduling_strategy=pinned("n1"))
    assert waiting.state == "PENDING"
    assert c.submit(resources={"CPU": 2}, scheduling_strategy=pinned("n2"), virtual_cluster=vc).node == "n2"
    assert waiting.node == "n1"


def test_work_that_asks_for_nothing_starts_when_its_cluster_grows_there():
    c = SimCluster()
    c.add_node("n1", {"CPU": 2}, {"zone": "a"})
    c.add_node("n2", {"CPU": 2}, {"zone": "b"})
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 1}})
    idle = c.submit(resources={}, label_selector={"zone": "b"}, virtual_cluster=vc)
    assert idle.state == "PENDING"
    c.submit(label_selector={"zone": "b"}, virtual_cluster=vc)
    assert idle.node == "n2"


def test_the_minimum_stays_where_ordinary_work_may_run():
    c = SimCluster()
    c.add_node("n0", {"CPU": 2}, taints={"k": "v"})
    c.add_node("n1", {"CPU": 2})
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})
    guest = c.submit(resources={"CPU": 2}, tolerations={"k": Exists()}, scheduling_strategy=pinned("n0"), virtual_cluster=vc)
    c.finish(guest)
    c.submit(resources={"CPU": 2})
    assert c.submit(resources={"CPU": 2}, virtual_cluster=vc).node == "n1"


def test_what_is_idle_above_the_minimum_goes_back_as_soon_as_work_grew_elsewhere():
    c = cluster(n1=2, n2=2)
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})
    c.submit(resources={"CPU": 2}, scheduling_strategy=pinned("n2"), virtual_cluster=vc)
    assert c.submit(resources={"CPU": 2}).node == "n1"


def test_bundles_that_survive_a_node_do_not_stand_in_the_way_of_their_own_fallback():
    c = SimCluster()
    c.add_node("n1", {"CPU": 2})
    c.add_node("n2", {"GPU": 1})
    group = c.placement_group([{"CPU": 2}, {"GPU": 1}], fallback_strategy=[{"bundles": [{"CPU": 2}]}])
    c.remove_node("n2")
    assert group.nodes == ["n1"]


def test_a_strict_spread_inside_a_cluster_takes_what_the_cluster_owns():
    c = cluster(n1=2, n2=2, n3=2, n4=2)
    nodes = [fixed(node(), node(), policy="STRICT_SPREAD")]
    vc = c.create_virtual_cluster({"fixed_size_nodes": nodes, "flexible_resource_max": {"CPU": 1}})
    assert c.placement_group([{"CPU": 1}] * 2, "STRICT_SPREAD", virtual_cluster=vc).state == "PLACED"


def test_a_fallback_is_taken_when_the_first_choice_lies_on_a_tainted_node():
    c = SimCluster()
    c.add_node("n1", {"CPU": 1}, {"zone": "a"})
    c.add_node("n2", {"CPU": 1}, {"zone": "b"})
    vc = c.create_virtual_cluster({"fixed_size_nodes": [fixed(node(), node(), policy="STRICT_SPREAD")]})
    c.taint("n1", {"k": "v"})
    fallback = [{"label_selector": {"zone": "b"}}]
    assert c.submit(label_selector={"zone": "a"}, fallback_strategy=fallback, virtual_cluster=vc).node == "n2"


def test_what_failed_comes_before_a_cluster_that_was_queued_behind_it():
    c = cluster(n1=2)
    actor = c.submit("actor", resources={"CPU": 2})
    queued = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})
    c.fail(actor)
    assert (actor.state, queued.state) == ("PLACED", "QUEUED")


def test_lost_nodes_are_made_again_by_priority():
    c = cluster(n1=2, n2=2, n3=2)
    spec = {"fixed_size_nodes": [fixed(node(2))]}
    low, high = c.create_virtual_cluster(spec), c.create_virtual_cluster(spec, priority=5)
    c.submit(resources={"CPU": 2})
    for vnode in [*low.nodes, *high.nodes]:
        c.remove_node(vnode.parent)
    c.add_node("new", {"CPU": 2})
    assert ([v.parent for v in high.nodes], low.nodes) == (["new"], [])
    c.validate()


def test_work_that_ends_with_its_cluster_is_never_started_on_the_way():
    c = cluster(n1=2)
    outer = c.create_virtual_cluster({"flexible_resource_max": {"CPU": 2}})
    inner = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}}, outer)
    waiting = c.submit(resources={"CPU": 2}, virtual_cluster=outer)
    told: list[object] = []
    c.scheduler.on_change = told.append
    outer.destroy()
    assert (waiting.state, inner.state, told) == ("FINISHED", "DESTROYED", [])


def test_a_child_of_a_queued_parent_is_refused_when_the_parent_could_never_hold_it():
    c = cluster(n1=2)
    c.submit(resources={"CPU": 2})
    parent = c.create_virtual_cluster(VirtualCluster({"CPU": 1}, {"CPU": 1}))
    with pytest.raises(InvalidVirtualClusterError, match="can never fit its parent"):
        c.create_virtual_cluster({"flexible_resource_min": {"CPU": 50}}, parent)


def test_a_child_of_a_parent_that_lost_nodes_waits_instead_of_being_refused():
    c = cluster(n1=2)
    parent = c.create_virtual_cluster({"fixed_size_nodes": [fixed(node(2))]})
    c.remove_node("n1")
    child = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 1}}, parent)
    assert child.state == "QUEUED"
    c.add_node("n2", {"CPU": 2})
    assert child.state == "READY"


def test_nothing_suggests_that_an_actor_change_its_id():
    c = cluster(n1=2)
    c.submit("actor", resources={}, affinity=actor_affinity(anti_affinity("b"), symmetric=True))
    b = c.submit("actor", name="b", resources={})
    assert b.suggestions == ["add a node"]


def test_a_thousand_equal_bundles_that_cannot_be_spread_are_refused_without_deep_recursion():
    c = cluster(**{f"n{i}": 1 for i in range(999)})
    assert c.placement_group([{"CPU": 1}] * 1_000, "STRICT_SPREAD").state == "PENDING"


def test_a_group_that_lost_one_bundle_explains_that_one():
    c = cluster(n1=1, n2=1)
    group = c.placement_group([{"CPU": 1}] * 2, "STRICT_SPREAD")
    c.remove_node("n2")
    assert group.reason == "1 bundle fits nowhere (of 2): 0/1 nodes fit: 1 lacks 1 CPU"
    assert [str(s) for s in group.explain().suggestions] == ["add a node with 1 CPU"]


def test_more_than_the_maximum_of_a_cluster_is_explained_by_that():
    c = cluster(n1=16)
    vc = c.create_virtual_cluster(VirtualCluster({"CPU": 1}, {"CPU": 4}))
    assert c.submit(resources={"CPU": 8}, virtual_cluster=vc).suggestions == ["raise the maximum of vc-1 to 8 CPU"]
