"""Where work may run, by the labels of nodes; and what to do when no node has them."""

import ray
from _cluster import cluster

import remora


@ray.remote(num_cpus=0)
def where() -> str:
    return ray.get_runtime_context().get_node_id()


CHOICES = {
    "zone b, but not tier t0": {"label_selector": {"zone": "b", "tier": "!t0"}},
    "tier t0 or t2": {"label_selector": {"tier": "in(t0, t2)"}},
    "no tier at all": {"label_selector": {"tier": "!exists()"}},
    "zone c, else tier t1": {"label_selector": {"zone": "c"}, "fallback_strategy": [{"label_selector": {"tier": "t1"}}]},
}

with cluster() as names:
    for what, options in CHOICES.items():
        print(f"{what}: it ran on {names[ray.get(where.options(**options).remote())]}")

    # A fallback is for what can never be. Without one the task waits, and says for what.
    nowhere = where.options(label_selector={"zone": "c"}).remote()
    print(f"zone c: {remora.explain(nowhere)}")
