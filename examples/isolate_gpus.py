"""Keep expensive nodes for the work that needs them, and take a node out of service while everything runs."""

import time
from collections import Counter

import ray
from _cluster import cluster

import remora
from remora import Exists


@ray.remote
def where() -> str:
    time.sleep(0.2)
    return ray.get_runtime_context().get_node_id()


with cluster() as names:
    ids = {name: node_id for node_id, name in names.items()}

    def ran_on(count: int, **options: object) -> str:
        found = ray.get([where.options(scheduling_strategy="SPREAD", **options).remote() for _ in range(count)])
        return ", ".join(f"{times} on {names[node_id]}" for node_id, times in sorted(Counter(found).items()))

    # `remora up` started the node gpu with the taint gpu_node=true.
    print(f"plain tasks: {ran_on(8)}")
    print(f"a task that asks for the GPU and tolerates the taint: {ran_on(1, num_gpus=1, tolerations={'gpu_node': Exists()})}")

    remora.taint_node(ids["worker-1"], {"memory": "low"})
    print(f"after worker-1 was tainted: {ran_on(8)}")
    remora.untaint_node(ids["worker-1"], ["memory"])
