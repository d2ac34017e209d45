"""What must hold after every step of every stream."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.streams import Stream, cluster_steps, nodes, plain_steps

from remora import LabelSelector
from remora.kernel.explaining.explain import Suggestion
from remora.kernel.explaining.explain_groups import _relaxed
from remora.kernel.placing.amend import amend
from remora.kernel.placing.group_fit import would_fit
from remora.kernel.placing.placement import decide
from remora.kernel.state import shares
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.virtual_labels import labels_of
from remora.kernel.state.workloads import Group, Host, Workload
from remora.sim.sim_cluster import PENDING, PLACED
from remora.testing import reference
from remora.testing.reference import decide_by_brute_force

starts = st.lists(nodes(), min_size=1, max_size=5)
plain = st.lists(plain_steps, min_size=4, max_size=30)
everything = st.lists(st.one_of(plain_steps, cluster_steps, cluster_steps), min_size=8, max_size=30)


def run(start: list[Any], steps: list[Any], seed: int = 0) -> Stream:
    stream = Stream(seed)
    for node in start:
        stream.add_node(node)
    for step in steps:
        stream.step(step)
        stream.sim.validate()
    return stream


@given(starts, plain, st.integers(0, 3))
def test_every_decision_is_that_of_the_reference_and_nothing_that_could_run_waits(start: Any, steps: Any, seed: int) -> None:
    stream = run(start, steps, seed)  # CheckedScheduler compares each decision as it is made
    cluster = stream.sim.scheduler.cluster
    for work in stream.work:
        if work.state == PENDING:
            inner = work._work
            assert decide_by_brute_force(cluster, inner.request, inner.labels, inner.workload_id) is None, work


@given(starts, everything)
def test_the_state_never_contradicts_itself_with_groups_and_virtual_clusters(start: Any, steps: Any) -> None:
    stream = run(start, steps)
    for vc in stream.clusters:
        if vc.state == "QUEUED":
            assert vc.nodes == [], "a queued cluster holds nothing: all or nothing"
        if vc.state == "READY" and not vc.reason:
            held: dict[str, float] = {}
            for node in vc.nodes:
                for name, amount in node.total.items():
                    held[name] = held.get(name, 0) + amount
            want = vc._inner.minimum()
            assert all(held.get(name, 0) * 10_000 >= units for name, units in want.pairs), (vc, held)


@given(starts, everything)
def test_nothing_waits_in_a_virtual_cluster_that_some_host_could_take(start: Any, steps: Any) -> None:
    stream = run(start, steps)
    cluster = stream.sim.scheduler.cluster
    for work in stream.work:
        request = work._work.request
        vc = cluster.tree.clusters.get(request.cluster or "")
        if work.state == PENDING and vc is not None and vc.state == "READY" and request.demand and len(request.choices) == 1:
            if any(each.hard for each in request.spreads):
                continue  # whether one host may take it depends on all the others
            assert not [host for host in every_host(cluster, vc) if takes(cluster, work._work, host)], (work, work.reason)


def every_host(cluster: Cluster, vc: VCluster) -> list[Host]:
    fixed = [Host(vc, vnode.node, vnode) for vnode in vc.fixed if vnode is not None]
    return fixed + [Host(vc, node.number, None) for node in cluster.nodes.by_id.values()]


def takes(cluster: Cluster, workload: Workload, host: Host) -> bool:
    """Asked of one host, rule by rule, without the kernel's own way of finding it."""
    request, choice = workload.request, workload.request.choices[0]
    node = cluster.nodes.at(host.node)
    vnode = host.fixed or (host.cluster.flex.get(host.node) if host.cluster else None)
    own = labels_of(cluster, vnode) if vnode else {**node.labels, "ray.io/vcluster_id": str(request.cluster)}
    return (
        choice.selector.matches(own)
        and reference.admits(replace(choice, selector=LabelSelector()), node)
        and reference.obeys_affinity(cluster, request, node)
        and not reference.repels(cluster, reference.symmetric(cluster), request, workload.labels, workload.workload_id, node)
        and shares.fits(cluster, host, request.demand)
    )


@given(starts, everything)
def test_there_is_a_reason_exactly_when_something_waits(start: Any, steps: Any) -> None:
    stream = run(start, steps)
    items: list[Any] = [*stream.work, *stream.groups]
    for item in items:
        assert bool(item.reason) == (item.state == PENDING), item
        assert (item.state == PLACED) == bool(getattr(item, "node", None) or getattr(item, "nodes", None)), item
    for vc in stream.clusters:
        if vc.state != "READY":
            assert bool(vc.reason) == (vc.state == "QUEUED"), vc


@given(starts, everything, st.integers(0, 5))
def test_the_same_seed_gives_the_same_answers(start: Any, steps: Any, seed: int) -> None:
    assert run(start, steps, seed).dump() == run(start, steps, seed).dump()


@given(starts, plain)
def test_every_suggestion_when_applied_places_the_workload(start: Any, steps: Any) -> None:
    stream = run(start, steps)
    for work in stream.work:
        if work.state == PENDING:
            for suggestion in work.explain().suggestions:
                assert placed_after(stream.sim.scheduler.cluster, work._work, suggestion), (work.reason, suggestion.text)


@given(starts, everything)
def test_every_suggestion_for_a_group_when_applied_places_it(start: Any, steps: Any) -> None:
    stream = run(start, steps)
    for group in stream.groups:
        if group.state == PENDING and group._inner.request.cluster is None:
            for suggestion in group.explain().suggestions:
                scheduler = copy.deepcopy(stream.sim.scheduler)
                bundles = group._inner.bundles if group._inner.hosts else group._inner.request.options[0]
                for number, change in enumerate(suggestion.changes):
                    if change.action == "add_node":
                        scheduler.cluster.add_node(f"new-{number}", *change.subject)
                    else:
                        bundles = tuple(replace(bundle, nodes=_relaxed(bundle.nodes, change)) for bundle in bundles)
                twin = next(entry for entry in scheduler.waiting if getattr(entry, "group_id", "") == group.name)
                assert isinstance(twin, Group)
                assert would_fit(scheduler.cluster, twin, bundles), (group.reason, suggestion.text)


def placed_after(cluster: Cluster, workload: Workload, suggestion: Suggestion) -> bool:
    cluster = copy.deepcopy(cluster)
    for change in suggestion.changes:
        if change.action == "free":
            node_id, name, units = change.subject
            node = cluster.nodes.get(node_id)
            cluster.available.add(node.number, name, units)
        elif change.action == "add_node":
            resources, labels = change.subject
            cluster.add_node("new", resources, labels)
    request, labels = amend(workload.request, workload.labels, suggestion.changes)
    return decide(cluster, request, labels, workload.workload_id) is not None
