"""Where work may run, by the labels of nodes; and what to do when no node has them."""

import ray
from _cluster import cluster

import remora
from remora import options


@ray.remote(num_cpus=0)
def where() -> str:
    return ray.get_runtime_context().get_node_id()


CHOICES = {
    "zone b, but not tier t0": options(label_selector={"zone": "b", "tier": "!t0"}),
    "tier t0 or t2": options(label_selector={"tier": "in(t0, t2)"}),
    "no tier at all": options(label_selector={"tier": "!exists()"}),
    "zone c, else tier t1": options(label_selector={"zone": "c"}, fallback_strategy=[{"label_selector": {"tier": "t1"}}]),
}

with cluster() as names:
    for what, choice in CHOICES.items():
        print(f"{what}: it ran on {names[ray.get(where.options(**choice).remote())]}")

    # A fallback is for what can never be. Without one the task waits, and says for what.
    nowhere = where.options(label_selector={"zone": "c"}).remote()
    print(f"zone c: {remora.explain(nowhere)}")
