"""Placement groups: all bundles or none."""

from typing import Any

import pytest

from remora import Exists, VirtualCluster
from remora.testing.builders import make_cluster, make_node, make_nodes

CPU = {"CPU": 1}

# CPUs of the nodes, bundles (CPUs), strategy, the nodes that the bundles get; None when it waits
TABLE = {
    "PACK on one node when it fits": ([4, 4], [1, 1, 1], "PACK", ["n1", "n1", "n1"]),
    "PACK on the node that holds all": ([2, 4], [1, 1, 1], "PACK", ["n2", "n2", "n2"]),
    "PACK over two when it must": ([2, 2], [1, 1, 1, 1], "PACK", ["n1", "n1", "n2", "n2"]),
    "PACK puts the large one where it fits": ([2, 3], [2, 3], "PACK", ["n1", "n2"]),
    "PACK that does not fit": ([2, 2], [3], "PACK", None),
    "SPREAD one a node": ([4, 4, 4], [1, 1, 1], "SPREAD", ["n1", "n2", "n3"]),
    "SPREAD doubles up when it must": ([4, 4], [1, 1, 1], "SPREAD", ["n1", "n2", "n1"]),
    "SPREAD that does not fit": ([1, 1], [1, 1, 1], "SPREAD", None),
    "STRICT_PACK on one node": ([2, 4], [1, 1, 1], "STRICT_PACK", ["n2", "n2", "n2"]),
    "STRICT_PACK that no node holds": ([2, 2], [1, 1, 1], "STRICT_PACK", None),
    "STRICT_SPREAD one a node": ([4, 4], [1, 1], "STRICT_SPREAD", ["n1", "n2"]),
    "STRICT_SPREAD with too few nodes": ([4, 4], [1, 1, 1], "STRICT_SPREAD", None),
    "STRICT_SPREAD puts the large one where it fits": ([4, 1], [1, 4], "STRICT_SPREAD", ["n2", "n1"]),
    "one bundle": ([4], [4], "STRICT_SPREAD", ["n1"]),
}


@pytest.mark.parametrize(("nodes", "bundles", "strategy", "want"), list(TABLE.values()), ids=list(TABLE))
def test_a_group_is_placed(nodes, bundles, strategy, want):
    c = make_cluster(make_node(f"n{number}").cpu(cpus) for number, cpus in enumerate(nodes, 1))
    pg = c.placement_group([{"CPU": cpus} for cpus in bundles], strategy)
    if want is None:
        assert (pg.state, pg.nodes) == ("PENDING", [])
    elif strategy in ("SPREAD", "STRICT_SPREAD") and len(set(bundles)) == 1:
        assert sorted(pg.nodes) == sorted(want)
    else:
        assert pg.nodes == want


def test_a_group_that_waits_holds_nothing():
    c = make_cluster(make_nodes(2))
    assert c.placement_group([{"CPU": 4}] * 3).state == "PENDING"
    assert c.placement_group([{"CPU": 4}] * 2).state == "PLACED"


def test_a_group_that_waits_is_placed_when_it_can_be():
    c = make_cluster(make_nodes(1))
    pg = c.placement_group([CPU] * 2, "STRICT_SPREAD")
    make_node("n2").cpu(4).join(c)
    assert sorted(pg.nodes) == ["n1", "n2"]


def test_a_finished_group_gives_everything_back():
    c = make_cluster(make_nodes(2))
    pg = c.placement_group([{"CPU": 4}] * 2)
    w = c.submit("task", resources={"CPU": 4})
    c.finish(pg)
    assert (pg.state, pg.nodes, w.state) == ("FINISHED", [], "PLACED")


def test_each_bundle_has_its_own_selector():
    c = make_cluster(make_node("spot").cpu(4).label(market="spot"), make_node("h100").cpu(4).gpu(8).label(gpu="h100"))
    pg = c.placement_group(
        [CPU, {"GPU": 1}, {"GPU": 1}], bundle_label_selector=[{"market": "spot"}, {"gpu": "h100"}, {"gpu": "h100"}]
    )
    assert pg.nodes == ["spot", "h100", "h100"]


@pytest.mark.parametrize("strategy", ["STRICT_PACK", "PACK", "SPREAD", "STRICT_SPREAD"])
def test_selectors_that_exclude_each_other(strategy):
    c = make_cluster(make_node("a").cpu(4).label(zone="a"), make_node("b").cpu(4).label(zone="b"))
    pg = c.placement_group([CPU, CPU], strategy, bundle_label_selector=[{"zone": "b"}, {"zone": "a"}])
    assert pg.nodes == ([] if strategy == "STRICT_PACK" else ["b", "a"])


def test_every_bundle_must_tolerate():
    c = make_cluster(make_node("gpu").cpu(4).taint(gpu_node="true"), make_node("n1").cpu(1))
    assert c.placement_group([CPU] * 3).state == "PENDING"
    assert c.placement_group([CPU] * 3, tolerations={"gpu_node": Exists()}).state == "PLACED"


def test_strict_spread_finds_the_matching_that_greedy_misses():
    """The first bundle may go to any node, the second only to n1: who takes n1 first must move away again."""
    c = make_cluster(make_node("n1").cpu(4).label(zone="a"), make_node("n2").cpu(4))
    pg = c.placement_group([CPU, CPU], "STRICT_SPREAD", bundle_label_selector=[{}, {"zone": "a"}])
    assert pg.nodes == ["n2", "n1"]


def test_strict_spread_finds_a_long_chain_of_moves():
    """Bundle i fits the nodes i and i+1, the last one only node 0: when it comes, every other has to move up by one."""
    count = 8
    c = make_cluster(
        make_node(f"n{number}").cpu(4).label({f"b{bundle}": "y" for bundle in (number - 1, number) if 0 <= bundle < count - 1})
        for number in range(count)
    )
    c.label("n0", {"last": "y"})
    selectors = [{f"b{number}": "exists()"} for number in range(count - 1)] + [{"last": "exists()"}]
    pg = c.placement_group([CPU] * count, "STRICT_SPREAD", bundle_label_selector=selectors)
    assert pg.nodes == [f"n{number}" for number in range(1, count)] + ["n0"]


def test_strict_spread_needs_a_node_for_each():
    """Three bundles that only two nodes can take, though there are three nodes."""
    c = make_cluster(make_node("n1").cpu(4), make_node("n2").cpu(4), make_node("n3").cpu(1))
    pg = c.placement_group([{"CPU": 2}] * 3, "STRICT_SPREAD")
    assert pg.state == "PENDING"
    assert pg.reason == "each of the 3 bundles fits somewhere, but not all on different nodes: they need 6 CPU"


def test_fallbacks_of_other_sizes_are_tried_in_order():
    """Prefer 2 H100, fall back to 4 A100, then to 8 V100 (seed 000)."""
    options: dict[str, Any] = {
        "bundles": [{"GPU": 1}] * 2,
        "bundle_label_selector": [{"gpu": "h100"}] * 2,
        "fallback_strategy": [
            {"bundles": [{"GPU": 1}] * 4, "bundle_label_selector": [{"gpu": "a100"}] * 4},
            {"bundles": [{"GPU": 1}] * 8, "bundle_label_selector": [{"gpu": "v100"}] * 8},
        ],
    }
    kinds = {kind: make_node(kind).gpu(8).label(gpu=kind) for kind in ("h100", "a100", "v100")}
    for kind, want in {"h100": 2, "a100": 4, "v100": 8}.items():
        c = make_cluster(kinds[kind])
        pg = c.placement_group(**options)
        assert pg.nodes == [kind] * want
        assert pg.bundles == [{"GPU": 1.0}] * want


def test_a_busy_first_choice_is_waited_for():
    c = make_cluster(make_node("a").cpu(4).label(zone="a"), make_node("b").cpu(4).label(zone="b"))
    busy = c.submit("task", resources={"CPU": 4}, label_selector={"zone": "a"})
    pg = c.placement_group(
        [CPU], bundle_label_selector=[{"zone": "a"}], fallback_strategy=[{"bundle_label_selector": [{"zone": "b"}]}]
    )
    assert pg.state == "PENDING"
    c.finish(busy)
    assert pg.nodes == ["a"]


def test_a_waiting_group_falls_back_when_its_first_choice_can_never_be_again():
    c = make_cluster(make_node("a").cpu(4).label(zone="a"), make_node("b").cpu(4).label(zone="b"))
    c.submit("task", resources={"CPU": 4}, label_selector={"zone": "a"})
    pg = c.placement_group(
        [CPU], bundle_label_selector=[{"zone": "a"}], fallback_strategy=[{"bundle_label_selector": [{"zone": "b"}]}]
    )
    c.remove_node("a")
    assert pg.nodes == ["b"]


def test_a_lost_bundle_is_placed_again_and_the_others_stay():
    c = make_cluster(make_nodes(3))
    pg = c.placement_group([CPU] * 2, "STRICT_SPREAD")
    before = pg.nodes
    c.remove_node(before[0])
    assert pg.state == "PLACED"
    assert pg.nodes[1] == before[1]
    assert pg.nodes[0] not in before


def test_a_lost_bundle_waits_for_room():
    c = make_cluster(make_nodes(2))
    pg = c.placement_group([CPU] * 2, "STRICT_SPREAD")
    c.remove_node("n1")
    assert (pg.state, pg.nodes) == ("PENDING", [])
    make_node("n9").cpu(4).join(c)
    assert sorted(pg.nodes) == ["n2", "n9"]


def test_a_group_inside_a_virtual_cluster_stays_inside():
    c = make_cluster(make_nodes(3))
    vc = c.create_virtual_cluster(VirtualCluster(flexible_resource_max={"CPU": 2}))
    pg = c.placement_group([CPU] * 2, "STRICT_SPREAD", virtual_cluster=vc)
    assert len(set(pg.nodes)) == 2
    assert c.placement_group([CPU], virtual_cluster=vc).state == "PENDING"
    vc.destroy()
    assert pg.state == "FINISHED"


@pytest.mark.parametrize(
    ("nodes", "bundles", "strategy", "want"),
    [
        (1, [{"CPU": 8}], "PACK", "1 bundle fits nowhere (of 1): 0/1 nodes fit: 1 is too small for 8 CPU"),
        (1, [{"CPU": 8}] * 2 + [CPU], "PACK", "2 bundles fit nowhere (of 3): 0/1 nodes fit: 1 is too small for 8 CPU"),
        (2, [{"CPU": 3}] * 2, "STRICT_PACK", "each of the 2 bundles fits somewhere, but not all on one node: they need 6 CPU"),
        (2, [{"CPU": 3}] * 3, "PACK", "each of the 3 bundles fits somewhere, but not all together: they need 9 CPU"),
    ],
)
def test_why_a_group_waits(nodes, bundles, strategy, want):
    assert make_cluster(make_nodes(nodes)).placement_group(bundles, strategy).reason == want


def test_groups_keep_their_place_in_the_line():
    c = make_cluster(make_nodes(1))
    running = c.submit("task", resources={"CPU": 4})
    old, young = c.placement_group([{"CPU": 4}]), c.submit("task", resources={"CPU": 4})
    c.finish(running)
    assert (old.state, young.state) == ("PLACED", "PENDING")
