"""Machines that are neither in use nor kept may go, whatever has happened before: no virtual cluster loses its minimum."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.streams import Stream, cluster_steps, nodes, plain_steps

steps = st.lists(st.one_of(cluster_steps, plain_steps), min_size=1, max_size=20)


def played(specs: Any, steps_: Any) -> Stream:
    stream = Stream()
    for spec in specs:
        stream.add_node(spec)
    for step in steps_:
        stream.step(step)
    for node in stream.sim.scheduler.cluster.nodes.by_id.values():
        node.node_type = "t"
    return stream


def minima(stream: Stream) -> dict[str, bool]:
    return {vc.cluster_id: vc._inner.whole for vc in stream.clusters if vc.state == "READY"}


@given(st.lists(nodes(), min_size=1, max_size=4), steps)
def test_what_is_idle_and_not_kept_may_go(specs: Any, steps_: Any) -> None:
    stream = played(specs, steps_)
    before = minima(stream)
    kept = stream.sim.kept()
    assert stream.sim.kept() == kept
    for node_id in [node_id for node_id in stream.sim.scheduler.cluster.nodes.by_id if node_id not in kept]:
        stream.sim.remove_node(node_id)
    stream.sim.validate()
    assert {name: minima(stream)[name] for name in before} == before


@given(st.lists(nodes(), min_size=1, max_size=4), steps)
def test_compacting_takes_nothing_from_anybody_and_never_makes_more_machines_necessary(specs: Any, steps_: Any) -> None:
    stream = played(specs, steps_)
    clusters = stream.sim.scheduler.cluster.tree.clusters
    before = {name: dict(vc.flex_total) for name, vc in clusters.items()}
    placed = [(work.name, work.node) for work in stream.work if work.state == "PLACED"]
    kept = stream.sim.kept()
    vacated = stream.sim.scheduler.compact()
    stream.sim.validate()
    if not vacated:
        assert {name: dict(vc.flex_total) for name, vc in clusters.items()} == before
        return
    for name, least in ((name, vc.spec.flexible_resource_min) for name, vc in clusters.items()):
        assert all(
            clusters[name].flex_total.get(each, 0) >= min(units, before[name].get(each, 0)) for each, units in least.items()
        )
    assert [(work.name, work.node) for work in stream.work if work.state == "PLACED"][: len(placed)] == placed or len(
        placed
    ) == 0
    assert len(stream.sim.kept()) <= len(kept) + len([work for work in stream.work if work.state == "PLACED"]) - len(placed)
