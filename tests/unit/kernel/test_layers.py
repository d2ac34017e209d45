"""Gangs over zones and racks: placement groups and fixed-size nodes, by a strategy for each level."""

from collections import Counter

import pytest

from remora import FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.errors import InvalidStrategyError, InvalidVirtualClusterError
from remora.sim import SimCluster


def cluster(zones="abc", racks=2, nodes=2, cpus=4):
    c = SimCluster()
    for zone in zones:
        for rack in range(racks):
            for node in range(nodes):
                c.add_node(f"{zone}{rack}{node}", {"CPU": cpus}, labels={"zone": zone, "rack": f"{zone}{rack}"})
    return c


def over(c, group, label):
    nodes = c.scheduler.cluster.nodes
    return sorted(Counter(nodes.get(node).labels[label] for node in group.nodes).values())


# bundles, strategy over nodes, topology; how many lie in each rack and in each zone
PLACED = {
    "one rack": (4, 2, None, [{"rack": "STRICT_PACK"}], [4], [4]),
    "Ray's own form": (4, 2, None, {"rack": "STRICT_PACK"}, [4], [4]),
    "Ray's own form with the nodes": (2, 2, None, {"rack": "STRICT_PACK", "ray.io/node-id": "STRICT_SPREAD"}, [2], [2]),
    "one rack, different nodes": (2, 1, "STRICT_SPREAD", [{"rack": "STRICT_PACK"}], [2], [2]),
    "different zones": (3, 1, None, [{"zone": "STRICT_SPREAD"}], [1, 1, 1], [1, 1, 1]),
    "spread over zones, in each one rack": (6, 2, None, [{"zone": "SPREAD"}, {"rack": "STRICT_PACK"}], [2, 2, 2], [2, 2, 2]),
    "more than zones": (7, 1, None, [{"zone": "SPREAD"}], None, [2, 2, 3]),
    "packed into a zone": (8, 2, None, [{"zone": "PACK"}], [4, 4], [8]),
    "packed, but more than a zone": (12, 2, None, [{"zone": "PACK"}], None, [4, 8]),
    "one zone, different racks": (2, 1, None, [{"zone": "STRICT_PACK"}, {"rack": "STRICT_SPREAD"}], [1, 1], [2]),
}


@pytest.mark.parametrize(("count", "size", "strategy", "topology", "racks", "zones"), list(PLACED.values()), ids=list(PLACED))
def test_each_strategy_over_each_level(count, size, strategy, topology, racks, zones):
    c = cluster()
    group = c.placement_group([{"CPU": size}] * count, strategy, topology_strategy=topology)
    assert group.state == "PLACED", group.reason
    assert over(c, group, "zone") == zones
    assert racks is None or over(c, group, "rack") == racks
    c.validate()


WAITS = {
    "more than a rack holds": (3, 4, [{"rack": "STRICT_PACK"}], "not all in one rack"),
    "more than there are zones": (4, 1, [{"zone": "STRICT_SPREAD"}], "not all in different zones"),
}


@pytest.mark.parametrize(("count", "size", "topology", "want"), list(WAITS.values()), ids=list(WAITS))
def test_all_or_nothing_and_the_reason(count, size, topology, want):
    c = cluster()
    group = c.placement_group([{"CPU": size}] * count, topology_strategy=topology)
    assert (group.state, group.nodes) == ("PENDING", [])
    assert want in group.reason
    c.validate()


def test_a_fallback_with_another_topology():
    c = cluster()
    fallback = [{"topology_strategy": [{"zone": "STRICT_PACK"}]}]
    group = c.placement_group([{"CPU": 4}] * 4, topology_strategy=[{"rack": "STRICT_PACK"}], fallback_strategy=fallback)
    assert over(c, group, "zone") == [4]


def test_selectors_and_taints_hold_inside():
    c = cluster()
    c.taint("a00", {"broken": "true"})
    group = c.placement_group(
        [{"CPU": 3}] * 2, topology_strategy=[{"rack": "STRICT_PACK"}], bundle_label_selector=[{"zone": "a"}] * 2
    )
    assert set(group.nodes) == {"a10", "a11"}


def test_part_of_a_rack_lost_stays_in_that_rack_and_the_whole_rack_moves_together():
    c = cluster(nodes=3)
    group = c.placement_group([{"CPU": 3}] * 2, topology_strategy=[{"rack": "STRICT_PACK"}])
    rack = group.nodes[0][:2]
    c.remove_node(group.nodes[0])
    assert {node[:2] for node in group.nodes} == {rack}
    c.remove_node(group.nodes[0])
    assert group.state == "PENDING"  # one node is left of the rack, and the other bundle is on it
    assert "in one rack" in group.reason
    c.remove_node(next(node for node in c.scheduler.cluster.nodes.by_id if node.startswith(rack)))
    assert group.state == "PLACED"
    assert len({node[:2] for node in group.nodes}) == 1
    assert group.nodes[0][:2] != rack
    c.validate()


def test_inside_a_virtual_cluster_too():
    c = cluster()
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 2})] * 4, topology=[{"zone": "SPREAD"}, {"rack": "STRICT_PACK"}])
    vc = c.create_virtual_cluster(VirtualCluster(fixed_size_nodes=[nodes]))
    physical = [vnode.node for vnode in c.scheduler.cluster.tree.get(vc.cluster_id).fixed]
    zones = Counter(c.scheduler.cluster.nodes.at(number).labels["zone"] for number in physical)
    assert sorted(zones.values()) == [1, 1, 2]
    group = c.placement_group([{"CPU": 1}] * 2, topology_strategy=[{"zone": "STRICT_SPREAD"}], virtual_cluster=vc)
    assert over(c, group, "zone") == [1, 1]
    group = c.placement_group([{"CPU": 1}] * 4, topology_strategy=[{"rack": "STRICT_PACK"}], virtual_cluster=vc)
    assert over(c, group, "rack") == [4] or group.state == "PENDING"
    c.validate()


def test_fixed_size_nodes_of_a_lost_rack_move_together():
    c = cluster()
    share = VirtualCluster(
        fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 4})] * 2, topology=[{"rack": "STRICT_PACK"}])]
    )
    vc = c.create_virtual_cluster(VirtualCluster.parse(share.to_dict()))
    inner = c.scheduler.cluster.tree.get(vc.cluster_id)

    def where():
        return {c.scheduler.cluster.nodes.at(vnode.node).node_id for vnode in inner.fixed if vnode is not None}

    first, second = sorted(where())
    assert first[:2] == second[:2]
    c.remove_node(first)
    assert where() == {second}  # it stays in its rack, and waits for a machine there
    c.remove_node(second)
    assert len(where()) == 2
    assert len({node[:2] for node in where()}) == 1
    c.validate()


def test_machines_are_planned_in_one_domain():
    c = SimCluster()
    types = {
        "a": {"resources": {"CPU": 4}, "labels": {"zone": "a"}, "max_workers": 2},
        "b": {"resources": {"CPU": 4}, "labels": {"zone": "b"}, "max_workers": 4},
    }
    c.offer_node_types({"node_types": types})
    c.placement_group([{"CPU": 4}] * 3, topology_strategy=[{"zone": "STRICT_PACK"}])
    assert dict(c.plan().add) == {"b": 3}


def test_machines_are_planned_over_domains():
    c = SimCluster()
    types = {zone: {"resources": {"CPU": 4}, "labels": {"zone": zone}, "max_workers": 4} for zone in "abc"}
    c.offer_node_types({"node_types": types})
    c.placement_group([{"CPU": 1}] * 3, topology_strategy=[{"zone": "STRICT_SPREAD"}])
    assert dict(c.plan().add) == {"a": 1, "b": 1, "c": 1}


BAD = {
    "not a mapping": 3,
    "a list of strings": ["rack"],
    "no label": {"a b": "PACK"},
    "no strategy": {"rack": "TIGHT"},
    "twice": [{"rack": "PACK"}, {"rack": "SPREAD"}],
}


@pytest.mark.parametrize("topology", list(BAD.values()), ids=list(BAD))
def test_a_bad_topology_is_refused_with_an_example(topology):
    with pytest.raises(InvalidStrategyError, match="for example"):
        cluster().placement_group([{"CPU": 1}], topology_strategy=topology)
    with pytest.raises(InvalidVirtualClusterError, match="for example"):
        FixedSizeNodes([FixedSizeNode({"CPU": 1})], topology=topology)


def test_two_strategies_over_nodes_are_refused():
    with pytest.raises(InvalidStrategyError, match="give one"):
        cluster().placement_group([{"CPU": 1}], "SPREAD", topology_strategy={"ray.io/node-id": "PACK"})
