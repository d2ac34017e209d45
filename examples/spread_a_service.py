"""Copies of a service that are never two on one node, and helpers that stay next to their copy."""

import ray
from _cluster import cluster

import remora
from remora import actor_affinity, affinity, label_not_in


class Server:
    @ray.method
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()


RemoteServer = ray.remote(num_cpus=0)(Server)  # in place of the decorator, so that a type checker sees what it is


with cluster() as names:
    # Away from every node that has a server; the last argument would make it a wish.
    apart = actor_affinity(label_not_in("app", ["server"], False))
    servers = [RemoteServer.options(labels={"app": "server"}, scheduling_strategy=apart).remote() for _ in range(3)]
    homes = ray.get([server.where.remote() for server in servers])
    print("servers:", ", ".join(sorted(names[home] for home in homes)))
    assert len(set(homes)) == 3

    # Where this very actor is; when it moves, this one follows.
    beside = actor_affinity(affinity(servers[0], False), on_failover="follow")
    cache = RemoteServer.options(scheduling_strategy=beside).remote()
    print("the cache of the first one:", names[ray.get(cache.where.remote())], "next to", names[homes[0]])

    # The node gpu is tainted, and on every other one there is a server.
    fourth = RemoteServer.options(labels={"app": "server"}, scheduling_strategy=apart).remote()
    print("a fourth server:", remora.explain(fourth))
