"""Plans for whatever may wait: within all limits, the same every time, and when their machines have come nothing is in limbo:
what still waits gets no machine, and is told why."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.streams import TAINTS, ZONES, Stream, bundles, cluster_specs, cluster_steps, nodes, plain_steps, strategies

from remora.kernel.provisioning.plans import CLUSTER, GROUP, TYPE, Plan
from remora.model.node_types import NodeType, NodeTypes
from remora.model.resources import Resources
from remora.sim import SimCluster

_ROUNDS = 8


@st.composite
def node_types(draw: Any) -> NodeTypes:
    found = []
    for index in range(draw(st.integers(1, 3))):
        resources = {"CPU": draw(st.sampled_from([1, 2, 4, 8]))}
        if draw(st.integers(0, 2)) == 0:
            resources["GPU"] = draw(st.sampled_from([1, 2]))
        labels = (("zone", draw(st.sampled_from(ZONES))),) if draw(st.booleans()) else ()
        taints = ((draw(st.sampled_from(TAINTS)), "x"),) if draw(st.integers(0, 3)) == 0 else ()
        most = draw(st.sampled_from([None, 0, 1, 2, 4]))
        cost = draw(st.sampled_from([None, None, 1.0, 2.0]))
        least = draw(st.sampled_from([0, 0, 0, 1])) if most != 0 else 0
        found.append(NodeType(f"t{index}", Resources.parse(resources), labels, taints, least, most, cost))
    return NodeTypes(tuple(found), draw(st.sampled_from([None, None, 1, 3, 6])))


steps = st.lists(st.one_of(plain_steps, cluster_steps), min_size=1, max_size=14)


@given(node_types(), st.lists(nodes(), max_size=2), steps, st.lists(st.integers(0, 2), max_size=3))
@settings(max_examples=150)
def test_machines_come_until_everything_runs_or_is_told_why_not(types: NodeTypes, specs: Any, steps_: Any, coming: Any) -> None:
    stream = Stream()
    stream.sim.offer_node_types(types)
    for spec in specs:
        stream.add_node(spec)
    for step in steps_:
        stream.step(step)
    unlimited = {node_type.name for node_type in types.types if node_type.most is None}
    on_the_way = Counter(f"t{index}" for index in coming if f"t{index}" in unlimited)
    if types.most is not None:
        on_the_way = Counter()
    for _ in range(_ROUNDS):
        before = stream.dump()
        plan = stream.sim.plan(on_the_way)
        assert plan == stream.sim.plan(on_the_way)
        assert stream.dump() == before
        stream.sim.validate()
        check_limits(stream.sim, types, plan, on_the_way)
        check_contents(types, plan)
        if not plan.wanted:
            break
        for name, count in (Counter(plan.add) + on_the_way).items():
            for _ in range(count):
                stream.sim.start_node(name)
        on_the_way = Counter()
    for answer in plan.answers:
        assert (answer.served, bool(answer.reason)) == (0, True), answer
    assert not plan.wanted


def check_limits(sim: SimCluster, types: NodeTypes, plan: Plan, coming: Counter[str]) -> None:
    live = Counter(node.node_type for node in sim.scheduler.cluster.nodes.by_id.values() if node.node_type)
    for name, count in plan.add.items():
        found = types.get(name)
        assert found is not None
        assert found.most is None or live[name] + coming[name] + count <= found.most
    assert types.most is None or not plan.add or sum((live + coming).values()) + sum(plan.add.values()) <= types.most
    for name, count in plan.awaited.items():
        assert count <= coming[name]


def check_contents(types: NodeTypes, plan: Plan) -> None:
    """Every machine is for somebody, and what it is started for fits on it."""
    assert all(start.parties for start in plan.starts)
    assert sum(start.count for start in plan.starts) == sum(plan.add.values())


wholes = st.one_of(
    st.tuples(st.just("create"), cluster_specs(), st.just(0), st.integers(0, 1)),
    st.tuples(st.just("group"), bundles, strategies, st.just(0)),
)


@given(node_types(), st.lists(nodes(), max_size=2), st.lists(wholes, min_size=1, max_size=5))
@settings(max_examples=150)
def test_wholes_that_are_promised_machines_are_placed_when_these_have_come(types: NodeTypes, specs: Any, steps_: Any) -> None:
    stream = Stream()
    stream.sim.offer_node_types(types)
    for spec in specs:
        stream.add_node(spec)
    for step in steps_:
        stream.step(step)
    plan = stream.sim.plan()
    join_at_once(stream.sim, plan)
    ready = {vc.cluster_id for vc in stream.clusters if vc.state == "READY"}
    placed = {group.name for group in stream.groups if group.state == "PLACED"}
    for answer in plan.answers:
        if answer.party.kind == CLUSTER:
            assert (answer.party.name in ready) == bool(answer.served), answer
        elif answer.party.kind == GROUP and answer.served:
            assert answer.party.name in placed, answer


def join_at_once(sim: SimCluster, plan: Plan) -> None:
    """All machines of a plan are there before anything is decided again: those that are there anyway first, then the others in
    the order in which it names their types."""
    table = sim.scheduler.cluster.types
    assert table is not None
    anyway = [start for start in plan.starts if start.parties[0][0].kind == TYPE]
    others = [start for start in plan.starts if start not in anyway]
    names = [start.node_type for start in anyway for _ in range(start.count)]
    for name in dict.fromkeys(start.node_type for start in others):
        names += [name] * sum(start.count for start in others if start.node_type == name)
    for index, name in enumerate(names):
        found = table.types.get(name)
        assert found is not None
        sim.scheduler.cluster.add_node(f"{name}/{index}", found.resources, found.labels, found.taints, name)
    sim.scheduler.settle()
