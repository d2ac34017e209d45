"""What one report of all nodes costs the controller, from replies made here: no Ray is started.

    python benchmarks/reports.py            about half a minute

Each reply is as GCS would write it, with the maps in another order each time. ``decoding all`` is the plain way: the state that
Ray's autoscaler reads and what is in use, both as messages, and every node of them as Python objects. What GCS itself takes for
such replies, and the way, is not in these figures: ``benchmarks/facts.py`` measures it.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from ray.core.generated.autoscaler_pb2 import GetClusterResourceStateReply, NodeStatus
from ray.core.generated.gcs_service_pb2 import GetAllResourceUsageReply

from remora.live.adapter.node_messages import Node
from remora.live.adapter.reports import Reader, nodes_of
from remora.port.contract import Demand, NodeView, Observation

Replies = tuple[bytes, bytes]
ROUNDS = 7


def replies(nodes: int, tokens: int, dice: random.Random, changed: int = 0) -> Replies:
    """The first ``changed`` nodes have something in use that they had not."""
    state, usage = GetClusterResourceStateReply(), GetAllResourceUsageReply()
    names = [f"remora/class/{number:024x}" for number in range(tokens)]
    for number in range(nodes):
        address = f"10.0.{number // 256}.{number % 256}"
        total = dict.fromkeys(names, 1000.0) | {
            "CPU": 64.0,
            "memory": 2.0**38,
            "object_store_memory": 2.0**36,
            f"node:{address}": 1.0,
        }
        available = total | ({names[0]: 999.9999} if number < changed else {})
        node_id = number.to_bytes(28, "big")
        said = state.cluster_resource_state.node_states.add(node_id=node_id, status=NodeStatus.IDLE, node_ip_address=address)
        said.idle_duration_ms, said.node_state_version = dice.randrange(10**6), dice.randrange(10**6)
        said.labels.update({"ray.io/node-id": node_id.hex(), "zone": "a"})
        told = usage.resource_usage_data.batch.add(node_id=node_id, node_manager_address=address)
        told.resource_load_by_shape.SetInParent()
        for amounts, maps in (
            (total, (said.total_resources, told.resources_total)),
            (available, (said.available_resources, told.resources_available)),
        ):
            for each in maps:
                for name in dice.sample(list(amounts), len(amounts)):
                    each[name] = amounts[name]
    for number in range(10):
        shape = {"CPU": 1.0, names[number]: 0.0001}
        state.cluster_resource_state.pending_resource_requests.add(count=5).request.resources_bundle.update(shape)
        load = usage.resource_usage_data.resource_load_by_shape.resource_demands
        load.add(num_ready_requests_queued=5).shape.update(shape)
    return state.SerializeToString(), usage.SerializeToString()


def decode_all(state: bytes, usage: bytes) -> Observation:
    cluster = GetClusterResourceStateReply.FromString(state).cluster_resource_state
    latest = {each.node_id: each for each in GetAllResourceUsageReply.FromString(usage).resource_usage_data.batch}
    nodes = []
    for node in cluster.node_states:
        if node.status == NodeStatus.DEAD:
            continue
        node_id, now = node.node_id.hex(), latest.get(node.node_id)
        total, available = node.total_resources, node.available_resources
        if now is not None and now.resources_total:
            total, available = now.resources_total, now.resources_available
        nodes.append(NodeView(node_id, node.node_ip_address, dict(node.labels), dict(total), dict(available)))
    waiting = (Demand(dict(each.request.resources_bundle), each.count) for each in cluster.pending_resource_requests)
    return Observation(tuple(nodes), tuple(waiting))


def milliseconds(call: Callable[..., Any], turns: list[Replies]) -> float:
    """The median of one reading each; the garbage of the one before is not its business."""
    found = []
    for each in turns:
        gc.collect()
        start = time.perf_counter()
        call(*each)
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e3


def measured(nodes: int, tokens: int) -> dict[str, float]:
    dice = random.Random(nodes)
    same = [replies(nodes, tokens, dice) for _ in range(2)]
    other = replies(nodes, tokens, dice, changed=1)
    infos = {node_id: Node("10.0.0.1", {"zone": "a"}, {}, is_head=False) for node_id in nodes_of(same[0][1])}
    reader = Reader()

    def read(_: bytes, usage: bytes) -> Observation:
        return reader.read(usage, nodes_of(usage), infos)

    first = milliseconds(read, same[:1])
    turns = [same[number % 2] for number in range(1, ROUNDS + 1)]
    one = [(other, same[0])[number % 2] for number in range(ROUNDS)]
    by_hand, whole = read(*same[0]), decode_all(*same[0])
    assert [(view.total, view.available) for view in by_hand.nodes] == [(view.total, view.available) for view in whole.nodes]
    return {
        "MB before": sum(map(len, same[0])) / 1e6,
        "decoding all": milliseconds(decode_all, turns),
        "MB": len(same[0][1]) / 1e6,
        "the first": first,
        "nothing changed": milliseconds(read, turns),
        "one node changed": milliseconds(read, one),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000, 4_000])
    parser.add_argument("--tokens", type=int, default=100, help="on each node")
    chosen = parser.parse_args()
    rows = {nodes: measured(nodes, chosen.tokens) for nodes in chosen.nodes}
    print(f"one report, ms, {chosen.tokens} tokens on each node")
    print(f"{'nodes':>8}" + "".join(f"{name:>18}" for name in next(iter(rows.values()))) + f"{'ratio':>8}")
    for nodes, row in rows.items():
        ratio = row["decoding all"] / row["nothing changed"]
        print(f"{nodes:>8,}" + "".join(f"{value:>18.1f}" for value in row.values()) + f"{ratio:>8.1f}")


if __name__ == "__main__":
    main()
