"""The taint rule: every taint of a node must be tolerated, whatever the strategy."""

import pytest

from remora import Exists, In, NodeAffinitySchedulingStrategy, NotIn, VirtualCluster, node_affinity
from remora.testing.builders import make_cluster, make_node

GPU_NODE = make_node("gpu").cpu(4).gpu(1).taint(gpu_node="true")
TWICE = make_node("twice").cpu(4).taint(gpu_node="true", gpu_type="A100")

# taints on the node, tolerations, whether the work is placed
TABLE = {
    "no taint": ({}, None, True),
    "an untolerated taint": ({"gpu_node": "true"}, None, False),
    "tolerated by Exists": ({"gpu_node": "true"}, {"gpu_node": Exists()}, True),
    "tolerated by its value": ({"gpu_type": "A100"}, {"gpu_type": In("A100", "H100")}, True),
    "another value": ({"gpu_type": "T4"}, {"gpu_type": In("A100", "H100")}, False),
    "NotIn tolerates other values": ({"gpu_type": "T4"}, {"gpu_type": NotIn("A100")}, True),
    "one of two is not enough": ({"gpu_node": "true", "gpu_type": "A100"}, {"gpu_node": Exists()}, False),
    "both of two": ({"gpu_node": "true", "gpu_type": "A100"}, {"gpu_node": Exists(), "gpu_type": "A100"}, True),
    "an empty value": ({"drain": ""}, {"drain": ""}, True),
    "tolerations on a clean node": ({}, {"gpu_node": Exists()}, True),
}


@pytest.mark.parametrize(("taints", "tolerations", "want"), list(TABLE.values()), ids=list(TABLE))
def test_a_taint_must_be_tolerated(taints, tolerations, want):
    c = make_cluster(make_node("n1").cpu(4).taint(taints))
    w = c.submit("task", resources={"CPU": 1}, tolerations=tolerations)
    assert w.state == ("PLACED" if want else "PENDING")


EVERY_STRATEGY = {
    "DEFAULT": {"scheduling_strategy": "DEFAULT"},
    "SPREAD": {"scheduling_strategy": "SPREAD"},
    "a hard node affinity to that node": {"scheduling_strategy": NodeAffinitySchedulingStrategy("gpu", soft=False)},
    "a soft node affinity to that node": {"scheduling_strategy": NodeAffinitySchedulingStrategy("gpu", soft=True)},
    "a node affinity by labels": {"scheduling_strategy": node_affinity({"ray.io/x": "!y"})},
    "a label selector": {"label_selector": {"zone": "!b"}},
    "no resources at all": {"resources": {}},
}


@pytest.mark.parametrize("options", list(EVERY_STRATEGY.values()), ids=list(EVERY_STRATEGY))
@pytest.mark.parametrize("kind", ["actor", "task"])
def test_a_taint_holds_whatever_the_strategy(kind, options):
    c = make_cluster(GPU_NODE)
    refused = c.submit(kind, **options)
    tolerant = c.submit(kind, tolerations={"gpu_node": Exists()}, **options)
    assert (refused.state, tolerant.state) == ("PENDING", "PLACED")


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
def test_a_taint_holds_for_the_bundles_of_a_group(strategy):
    c = make_cluster(GPU_NODE)
    assert c.placement_group([{"CPU": 1}], strategy).state == "PENDING"
    assert c.placement_group([{"CPU": 1}], strategy, tolerations={"gpu_node": Exists()}).nodes == ["gpu"]


def test_a_taint_holds_for_a_virtual_cluster_and_again_inside_it():
    c = make_cluster(GPU_NODE, make_node("n1").cpu(1))
    spec = VirtualCluster(flexible_resource_min={"CPU": 3})
    vc = c.create_virtual_cluster(spec, tolerations={"gpu_node": Exists()})
    assert vc.state == "READY"
    assert c.submit("task", resources={"CPU": 2}, virtual_cluster=vc).state == "PENDING"
    tolerant = c.submit("task", resources={"CPU": 2}, virtual_cluster=vc, tolerations={"gpu_node": Exists()})
    assert tolerant.node == "gpu"


def test_a_new_taint_keeps_newcomers_off_and_leaves_what_runs():
    c = make_cluster(make_node("n1").cpu(4))
    before = c.submit("actor", resources={"CPU": 1})
    c.taint("n1", {"memory-pressure": "high"})
    after = c.submit("actor", resources={"CPU": 1})
    assert (before.state, after.state) == ("PLACED", "PENDING")
    c.untaint("n1", ["memory-pressure"])
    assert after.node == "n1"


def test_what_ran_there_must_tolerate_the_taint_when_it_fails():
    c = make_cluster(make_node("n1").cpu(4))
    w = c.submit("actor", resources={"CPU": 1})
    c.taint("n1", {"drain": "yes"})
    c.fail(w)
    assert w.state == "PENDING"


def test_a_taint_of_the_same_key_replaces_the_value():
    c = make_cluster(make_node("n1").cpu(4).taint(gpu_type="A100"))
    w = c.submit("task", tolerations={"gpu_type": In("H100")})
    assert w.state == "PENDING"
    c.taint("n1", {"gpu_type": "H100"})
    assert w.state == "PLACED"


def test_a_label_under_the_reserved_prefix_is_a_taint_from_the_start():
    c = make_cluster(make_node("n1").cpu(4).label({"taint.remora.io/gpu_node": "true", "a.b.taint.remora.io/c": "d"}))
    w = c.submit("task")
    assert w.reason == "0/1 nodes fit: 1 has the untolerated taint a.b/c=d"
    assert c.submit("task", tolerations={"gpu_node": Exists(), "a.b/c": "d"}).state == "PLACED"


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        (1, "0/1 nodes fit: 1 has the untolerated taint gpu_node=true"),
        (2, "0/2 nodes fit: 2 have the untolerated taint gpu_node=true"),
    ],
)
def test_the_refusal_in_singular_and_plural(nodes, want):
    c = make_cluster(GPU_NODE.named(f"g{number}") for number in range(nodes))
    assert c.submit("task").reason == want


def test_tolerating_two_taints_is_one_suggestion():
    c = make_cluster(TWICE)
    assert "tolerate gpu_node and tolerate gpu_type" in c.submit("task").suggestions
