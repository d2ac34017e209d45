"""Placement groups against an exhaustive search: placed exactly when some assignment exists, and as its strategy says."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.streams import conditions, nodes, strategies

from remora.sim import SimCluster

bundle = st.tuples(
    st.sampled_from([{"CPU": 1}, {"CPU": 2}, {"CPU": 3}, {"CPU": 1, "GPU": 1}]),
    st.one_of(st.none(), st.fixed_dictionaries({"zone": conditions})),
)


@given(st.lists(nodes(), min_size=1, max_size=4), st.lists(bundle, min_size=1, max_size=4), strategies)
def test_a_group_is_placed_exactly_when_an_assignment_exists(specs: Any, bundles: Any, strategy: str) -> None:
    c = SimCluster()
    for index, spec in enumerate(specs):
        c.add_node(f"n{index}", **spec)
    group = c.placement_group([b for b, _ in bundles], strategy, bundle_label_selector=[selector for _, selector in bundles])
    c.validate()
    assert (group.state == "PLACED") == any(
        works(c, bundles, strategy, assignment) for assignment in product(range(len(specs)), repeat=len(bundles))
    ), group.reason
    if group.state == "PLACED":
        assert works(c, bundles, strategy, tuple(int(node[1:]) for node in group.nodes))


def works(c: SimCluster, bundles: Any, strategy: str, assignment: tuple[int, ...]) -> bool:
    from remora import LabelSelector

    used: dict[int, dict[str, float]] = {}
    for (resources, selector), index in zip(bundles, assignment, strict=True):
        node = c.scheduler.cluster.nodes.get(f"n{index}")
        if node.taints or not LabelSelector(selector).matches(node.labels):
            return False
        for name, amount in resources.items():
            total = used.setdefault(index, {})
            total[name] = total.get(name, 0) + amount
    fits = all(
        amount * 10_000 <= c.scheduler.cluster.nodes.get(f"n{index}").total.get(name, 0)
        for index, amounts in used.items()
        for name, amount in amounts.items()
    )
    apart = {"STRICT_SPREAD": len(used) == len(bundles), "STRICT_PACK": len(used) == 1}.get(strategy, True)
    return fits and apart
