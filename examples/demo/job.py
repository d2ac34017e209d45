"""A program that knows nothing of Remora: it starts three workers, says where they are, and ends when its input does."""

import json
import sys

import ray

ray.init(logging_level="ERROR", log_to_driver=False)


@ray.remote(num_cpus=1)
class Worker:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


name = sys.argv[1]
workers = {f"{name}-{i}": Worker.remote() for i in (1, 2, 3)}  # type: ignore[attr-defined]
nodes = ray.get([worker.node.remote() for worker in workers.values()])
print(json.dumps(list(zip(workers, nodes, strict=True))), flush=True)
sys.stdin.read()
