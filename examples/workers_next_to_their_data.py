"""Work that goes to the node where its data lies, so that nothing is copied."""

import ray
from _cluster import cluster

import remora
from remora import label_in, object_affinity


class Loader:
    """Keeps one part of a data set in the object store of its node."""

    @ray.method
    def load(self, part: str) -> str:
        self.part = remora.put(bytes(5_000_000), labels={"part": part})
        return ray.get_runtime_context().get_node_id()


RemoteLoader = ray.remote(num_cpus=0)(Loader)


@ray.remote(num_cpus=0)
def work(part: str) -> str:
    return ray.get_runtime_context().get_node_id()


with cluster() as names:
    loaders = {
        part: RemoteLoader.options(label_selector={"tier": tier}).remote() for part, tier in (("p0", "t0"), ("p1", "t1"))
    }
    for part, loader in loaders.items():
        print(f"{part} lies on {names[ray.get(loader.load.remote(part))]}")

    # The workers name the data, not the node. One that comes before its data waits for it.
    for part in ("p0", "p1", "p0"):
        near = object_affinity(label_in("part", [part], False))
        print(f"work on {part} ran on {names[ray.get(work.options(scheduling_strategy=near).remote(part))]}")
