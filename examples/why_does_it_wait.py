"""Everything that waits can say why, node by node, and which smallest changes would let it start."""

import ray
from _cluster import cluster

import remora


class Trainer:
    @ray.method
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()


RemoteTrainer = ray.remote(num_gpus=1)(Trainer)


with cluster() as names:
    trainer = RemoteTrainer.options(label_selector={"zone": "b"}).remote()

    why = remora.explain(trainer)
    print(f"{why.kind} {why.state}: {why.reason}")
    for refusal in why.refusals:
        print("  ", ", ".join(names[node_id] for node_id in refusal["nodes"]), "-", refusal["each"])
    print("what would help:", "; or ".join(why.suggestions))

    # In a terminal `remora explain <id>` says the same, and the driver itself does after five seconds.
    fixed = RemoteTrainer.options(tolerations={"gpu_node": "exists()"}).remote()
    print("without the zone and with a toleration it runs on", names[ray.get(fixed.where.remote())])
    print(remora.explain(fixed))
