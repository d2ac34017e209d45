"""Which share tokens work takes in a virtual cluster, and of which part of it."""

from __future__ import annotations

from typing import Any

import pytest

from remora import FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.model.virtual_clusters import VNODE_LABEL
from remora.wire.classes import ClassSpec
from remora.wire.rewrite import Defaults, rewrite
from remora.wire.taken_shares import resources_selected, selects, taken_part, taken_shares
from remora.wire.tokens import share_token

NODES = [FixedSizeNode({"CPU": 2}, {"role": "cpu"}), FixedSizeNode({"CPU": 1, "GPU": 1}, {"role": "gpu"})]
CLUSTER = VirtualCluster(fixed_size_nodes=[FixedSizeNodes(NODES, "PACK")], flexible_resource_max={"CPU": 4})


def class_of(**options: Any) -> ClassSpec:
    return rewrite(options, Defaults(), {"CPU": 1.0}).spec


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"role": "cpu"}, {"CPU"}),
        ({"role": "gpu"}, {"CPU", "GPU"}),
        ({"role": "!cpu"}, {"CPU", "GPU"}),
        ({"role": "neither"}, set()),
        ({"zone": "a"}, set()),  # a label of physical nodes tells none of its nodes from the others
        ({"zone": "a", "role": "cpu"}, {"CPU"}),
        ({VNODE_LABEL: "vc1-0"}, {"CPU", "GPU"}),
        ({VNODE_LABEL: "vc1-0", "role": "cpu"}, {"CPU"}),
    ],
)
def test_a_selector_tells_fixed_size_nodes_from_the_others(selector: dict[str, str], selected: set[str]) -> None:
    spec = class_of(label_selector=selector)
    assert selects(spec)
    assert resources_selected(CLUSTER, spec) == selected


def test_any_choice_may_select() -> None:
    spec = class_of(label_selector={"role": "cpu"}, fallback_strategy=[{"label_selector": {"role": "gpu"}}])
    assert resources_selected(CLUSTER, spec) == {"CPU", "GPU"}


def test_who_selects_nothing_takes_no_part() -> None:
    spec = class_of()
    assert not selects(spec)
    assert resources_selected(CLUSTER, spec) == frozenset()


def test_as_much_of_a_share_is_taken_as_of_the_resource_and_of_the_part_what_it_has() -> None:
    spec, resources = class_of(label_selector={"role": "cpu"}), {"CPU": 1.5, "GPU": 0.0, "memory": 8.0}
    assert taken_shares("vc1", resources) == {share_token("vc1", "CPU"): 1.5, share_token("vc1", "memory"): 8.0}
    assert taken_part(spec, ["CPU", "GPU"], resources) == {share_token(spec.part_id, "CPU"): 1.5}
