"""Virtual clusters: a reserved minimum, a maximum that is never passed, a tree of shares, and a queue."""

import pytest

from remora import (
    PACK,
    SPREAD,
    STRICT_SPREAD,
    Exists,
    FixedSizeNode,
    FixedSizeNodes,
    In,
    InvalidVirtualClusterError,
    NodeAffinitySchedulingStrategy,
    VirtualCluster,
)
from remora.sim.sim_cluster import SimVirtualCluster
from remora.testing.builders import make_cluster, make_node, make_nodes


def flexible(low=None, high=None):
    """A flexible virtual cluster of so many CPUs."""
    return VirtualCluster(
        flexible_resource_min=None if low is None else {"CPU": low},
        flexible_resource_max=None if high is None else {"CPU": high},
    )


def fixed(*nodes, policy=PACK, **flexible_part):
    return VirtualCluster(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode(node) for node in nodes], policy)], **flexible_part)


def task(c, vc, cpus=1, **options):
    return c.submit("task", resources={"CPU": cpus}, virtual_cluster=vc, **options)


def owned(vc, name="CPU"):
    return sum(node.total.get(name, 0) for node in vc.nodes)


def free(c):
    """How many CPUs are free outside every virtual cluster, found by taking them one by one."""
    taken = []
    while (w := c.submit("task", resources={"CPU": 1})).state == "PLACED":
        taken.append(w)
    for work in [*taken, w]:
        c.finish(work)
    return len(taken)


# The minimum


def test_the_minimum_is_reserved_at_once():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=6))
    assert (vc.state, vc.reason, owned(vc)) == ("READY", "", 6)
    assert free(c) == 2


def test_the_minimum_is_all_or_nothing():
    c = make_cluster(make_nodes(2))
    c.submit("task", resources={"CPU": 4})
    vc = c.create_virtual_cluster(flexible(low=6))
    assert (vc.state, vc.nodes) == ("QUEUED", [])
    assert vc.reason == "position 1 in the queue: in the cluster 6 CPU needed, 4 free"
    assert free(c) == 4


def test_fixed_and_flexible_parts_are_reserved_together_or_not_at_all():
    c = make_cluster(make_node("n1").cpu(4).gpu(1), make_node("n2").cpu(4))
    c.submit("task", resources={"CPU": 4})
    spec = fixed({"GPU": 1}, flexible_resource_min={"CPU": 8}, flexible_resource_max={"CPU": 8})
    vc = c.create_virtual_cluster(spec)
    assert vc.state == "QUEUED"
    assert c.submit("task", resources={"GPU": 1}).state == "PLACED"


def test_a_minimum_that_can_never_fit_is_refused():
    c = make_cluster(make_nodes(2))
    with pytest.raises(InvalidVirtualClusterError, match="the minimum of 9 CPU can never fit the cluster of 2 nodes"):
        c.create_virtual_cluster(flexible(low=9))


def test_a_fixed_node_that_no_node_holds_is_refused():
    c = make_cluster(make_nodes(2))
    with pytest.raises(InvalidVirtualClusterError, match="no node has 5 CPU by itself; ask for smaller fixed-size nodes"):
        c.create_virtual_cluster(fixed({"CPU": 5}))


def test_an_empty_spec_is_ready_with_nothing_and_may_use_everything():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster()
    assert (vc.state, vc.nodes) == ("READY", [])
    assert [task(c, vc).state for _ in range(9)] == ["PLACED"] * 8 + ["PENDING"]


# The maximum


def test_the_maximum_is_never_passed_and_may_be_reached():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=1, high=3))
    work = [task(c, vc) for _ in range(4)]
    assert [w.state for w in work] == ["PLACED"] * 3 + ["PENDING"]
    assert owned(vc) == 3
    c.finish(work[0])
    assert work[3].state == "PLACED"


def test_used_and_request_may_equal_the_maximum_to_the_last_unit():
    c = make_cluster(make_nodes(1))
    vc = c.create_virtual_cluster(flexible(high=1))
    assert [task(c, vc, 0.1).state for _ in range(11)] == ["PLACED"] * 10 + ["PENDING"]
    assert task(c, vc, 0.0001).state == "PENDING"


def test_a_resource_that_the_maximum_does_not_name_is_unlimited():
    c = make_cluster(make_node("n1").cpu(4).gpu(4))
    vc = c.create_virtual_cluster(flexible(high=1))
    assert c.submit("task", resources={"GPU": 4}, virtual_cluster=vc).state == "PLACED"


def test_a_maximum_of_zero_gives_nothing():
    c = make_cluster(make_nodes(1))
    vc = c.create_virtual_cluster(flexible(high=0))
    assert task(c, vc).state == "PENDING"


def test_one_larger_than_the_maximum_waits_for_ever():
    c = make_cluster(make_nodes(1))
    vc = c.create_virtual_cluster(flexible(high=2))
    assert task(c, vc, 3).state == "PENDING"
    assert vc.nodes == []


# Growing, moving, shrinking


def test_a_cluster_grows_and_returns_what_it_grew():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=1, high=8))
    work = [task(c, vc, 4), task(c, vc, 4)]
    assert (owned(vc), free(c)) == (8, 0)
    for w in work:
        c.finish(w)
    assert (owned(vc), free(c)) == (1, 7)


def test_growth_goes_through_two_levels_and_back():
    c = make_cluster(make_nodes(2))
    outer = c.create_virtual_cluster(flexible(low=1, high=6))
    inner = c.create_virtual_cluster(flexible(low=0, high=4), parent=outer)
    w = task(c, inner, 4)
    assert (w.state, owned(inner), owned(outer) >= 4) == ("PLACED", 4, True)
    assert owned(outer) <= 6
    c.finish(w)
    assert (owned(inner), owned(outer), free(c)) == (0, 1, 7)


def test_the_parents_maximum_holds_for_the_children_together():
    c = make_cluster(make_nodes(2))
    outer = c.create_virtual_cluster(flexible(high=5))
    left, right = (c.create_virtual_cluster(flexible(high=4), parent=outer) for _ in range(2))
    assert [task(c, left).state for _ in range(4)] == ["PLACED"] * 4
    assert [task(c, right).state for _ in range(2)] == ["PLACED", "PENDING"]
    assert owned(outer) == 5


def two_on_each(*specs):
    """Two nodes that were half full when clusters of four CPUs were made, one inside the other, and are not any more."""
    c = make_cluster(make_nodes(2))
    others = [
        c.submit("task", resources={"CPU": 2}, scheduling_strategy=NodeAffinitySchedulingStrategy(node))
        for node in ("n1", "n2")
    ]
    chain: list[SimVirtualCluster] = []
    for spec in specs:
        chain.append(c.create_virtual_cluster(spec, parent=chain[-1] if chain else None))
    assert [node.total for node in chain[-1].nodes] == [{"CPU": 2.0}] * 2
    for other in others:
        c.finish(other)
    return c, *chain


def test_a_cluster_at_its_maximum_moves_its_idle_share():
    c, vc = two_on_each(flexible(low=4, high=4))
    assert task(c, vc, 4).state == "PLACED"
    assert (owned(vc), free(c)) == (4, 4)


def test_a_cluster_moves_only_what_is_idle():
    c, vc = two_on_each(flexible(low=4, high=4))
    first = task(c, vc)
    assert task(c, vc, 4).state == "PENDING"
    assert task(c, vc, 3).state == "PLACED"
    assert (first.state, owned(vc)) == ("PLACED", 4)


def test_a_child_moves_its_share_when_the_limit_is_its_parents():
    c, outer, inner = two_on_each(flexible(low=4, high=4), flexible(low=4))
    assert task(c, inner, 4).state == "PLACED"
    assert (owned(outer), owned(inner), free(c)) == (4, 4, 4)


def test_destroying_gives_everything_back_and_ends_the_work():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=2, high=8))
    running, waiting = task(c, vc, 4), task(c, vc, 64)
    vc.destroy()
    assert (vc.state, vc.nodes, vc.reason) == ("DESTROYED", [], "")
    assert (running.state, waiting.state) == ("FINISHED", "FINISHED")
    assert free(c) == 8
    vc.destroy()  # twice does no harm


def test_destroying_a_parent_destroys_its_children():
    c = make_cluster(make_nodes(2))
    outer = c.create_virtual_cluster(flexible(low=4))
    inner = c.create_virtual_cluster(flexible(low=2), parent=outer)
    w = task(c, inner)
    outer.destroy()
    assert (outer.state, inner.state, w.state) == ("DESTROYED", "DESTROYED", "FINISHED")
    assert free(c) == 8


# The queue


def queue_of(c, *specs):
    return [c.create_virtual_cluster(flexible(low=low), priority=priority) for low, priority in specs]


def test_first_come_first_served():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", resources={"CPU": 4})
    first, second = queue_of(c, (3, 0), (3, 0))
    c.finish(running)
    assert (first.state, second.state) == ("READY", "QUEUED")
    first.destroy()
    assert second.state == "READY"


def test_a_higher_priority_comes_first():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", resources={"CPU": 4})
    low, high, also_high = queue_of(c, (3, 0), (3, 10), (3, 10))
    assert high.reason.startswith("position 1 in the queue: ")
    assert (
        low.reason
        == f"position 3 in the queue: behind {high.cluster_id}, which has a higher priority and needs the same resources"
    )
    c.finish(running)
    assert [vc.state for vc in (low, high, also_high)] == ["QUEUED", "READY", "QUEUED"]


def test_nobody_overtakes_one_that_needs_the_same_resource():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", resources={"CPU": 2})
    large, small = queue_of(c, (3, 0), (1, 0))
    assert (large.state, small.state) == ("QUEUED", "QUEUED")
    assert small.reason == f"position 2 in the queue: behind {large.cluster_id}, which came first and needs the same resources"
    c.finish(running)
    assert (large.state, small.state) == ("READY", "READY")


def test_a_higher_priority_does_overtake():
    c = make_cluster(make_nodes(1))
    c.submit("task", resources={"CPU": 2})
    large, small = queue_of(c, (3, 0), (1, 1))
    assert (large.state, small.state) == ("QUEUED", "READY")


def test_one_with_other_resources_overtakes():
    c = make_cluster(make_node("n1").cpu(4).gpu(1))
    c.submit("task", resources={"CPU": 2})
    cpus = c.create_virtual_cluster(flexible(low=3))
    gpus = c.create_virtual_cluster(VirtualCluster(flexible_resource_min={"GPU": 1}))
    nothing = c.create_virtual_cluster()
    assert (cpus.state, gpus.state, nothing.state) == ("QUEUED", "READY", "READY")


def test_one_that_can_not_fit_as_things_are_holds_nobody_up():
    c = make_cluster(make_nodes(2))
    c.submit("task", resources={"CPU": 4})
    large = c.create_virtual_cluster(flexible(low=8))
    small = c.create_virtual_cluster(flexible(low=1))
    assert (large.state, small.state) == ("QUEUED", "QUEUED")
    c.remove_node("n2")
    assert large.reason == "position 1 in the queue: the cluster can not hold 8 CPU as it is now, even when nothing else runs"
    make_node("n3").cpu(2).join(c)
    assert (large.state, small.state) == ("QUEUED", "READY")


def test_a_queued_cluster_does_not_hold_up_other_work():
    c = make_cluster(make_nodes(1))
    c.submit("task", resources={"CPU": 2})
    c.create_virtual_cluster(flexible(low=3))
    assert c.submit("task", resources={"CPU": 2}).state == "PLACED"


def test_queues_of_different_parents_do_not_meet():
    c = make_cluster(make_nodes(2))
    left, right = (c.create_virtual_cluster(flexible(low=4, high=4)) for _ in range(2))
    task(c, left, 2)
    waits = c.create_virtual_cluster(flexible(low=3), parent=left)
    other = c.create_virtual_cluster(flexible(low=3), parent=right)
    assert (waits.state, other.state) == ("QUEUED", "READY")


def test_a_child_of_a_queued_parent_waits_for_it():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", resources={"CPU": 4})
    outer = c.create_virtual_cluster(flexible(low=2))
    inner = c.create_virtual_cluster(flexible(low=1), parent=outer)
    assert inner.reason == f"position 1 in the queue: its parent {outer.cluster_id} is itself queued"
    c.finish(running)
    assert (outer.state, inner.state) == ("READY", "READY")


def test_a_child_is_admitted_with_its_parent_even_when_its_priority_is_higher():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", resources={"CPU": 4})
    outer = c.create_virtual_cluster(flexible(low=2))
    inner = c.create_virtual_cluster(flexible(low=1), parent=outer, priority=10)
    c.finish(running)
    assert (outer.state, inner.state) == ("READY", "READY")


def test_a_queued_cluster_that_is_destroyed_makes_room_in_the_queue():
    c = make_cluster(make_nodes(1))
    c.submit("task", resources={"CPU": 2})
    large, small = queue_of(c, (3, 0), (1, 0))
    large.destroy()
    assert (large.state, small.state) == ("DESTROYED", "READY")


# Nodes die


def test_a_dead_node_takes_its_virtual_node_and_another_is_made():
    c = make_cluster(make_nodes(3))
    vc = c.create_virtual_cluster(fixed({"CPU": 4}, {"CPU": 4}, policy=STRICT_SPREAD))
    lost, kept = vc.nodes
    w = task(c, vc, 4, label_selector={"ray.io/vnode_id": lost.node_id})
    assert w.node == lost.physical_node
    c.remove_node(lost.physical_node)
    assert vc.state == "READY"
    assert {node.physical_node for node in vc.nodes} == {"n1", "n2", "n3"} - {lost.physical_node}
    assert kept.node_id in [node.node_id for node in vc.nodes]
    assert lost.node_id not in [node.node_id for node in vc.nodes]


def test_a_flexible_minimum_is_reserved_again():
    c = make_cluster(make_nodes(3))
    vc = c.create_virtual_cluster(flexible(low=6, high=8))
    c.remove_node(vc.nodes[0].physical_node)
    assert (vc.state, owned(vc)) == ("READY", 6)


def test_a_cluster_that_lost_nodes_says_so_and_waits_for_room():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=8))
    c.remove_node("n1")
    assert (vc.state, owned(vc)) == ("READY", 4)
    assert vc.reason == f"{vc.cluster_id} lost virtual nodes and waits for room to make them again"
    make_node("n9").cpu(4).join(c)
    assert (owned(vc), vc.reason) == (8, "")


def test_work_of_a_virtual_cluster_is_placed_again_inside_it():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=2, high=4))
    work = [task(c, vc) for _ in range(4)]
    c.remove_node(work[0].node)
    assert {w.state for w in work} == {"PLACED"}
    assert owned(vc) == 4


def test_a_dead_node_under_three_levels():
    c = make_cluster(make_nodes(2))
    outer = c.create_virtual_cluster(flexible(low=4, high=8))
    middle = c.create_virtual_cluster(flexible(low=3, high=8), parent=outer)
    inner = c.create_virtual_cluster(flexible(low=2, high=8), parent=middle)
    w = task(c, inner, 2)
    c.remove_node(w.node)
    assert [vc.state for vc in (outer, middle, inner)] == ["READY"] * 3
    assert w.state == "PLACED"
    assert owned(outer) >= owned(middle) >= owned(inner) >= 2


# Nesting


def test_three_deep():
    c = make_cluster(make_nodes(2))
    outer = c.create_virtual_cluster(flexible(low=8, high=8))
    middle = c.create_virtual_cluster(flexible(low=4, high=6), parent=outer)
    inner = c.create_virtual_cluster(flexible(low=1, high=5), parent=middle)
    assert [task(c, inner).state for _ in range(6)] == ["PLACED"] * 5 + ["PENDING"]
    assert [task(c, middle).state for _ in range(2)] == ["PLACED", "PENDING"]
    assert [task(c, outer).state for _ in range(3)] == ["PLACED", "PLACED", "PENDING"]
    assert free(c) == 0


def test_a_child_larger_than_its_parent_is_refused():
    c = make_cluster(make_nodes(2))
    outer = c.create_virtual_cluster(flexible(low=2, high=4))
    with pytest.raises(InvalidVirtualClusterError, match=f"the minimum of 5 CPU can never fit its parent {outer.cluster_id}"):
        c.create_virtual_cluster(flexible(low=5), parent=outer)
    assert c.create_virtual_cluster(flexible(low=4), parent=outer).state == "READY"


def test_two_datasets_in_one_job_as_seed_004_shows():
    c = make_cluster(make_nodes(4, make_node("").cpu(25)))
    job = c.create_virtual_cluster(flexible(low=100, high=100))
    train = c.create_virtual_cluster(flexible(low=80, high=80), parent=job)
    validation = c.create_virtual_cluster(flexible(low=20, high=20), parent=job)
    assert [vc.state for vc in (job, train, validation)] == ["READY"] * 3
    third = c.create_virtual_cluster(flexible(low=1), parent=job)
    assert third.reason == f"position 1 in the queue: in {job.cluster_id} 1 CPU needed, 0 free"


# Fixed-size nodes


def test_the_walk_through_of_seed_004():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(fixed({"CPU": 1}, {"CPU": 1}, policy=STRICT_SPREAD))
    assert sorted(node.physical_node for node in vc.nodes) == ["n1", "n2"]
    assert [(node.total, node.available) for node in vc.nodes] == [({"CPU": 1.0}, {"CPU": 1.0})] * 2
    assert free(c) == 6
    work = [task(c, vc) for _ in range(3)]
    assert sorted(w.node for w in work[:2]) == ["n1", "n2"]
    assert work[2].state == "PENDING"
    assert [node.available for node in vc.nodes] == [{"CPU": 0.0}] * 2
    c.finish(work[0])
    assert work[2].state == "PLACED"
    vc.destroy()
    assert free(c) == 8


POLICIES = {
    "PACK puts them on one node": (PACK, 2, ["n1", "n1"]),
    "SPREAD puts them on two": (SPREAD, 2, ["n1", "n2"]),
    "SPREAD doubles up when it must": (SPREAD, 1, ["n1", "n1"]),
    "STRICT_SPREAD puts them on two": (STRICT_SPREAD, 2, ["n1", "n2"]),
    "STRICT_SPREAD never doubles up": (STRICT_SPREAD, 1, None),
}


@pytest.mark.parametrize(("policy", "nodes", "want"), list(POLICIES.values()), ids=list(POLICIES))
def test_policies(policy, nodes, want):
    c = make_cluster(make_nodes(nodes))
    spec = fixed({"CPU": 1}, {"CPU": 1}, policy=policy)
    if want is None:
        with pytest.raises(InvalidVirtualClusterError):
            c.create_virtual_cluster(spec)
    else:
        assert sorted(node.physical_node for node in c.create_virtual_cluster(spec).nodes) == want


def test_each_bundle_is_chosen_by_its_label_as_seed_004_shows():
    c = make_cluster(make_nodes(2, make_node("").cpu(4).gpu(1)))
    nodes = [FixedSizeNode({"GPU": 1}, {"bundle_index": str(index)}) for index in range(2)]
    vc = c.create_virtual_cluster(VirtualCluster(fixed_size_nodes=[FixedSizeNodes(nodes, STRICT_SPREAD)]))
    where = {node.labels["bundle_index"]: node.physical_node for node in vc.nodes}
    for index in ("1", "0"):
        w = c.submit("actor", resources={"GPU": 1}, label_selector={"bundle_index": In(index)}, virtual_cluster=vc)
        assert w.node == where[index]


def test_a_fixed_node_of_gpus_takes_its_cpu_from_the_flexible_part():
    c = make_cluster(make_node("n1").cpu(4).gpu(2))
    spec = fixed({"GPU": 1}, flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 2, "GPU": 0})
    vc = c.create_virtual_cluster(spec)
    first = c.submit("task", resources={"GPU": 0.5, "CPU": 2}, virtual_cluster=vc)
    second = c.submit("task", resources={"GPU": 0.5, "CPU": 1}, virtual_cluster=vc)
    assert (first.state, second.state) == ("PLACED", "PENDING")
    assert owned(vc) == 2
    c.finish(first)
    assert (second.state, owned(vc)) == ("PLACED", 1)


def test_a_fixed_only_cluster_borrows_the_cpu_beside_its_gpu_freely():
    c = make_cluster(make_node("n1").cpu(4).gpu(2))
    vc = c.create_virtual_cluster(fixed({"GPU": 1}))
    assert c.submit("actor", resources={"GPU": 1, "CPU": 3}, virtual_cluster=vc).state == "PLACED"
    assert c.submit("actor", resources={"GPU": 1}, virtual_cluster=vc).state == "PENDING"


def test_work_without_resources_stays_on_the_nodes_of_its_cluster():
    c = make_cluster(make_nodes(3))
    vc = c.create_virtual_cluster(fixed({"CPU": 4}))
    home = vc.nodes[0].physical_node
    c.taint(home, {"drain": "yes"})
    assert c.submit("actor", resources={}, virtual_cluster=vc).state == "PENDING"
    assert c.submit("actor", resources={}, virtual_cluster=vc, tolerations={"drain": Exists()}).node == home


def test_a_child_on_a_fixed_node_of_its_parent_names_it_as_its_parent():
    c = make_cluster(make_nodes(1))
    outer = c.create_virtual_cluster(fixed({"CPU": 2}))
    inner = c.create_virtual_cluster(fixed({"CPU": 1}), parent=outer)
    assert inner.nodes[0].parent == outer.nodes[0].node_id
    assert outer.nodes[0].parent == inner.nodes[0].physical_node == "n1"


def test_strict_spread_in_a_child_means_the_parents_virtual_nodes():
    """Both virtual nodes of the parent lie on one physical node; the child is apart on them all the same (seed 004)."""
    c = make_cluster(make_nodes(1))
    outer = c.create_virtual_cluster(fixed({"CPU": 2}, {"CPU": 2}))
    inner = c.create_virtual_cluster(fixed({"CPU": 1}, {"CPU": 1}, policy=STRICT_SPREAD), parent=outer)
    assert inner.state == "READY"
    assert len({node.parent for node in inner.nodes}) == 2


# Virtual nodes


def test_the_labels_of_a_virtual_node():
    c = make_cluster(make_node("n1").cpu(4).label(zone="a", disk="ssd"))
    node = FixedSizeNode({"CPU": 1}, {"bundle_index": "0", "disk": "own"})
    vc = c.create_virtual_cluster(VirtualCluster(fixed_size_nodes=[FixedSizeNodes([node])]))
    (vnode,) = vc.nodes
    assert vnode.labels == {
        "zone": "a",
        "disk": "own",
        "bundle_index": "0",
        "ray.io/vnode_id": vnode.node_id,
        "ray.io/vcluster_id": vc.cluster_id,
    }
    c.label("n1", {"zone": "b"})
    assert vc.nodes[0].labels["zone"] == "b"


def test_work_may_name_the_virtual_node_and_the_cluster():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(fixed({"CPU": 1}, {"CPU": 1}, policy=STRICT_SPREAD))
    for vnode in vc.nodes:
        assert task(c, vc, label_selector={"ray.io/vnode_id": vnode.node_id}).node == vnode.physical_node
    assert task(c, vc, label_selector={"ray.io/vcluster_id": "another"}).state == "PENDING"
    grown = c.create_virtual_cluster()
    assert task(c, grown, label_selector={"ray.io/vcluster_id": grown.cluster_id}).state == "PLACED"


def test_at_most_one_flexible_virtual_node_on_a_node():
    c = make_cluster(make_nodes(1))
    vc = c.create_virtual_cluster(fixed({"CPU": 1}, flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3}))
    for _ in range(4):
        task(c, vc)
    assert len(vc.nodes) == 2
    assert sorted(node.total["CPU"] for node in vc.nodes) == [1.0, 3.0]


def test_what_is_owned_is_used_before_the_cluster_grows():
    c = make_cluster(make_nodes(2))
    vc = c.create_virtual_cluster(flexible(low=4, high=8))
    assert [task(c, vc).state for _ in range(4)] == ["PLACED"] * 4
    assert owned(vc) == 4


def test_a_destroyed_parent_takes_no_children_and_no_work():
    c = make_cluster(make_nodes(1))
    vc = c.create_virtual_cluster(flexible(low=1))
    vc.destroy()
    with pytest.raises(ValueError, match="there is no virtual cluster"):
        c.create_virtual_cluster(flexible(low=1), parent=vc)
    with pytest.raises(ValueError, match="there is no virtual cluster"):
        task(c, vc)
