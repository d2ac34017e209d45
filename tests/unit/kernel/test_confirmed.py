"""Assumed, then confirmed: who counts what a placement takes, and where it is when the cluster says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remora import label_not_in
from remora.errors import InvariantError, UnknownNameError
from remora.kernel.cycle import Scheduler
from remora.kernel.placing.gang import Gang, Item
from remora.kernel.placing.group_fit import could_ever
from remora.kernel.placing.reserving import restore_vnode, vacate
from remora.kernel.placing.what_if import could_ever_reserve
from remora.kernel.sharing.growth import grow_for
from remora.kernel.sharing.reclaim import Place, reclaim
from remora.kernel.sharing.usage import observe_use, own_total
from remora.kernel.state import shares
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.validate import validate
from remora.kernel.state.workloads import Host, Workload
from remora.model.groups import parse_group
from remora.model.labels import parse_labels
from remora.model.requests import Request, parse_request
from remora.model.resources import Resources
from remora.model.strategies import actor_affinity
from remora.model.virtual_clusters import FixedSizeNode, FixedSizeNodes, VirtualCluster


def cpus(amount: float) -> Resources:
    return Resources.parse({"CPU": amount})


def scheduler(*nodes: float, trims: bool = True) -> Scheduler:
    made = Scheduler(trims=trims)
    for index, amount in enumerate(nodes):
        made.add_node(f"n{index}", cpus(amount))
    return made


def asks(amount: float = 1, inside: VCluster | None = None, **options: Any) -> Request:
    cluster_id = inside.cluster_id if inside is not None else None
    return parse_request("actor", resources={"CPU": amount}, virtual_cluster=cluster_id, **options)


def free(s: Scheduler, number: int = 0) -> float:
    return s.cluster.available.get(number, "CPU") / 10_000


def used(vc: VCluster, number: int = 0) -> float:
    return vc.flex[number].used.get("CPU", 0) / 10_000


def flexible(least: float = 0, most: float | None = None) -> VirtualCluster:
    return VirtualCluster(
        flexible_resource_min={"CPU": least} if least else None,
        flexible_resource_max={"CPU": most} if most is not None else None,
    )


def fixed(*sizes: float) -> VirtualCluster:
    return VirtualCluster(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": size}) for size in sizes])])


# A report shows it


def test_an_assumed_placement_gives_back_what_it_took():
    s = scheduler(4)
    work = s.submit("a", asks(3))
    s.finish(work)
    assert free(s) == 4
    validate(s.cluster)


def test_what_a_confirmed_one_took_comes_back_with_the_next_report_and_not_before():
    s = scheduler(4)
    work = s.submit("a", asks(3))
    s.cluster.observe_node(s.cluster.nodes.get("n0"), cpus(4), cpus(1))
    s.cluster.confirm(work)
    s.finish(work)
    assert (free(s), work.confirmed, work.placed) == (1, False, False)
    assert s.submit("b", asks(2)).placed is False
    validate(s.cluster)
    s.cluster.observe_node(s.cluster.nodes.get("n0"), cpus(4), cpus(4))
    s.settle()
    assert free(s) == 2


def test_an_end_that_the_report_showed_first_is_not_counted_twice():
    """Two that wait, and one CPU that is free: only one may be placed on it."""
    s = scheduler(1)
    first = s.submit("a", asks())
    s.cluster.confirm(first)
    waiting = [s.submit("b", asks()), s.submit("c", asks())]
    s.cluster.observe_node(s.cluster.nodes.get("n0"), cpus(1), cpus(1))
    s.finish(first)
    assert [work.placed for work in waiting] == [True, False]
    validate(s.cluster)


def test_what_a_confirmed_one_took_of_a_share_comes_back_with_a_report_too():
    s = scheduler(4)
    vc = s.create_cluster(flexible(2))
    work = s.submit("a", asks(2, vc))
    s.cluster.confirm(work)
    s.finish(work)
    assert used(vc) == 2
    validate(s.cluster)
    observe_use(vc, 0, {})
    assert used(vc) == 0
    validate(s.cluster)


def test_the_labels_of_a_confirmed_one_are_gone_with_it():
    s = scheduler(1, 1)
    cat = asks(0, scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], False)))
    labels = parse_labels({"type": "cat"})
    first = s.submit("a", cat, labels)
    s.submit("b", cat, labels)
    waits = s.submit("c", cat, labels)
    assert not waits.placed
    s.cluster.confirm(first)
    s.finish(first)
    assert waits.node == 0
    validate(s.cluster)


def test_one_that_fails_after_it_was_confirmed_is_decided_again_where_there_is_room():
    s = scheduler(2, 2)
    work = s.submit("a", asks(2))
    s.cluster.confirm(work)
    s.fail(work)
    assert (work.node, work.confirmed, free(s, 0), free(s, 1)) == (1, False, 0, 0)
    validate(s.cluster)


def test_a_lost_node_puts_confirmed_work_back_as_unconfirmed():
    s = scheduler(4, 4)
    vc = s.create_cluster(flexible(1))
    inside, outside = s.submit("a", asks(1, vc)), s.submit("b", asks(2))
    for work in (inside, outside):
        assert work.node == 0
        s.cluster.confirm(work)
    s.remove_node("n0")
    assert [(work.node, work.confirmed) for work in (inside, outside)] == [(1, False), (1, False)]
    assert free(s, 1) == 1
    validate(s.cluster)


def test_less_in_use_than_what_is_assumed_is_found_by_validate():
    s = scheduler(4)
    s.submit("a", asks(3))
    s.cluster.observe_node(s.cluster.nodes.get("n0"), cpus(4), cpus(4))
    with pytest.raises(InvariantError, match="n0 has 40000 CPU free"):
        validate(s.cluster)


def test_less_of_a_share_in_use_than_what_is_assumed_is_found_by_validate():
    s = scheduler(4)
    vc = s.create_cluster(flexible(2))
    s.submit("a", asks(2, vc))
    observe_use(vc, 0, {})
    with pytest.raises(InvariantError, match=r"counts \{\} used on node 0"):
        validate(s.cluster)


# Hosts


def test_a_host_of_another_cluster_is_refused():
    s = scheduler(4)
    vc, other = s.create_cluster(flexible(1)), s.create_cluster(flexible(1))
    inside, outside = Workload("a", asks(1, vc)), Workload("b", asks(1))
    for work, host in ((inside, Host(None, 0, None)), (inside, Host(other, 0, None)), (outside, Host(vc, 0, None))):
        with pytest.raises(InvariantError, match="is in"):
            s.cluster.place(work, host)
    assert s.cluster.placed == {}
    s.cluster.place(inside, Host(vc, 0, None))
    validate(s.cluster)


def test_a_host_without_room_is_refused_and_nothing_is_half_done():
    s = scheduler(4)
    vc = s.create_cluster(flexible(1, 2))
    work = Workload("a", asks(3, vc))
    with pytest.raises(InvariantError, match="has no room for"):
        s.cluster.place(work, Host(vc, 0, None))
    assert vc.flex_total == {"CPU": 10_000}
    validate(s.cluster)


def test_work_that_runs_elsewhere_than_decided_is_there():
    s = scheduler(2, 2)
    cat = asks(2, scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], False)))
    labels = parse_labels({"type": "cat"})
    work = s.submit("a", cat, labels)
    assert work.node == 0
    s.move(work, "n1")
    assert (work.node, work.confirmed, free(s, 0), free(s, 1)) == (1, True, 2, 2)
    assert list(s.cluster.on_node[1]) == ["a"]
    s.cluster.observe_node(s.cluster.nodes.get("n1"), cpus(2), cpus(0))
    other = s.submit("b", cat, labels)
    assert other.node == 0
    validate(s.cluster)


def test_work_that_runs_although_it_was_thought_to_wait_is_there_and_waits_no_longer():
    s = scheduler(2)
    s.submit("a", asks(2))
    work = s.submit("b", asks(2))
    s.move(work, "n0")
    assert (work.node, work.confirmed, s.waiting) == (0, True, {})
    validate(s.cluster)


def test_work_of_a_virtual_cluster_that_runs_elsewhere_is_in_its_virtual_node_there():
    s = scheduler(1, 2)
    vc = s.create_cluster(fixed(1, 2))
    work = s.submit("a", asks(1, vc))
    assert work.node == 0
    s.move(work, "n1")
    assert work.host == Host(vc, 1, vc.fixed[1])
    assert vc.fixed[0] is not None
    assert vc.fixed[0].used == {}
    validate(s.cluster)


def test_work_of_a_virtual_cluster_that_runs_where_it_has_no_share_takes_none():
    s = scheduler(2, 2)
    vc = s.create_cluster(flexible(2))
    work = s.submit("a", asks(1, vc))
    s.move(work, "n1")
    assert (work.host, list(vc.flex)) == (Host(vc, 1, None), [0])
    validate(s.cluster)
    s.finish(work)
    validate(s.cluster)


def test_what_was_decided_and_is_seen_there_only_has_to_be_confirmed():
    s = scheduler(2)
    work = s.submit("a", asks(1))
    s.move(work, "n0")
    assert (work.confirmed, free(s)) == (True, 1)


def test_where_the_decision_was_wrong_others_may_go():
    s = scheduler(2, 2)
    first = s.submit("a", asks(2))
    s.submit("b", asks(2))
    waits = s.submit("c", asks(2))
    s.cluster.observe_node(s.cluster.nodes.get("n1"), cpus(2), cpus(0))
    s.move(first, "n1")
    assert waits.node == 0


# Another request


def test_confirmed_work_stays_where_it_is_when_its_cluster_ends():
    s = scheduler(4)
    vc = s.create_cluster(flexible(2))
    work = s.submit("a", asks(1, vc), parse_labels({"type": "cat"}))
    s.cluster.confirm(work)
    s.rehome(work, replace(work.request, cluster=None))
    assert (work.node, work.host, work.confirmed) == (0, None, True)
    assert s.destroy_cluster(vc) == []
    assert work.placed
    validate(s.cluster)


def test_what_goes_on_outside_its_cluster_counts_there_until_the_next_report():
    s = scheduler(2)
    vc = s.create_cluster(flexible(2))
    work = s.submit("a", asks(1, vc))
    s.cluster.confirm(work)
    s.rehome(work, replace(work.request, cluster=None))
    assert (used(vc), free(s)) == (1, -1)
    s.destroy_cluster(vc)
    assert free(s) == 1
    validate(s.cluster)


def test_one_that_ended_unseen_gives_nothing_back_that_others_have_when_it_goes_on_elsewhere():
    s = scheduler(2, trims=False)
    vc = s.create_cluster(fixed(1))
    work = s.submit("a", asks(1, vc))
    s.cluster.confirm(work)
    observe_use(vc, 0, {})
    s.create_cluster(fixed(1), vc)
    s.rehome(work, replace(work.request, cluster=None))
    validate(s.cluster)


def test_work_that_was_only_decided_is_decided_again_under_another_request():
    s = scheduler(1, 4)
    vc = s.create_cluster(fixed(1))
    work = s.submit("a", asks(1, vc))
    assert work.node == 0
    seen: list[Any] = []
    s.on_change = lambda item: seen.append((item, isinstance(item, Workload) and item.placed))
    s.rehome(work, replace(asks(3), namespace="other"))
    assert (work.node, work.host, free(s, 1)) == (1, None, 1)
    assert seen == [(work, False), (work, True)]
    validate(s.cluster)


def test_waiting_work_waits_under_its_new_request():
    s = scheduler(1)
    vc = s.create_cluster(fixed(1))
    first, work = s.submit("a", asks(1, vc)), s.submit("b", asks(1, vc))
    s.rehome(work, asks(1))
    assert list(s.waiting) == [asks(1)]
    assert s.destroy_cluster(vc) == [first]
    assert work.node == 0
    validate(s.cluster)


def test_nothing_moves_into_a_cluster_that_is_not_there():
    s = scheduler(1)
    work = s.submit("a", asks(1))
    with pytest.raises(UnknownNameError, match="no virtual cluster 'vc-7'"):
        s.rehome(work, replace(work.request, cluster="vc-7"))
    assert work.placed


# Ended with its cluster


def test_what_ended_with_its_cluster_is_neither_placed_nor_waiting_and_may_be_told_so_again():
    s = scheduler(4)
    vc = s.create_cluster(flexible(2, 2))
    placed, waiting = s.submit("a", asks(2, vc)), s.submit("b", asks(1, vc))
    s.cluster.confirm(placed)
    assert s.destroy_cluster(vc) == [placed, waiting]
    assert s.waiting == {}
    for work in (placed, waiting):
        assert not work.placed
        s.fail(work)
        s.finish(work)
    assert (s.waiting, s.cluster.placed, free(s)) == ({}, {}, 4)
    validate(s.cluster)


def test_finishing_twice_is_no_error():
    s = scheduler(1)
    placed, waiting = s.submit("a", asks(1)), s.submit("b", asks(2))
    for _ in range(2):
        s.finish(waiting)
        s.finish(placed)
    assert free(s) == 1


# Shares that are gone


def test_nothing_is_given_back_to_a_share_that_is_gone():
    s = scheduler(4, trims=False)
    vc = s.create_cluster(flexible())
    work = s.submit("a", asks(1, vc))
    vc.remove_flexible(0)
    vc.flex_total.clear()
    vc.flex_used.clear()
    s.cluster.release(work)
    assert (vc.flex, vc.flex_used) == ({}, {})


def test_a_share_in_use_is_not_dropped_though_it_gave_back_all_that_is_idle():
    s = scheduler(4, trims=False)
    vc = s.create_cluster(flexible())
    work = s.submit("a", asks(1, vc))
    shares.resize(vc.flex[0], "CPU", -10_000)
    shares.trim(s.cluster, vc)
    assert vc.flex_used == {"CPU": 10_000}
    assert used(vc) == 1
    s.finish(work)
    shares.trim(s.cluster, vc)
    assert (vc.flex, vc.flex_used) == ({}, {})


def test_what_a_report_counts_in_a_fixed_size_node_is_given_back_there():
    """Reports do not tell in which of them it is: they fill fixed-size nodes first, and the flexible one beside looks idle."""
    s = scheduler(2, trims=False)
    vc = s.create_cluster(VirtualCluster(fixed_size_nodes=fixed(1).fixed_size_nodes, flexible_resource_max={"CPU": 1}))
    first, second = s.submit("a", asks(1, vc)), s.submit("b", asks(1, vc))
    assert second.host is not None
    assert second.host.fixed is None
    s.finish(first)
    observe_use(vc, 0, {"CPU": 10_000})
    shares.trim(s.cluster, vc)
    assert vc.flex == {}
    validate(s.cluster)
    s.finish(second)
    assert vc.fixed[0] is not None
    assert vc.fixed[0].used == {}
    validate(s.cluster)


def test_a_share_grows_where_there_is_room_and_not_where_it_lies_on_a_full_node():
    """Nodes with GPUs are for those who ask for GPUs; but a full node is nowhere to start at all."""
    s = scheduler(1, trims=False)
    s.add_node("gpu", Resources.parse({"CPU": 2, "GPU": 1}))
    vc = s.create_cluster(flexible(1, 2))
    assert set(vc.flex) == {0}
    s.cluster.observe_node(s.cluster.nodes.at(0), cpus(1), Resources({"CPU": -10_000}))  # others use it all
    grow_for(s.cluster, vc, [(asks(1, vc).choices, cpus(1), 1)])
    assert set(vc.flex) == {0, 1}


def test_what_is_used_beyond_a_share_is_reclaimed_for_a_minimum_too():
    """Its share was given back while its work paused for a moment; then it went on."""
    s = scheduler(2, trims=False)
    s.cluster.observe_node(s.cluster.nodes.at(0), cpus(2), Resources({"CPU": 0}))
    borrower = s.create_cluster(flexible(0, 2))
    owed = s.create_cluster(flexible(1))
    assert owed.state == "QUEUED"
    assert reclaim(s.cluster, owed, {}) is None
    beyond: dict[Place, dict[str, int]] = {(borrower.cluster_id, 0): {"CPU": 20_000}}
    assert reclaim(s.cluster, owed, beyond) == beyond


def test_what_was_promised_inside_of_a_borrower_is_not_reclaimed():
    """It does not come back, and the borrower would be kept from starting anything for ever."""
    s = scheduler(2, trims=False)
    borrower = s.create_cluster(flexible(0, 2))
    grow_for(s.cluster, borrower, [(asks(1, borrower).choices, cpus(1), 2)])
    inner = s.create_cluster(flexible(1), borrower)
    assert inner.state == "READY"
    both, one = s.create_cluster(flexible(2)), s.create_cluster(flexible(1))
    assert reclaim(s.cluster, both, {}) is None
    assert reclaim(s.cluster, one, {}) == {(borrower.cluster_id, 0): {"CPU": 10_000}}


def test_leaving_a_node_keeps_what_is_in_use_there():
    s = scheduler(4, trims=False)
    vc = s.create_cluster(VirtualCluster(fixed_size_nodes=fixed(1).fixed_size_nodes, flexible_resource_min={"CPU": 2}))
    inner, beside = s.submit("a", asks(1, vc)), s.submit("b", asks(1, vc))
    assert not vacate(s.cluster, vc, 0)
    assert (vc.fixed[0] is not None, vc.flex_total, free(s)) == (True, {"CPU": 10_000}, 2)
    validate(s.cluster)
    s.finish(inner)
    s.finish(beside)
    assert vacate(s.cluster, vc, 0)
    assert (vc.fixed, vc.flex, vc.flex_total, free(s)) == ([None], {}, {}, 4)


def test_more_is_never_given_back_than_is_in_use():
    s = scheduler(4, trims=False)
    vc = s.create_cluster(flexible(2))
    work = s.submit("a", asks(1, vc))
    observe_use(vc, 0, {})
    s.finish(work)
    assert used(vc) == 0


def test_a_remembered_share_counts_against_a_parent_that_has_less():
    s = scheduler(4)
    parent = s.create_cluster(fixed(1))
    child = s.create_cluster(flexible(), parent)
    restore_vnode(s.cluster, child, None, Host(parent, 0, parent.fixed[0]), {"CPU": 30_000})
    assert parent.fixed[0] is not None
    assert parent.fixed[0].used == {"CPU": 30_000}
    validate(s.cluster)


# A node that has shrunk


def test_whether_something_could_ever_fit_is_answered_where_a_node_has_less_than_its_shares():
    s = scheduler(4, 1)
    parent = s.create_cluster(flexible(4))
    child = s.create_cluster(fixed(3), parent)
    s.cluster.resize_node(s.cluster.nodes.get("n0"), cpus(2))
    queued = VCluster("vc-9", flexible(1), child, 0, 9, child.tolerations)
    assert could_ever_reserve(s.cluster, queued)
    assert not could_ever_reserve(s.cluster, VCluster("vc-9", flexible(4), child, 0, 9, child.tolerations))
    group = s.submit_group("pg", parse_group([{"CPU": 3}], "PACK", virtual_cluster=child.cluster_id))
    assert could_ever(s.cluster, group, 0)
    validate(s.cluster)


# Together, inside a virtual cluster


@pytest.mark.parametrize("shape", ["flexible", "fixed", "nested", "none yet"])
def test_a_gang_inside_a_virtual_cluster_gets_hosts_that_work_can_be_placed_on(shape):
    s = scheduler(1, 4, 4)
    outer = s.create_cluster(fixed(1, 3, 2) if shape in ("fixed", "nested") else flexible(3 if shape == "flexible" else 0))
    vc = s.create_cluster(flexible(), outer) if shape == "nested" else outer
    items = [Item(asks(1).resources, asks(1).choices[0]), Item(asks(1).resources, asks(1).choices[0])]
    hosts = Gang(s.cluster, vc, items, ["STRICT_PACK"], [None, None], by_node=True).place()
    assert hosts is not None
    work = [Workload("a", asks(1, vc)), Workload("b", asks(1, vc))]
    for each, host in zip(work, hosts, strict=True):
        s.cluster.place(each, host)
    assert work[0].node == work[1].node
    assert [each.host is not None and each.host.cluster for each in work] == [vc, vc]
    validate(s.cluster)


def test_a_gang_takes_its_shares_from_one_virtual_node_of_the_parent_also_one_by_one():
    """The first of the parent's two virtual nodes has room for one of them, and a share comes from one virtual node only."""
    s = scheduler(4)
    vc = s.create_cluster(flexible(), s.create_cluster(fixed(1, 3)))
    item = Item(asks(1).resources, asks(1).choices[0])
    hosts = Gang(s.cluster, vc, [item, item], ["STRICT_PACK"], [None, None], by_node=True).place()
    for name, host in zip("ab", hosts or [], strict=True):
        s.cluster.place(Workload(name, asks(1, vc)), host)
    validate(s.cluster)
    group = s.submit_group("pg", parse_group([{"CPU": 1}], "PACK", virtual_cluster=vc.cluster_id))
    assert group.placed


def test_a_gang_that_its_virtual_cluster_may_not_hold_is_refused_though_the_nodes_have_room():
    s = scheduler(4, 4)
    vc = s.create_cluster(flexible(1, 1))
    item = Item(asks(1).resources, asks(1).choices[0])
    assert Gang(s.cluster, vc, [item, item], ["STRICT_PACK"], [None, None], by_node=True).place() is None


# What a virtual cluster's tokens depend on


def counts(s: Scheduler, *clusters: VCluster) -> list[int]:
    return [s.cluster.tree.changes, *(vc.changes for vc in clusters)]


def test_changes_go_up_with_the_virtual_nodes_of_a_cluster_and_of_its_children():
    s = scheduler(4, 4)
    parent = s.create_cluster(flexible(3))
    child, other = s.create_cluster(flexible(), parent), s.create_cluster(flexible())
    before = counts(s, parent, child, other)
    work = s.submit("a", asks(1, child))
    grown = counts(s, parent, child, other)
    assert [now > then for now, then in zip(grown, before, strict=True)] == [True, True, True, False]
    s.submit("b", asks(1, parent))
    assert counts(s, parent, child, other) == grown  # only its use changed, not what there is
    s.finish(work)
    given_back = counts(s, parent, child, other)
    assert [now > then for now, then in zip(given_back, grown, strict=True)] == [True, True, True, False]
    s.remove_node("n0")
    assert counts(s, parent)[1] > given_back[1]


def test_a_question_leaves_the_counts_as_they_were():
    s = scheduler(4, 4)
    parent = s.create_cluster(flexible(3, 3))
    child = s.create_cluster(flexible(), parent)
    before = counts(s, parent, child)
    assert shares.fits(s.cluster, Host(child, 1, None), cpus(2))
    assert s.create_cluster(fixed(4), None, cluster_id="x").state == "READY"
    assert s.create_cluster(fixed(3, 3), None, cluster_id="y").state == "QUEUED"
    assert counts(s, parent, child)[1:] == before[1:]
    settled = s.cluster.tree.changes
    s.settle()
    assert s.cluster.tree.changes == settled


def test_a_parent_counts_when_a_child_takes_its_share_from_another_virtual_node():
    s = scheduler(4)
    parent = s.create_cluster(VirtualCluster(fixed_size_nodes=fixed(1).fixed_size_nodes, flexible_resource_min={"CPU": 2}))
    child = s.create_cluster(flexible(), parent)
    s.submit("a", asks(2, child))
    assert own_total(parent.flex[0], "CPU") == 0
    before = parent.changes
    s.destroy_cluster(child)
    assert own_total(parent.flex[0], "CPU") == 20_000
    assert parent.changes > before
