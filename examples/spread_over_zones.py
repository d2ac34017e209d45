"""Replicas that lie evenly over zones, one leader for each zone, and a gang that lies in one zone."""

from collections import Counter

import ray
from _cluster import cluster
from ray.util import placement_group_table, remove_placement_group

import remora
from remora import actor_affinity, label_not_in, spread


class Replica:
    @ray.method
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()


RemoteReplica = ray.remote(num_cpus=0)(Replica)  # in place of the decorator, so that a type checker sees what it is


with cluster() as names:
    zones = {node["node_id"]: node["labels"].get("zone", "none") for node in remora.status()["nodes"]}

    # No zone has more than one replica above the other.
    even = spread(over="zone")
    replicas = [RemoteReplica.options(labels={"app": "shop"}, scheduling_strategy=even).remote() for _ in range(4)]
    found = Counter(zones[home] for home in ray.get([replica.where.remote() for replica in replicas]))
    print("replicas:", ", ".join(f"{count} in zone {zone}" for zone, count in sorted(found.items())))

    # Never two in one zone: the third one waits for a further zone.
    alone = actor_affinity(label_not_in("svc", ["leader"], topology="zone"))
    leaders = [RemoteReplica.options(labels={"svc": "leader"}, scheduling_strategy=alone).remote() for _ in range(3)]
    started, _ = ray.wait([leader.where.remote() for leader in leaders], num_returns=2, timeout=60)
    print("leaders in zones:", ", ".join(sorted(zones[home] for home in ray.get(started))))
    print("a third leader:", remora.explain(leaders[2]))

    # All or nothing, in one zone.
    group = remora.placement_group([{"CPU": 1}, {"CPU": 1}], topology_strategy=[{"zone": "STRICT_PACK"}])
    group.wait(60)
    homes = placement_group_table(group)["bundles_to_node_id"].values()
    print("the gang is in", "one zone" if len({zones[home] for home in homes}) == 1 else "several zones")
    remove_placement_group(group)
