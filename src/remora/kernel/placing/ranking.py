"""Which of several good nodes is best.

Wishes first: the node that satisfies most of them. Then, as in Ray, nodes with GPUs are left to those who ask for GPUs.
Then the policy. DEFAULT: nodes under half full count as equal and are filled in order, above that the least used wins
(Ray's hybrid policy). SPREAD: the least used, round robin among equals. The seed turns the order in which equals come.
"""

from __future__ import annotations

from remora.kernel.rules import DYNAMIC, STATIC, Query
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.load import CALM_STEPS
from remora.kernel.state.node_sets import NodeSet, first, most_wanted, without
from remora.model.resources import Resources
from remora.model.strategies import SPREAD

ANY_GPU = Resources({"GPU": 1})


def choose(cluster: Cluster, query: Query, ready: NodeSet, label_wishes: list[NodeSet] | None = None) -> int:
    """Return the number of the best node of a set that is not empty. ``label_wishes`` stand for the wishes about node labels
    where those are to be asked of virtual nodes."""
    request = query.request
    if request.wishes or request.affinities or request.spreads or request.wished_node is not None:
        rules = [rule for rule in (*STATIC, *DYNAMIC) if label_wishes is None or rule.name != "labels"]
        wishes = [*(label_wishes or ()), *(wish for rule in rules for wish in rule.wishes(cluster, query))]
        if wishes:
            ready = most_wanted(ready, wishes)
    if "GPU" not in request.demand:
        with_gpu = cluster.totals.at_least(ANY_GPU)
        if with_gpu:
            ready = without(ready, with_gpu) or ready
    return by_policy(cluster, ready, request.policy)


def by_policy(cluster: Cluster, ready: NodeSet, policy: str) -> int:
    load, levels = cluster.load, cluster.load.levels
    size = len(cluster.nodes.by_number)
    if policy == SPREAD:
        start = (cluster.last_spread + 1 if cluster.last_spread >= 0 else cluster.seed) % size
    else:
        start = cluster.seed % size if cluster.seed else 0
        calm = ready & load.calm
        if calm:
            return first(calm, start)
        levels = levels[CALM_STEPS:]
    for level in levels:
        found = ready & level
        if found:
            return first(found, start)
    return first(ready, start)
