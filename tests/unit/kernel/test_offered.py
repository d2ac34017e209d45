"""Where a class is offered, and what it costs to know it."""

from __future__ import annotations

import pytest

from remora.kernel.cycle import Scheduler
from remora.kernel.placing.class_nodes import offered
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.node_sets import members
from remora.kernel.state.validate import validate
from remora.model.requests import parse_request
from remora.model.resources import Resources
from remora.model.virtual_clusters import FixedSizeNode, FixedSizeNodes, VirtualCluster


@pytest.fixture
def s() -> Scheduler:
    """Six nodes in three zones; the last is tainted."""
    made = Scheduler()
    for number in range(6):
        taints = (("gpu_node", "true"),) if number == 5 else ()
        made.add_node(f"n{number}", Resources.parse({"CPU": 4}), (("zone", "abc"[number % 3]),), taints)
    return made


def nodes(s: Scheduler, vcluster: VCluster | None = None, **options: object) -> list[int]:
    request = parse_request("task", **options)  # type: ignore[arg-type]
    return list(members(offered(s.cluster, request.choices, request.demand, vcluster)))


def test_a_class_is_offered_where_labels_and_taints_admit_it(s):
    assert nodes(s) == [0, 1, 2, 3, 4]
    assert nodes(s, label_selector={"zone": "c"}) == [2]
    assert nodes(s, label_selector={"zone": "c"}, tolerations={"gpu_node": "exists()"}) == [2, 5]
    s.retaint("n2", (("gpu_node", "false"),))
    assert nodes(s, label_selector={"zone": "c"}) == []


def test_a_cluster_that_has_nothing_yet_is_offered_wherever_it_could_get_something(s):
    vc = s.create_cluster(VirtualCluster())
    assert nodes(s, vc, label_selector={"zone": "!a"}) == [1, 2, 4]
    assert nodes(s, vc, label_selector={"ray.io/vcluster_id": vc.cluster_id, "zone": "b"}) == [1, 4]
    assert nodes(s, vc, label_selector={"ray.io/vcluster_id": "other"}) == []


def test_inside_fixed_size_nodes_their_labels_decide(s):
    node = FixedSizeNode({"CPU": 1}, {"slot": "0"})
    parent = s.create_cluster(VirtualCluster(fixed_size_nodes=[FixedSizeNodes([node])]))
    child = s.create_cluster(VirtualCluster(), parent)
    assert nodes(s, child, label_selector={"slot": "0"}) == [0]
    assert nodes(s, child, label_selector={"slot": "!0"}) == [0, 1, 2, 3, 4]


def test_a_report_with_equal_values_changes_nothing_and_one_with_others_all_that_depends_on_it(s):
    one = Resources.parse({"CPU": 4, "node:10.0.0.1": 1})
    node = s.cluster.nodes.get("n0")
    s.cluster.observe_node(node, one, one)
    three = Resources.parse({"CPU": 3})
    assert s.cluster.available.at_least(three) >> 0 & 1
    version, log = s.cluster.nodes.version, list(s.cluster.available._log)
    s.cluster.observe_node(node, Resources.parse({"CPU": 4, "node:10.0.0.1": 1}), one)
    assert (s.cluster.nodes.version, s.cluster.available._log) == (version, log)
    s.cluster.observe_node(node, one, Resources.parse({"CPU": 2}))
    assert not s.cluster.available.at_least(three) >> 0 & 1
    assert s.cluster.available.amounts(0) == {"CPU": 20_000}
    validate(s.cluster)
