"""What the examples run on: the Ray of RAY_ADDRESS or of `remora up`, or else one that is started here and stopped again."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import ray

import remora
from remora.live.adapter.local_nodes import living_nodes
from remora.machine import local_ray
from remora.machine.nodes_file import load_nodes
from remora.machine.state import running_address


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """Attached to four nodes: head and gpu in zone a, worker-0 and worker-1 in zone b; the value is id to name."""
    address = os.environ.get("RAY_ADDRESS") or running_address(os.environ)
    started = address is None
    if started:
        os.environ.update(local_ray.auth_mode(os.environ))
        address = local_ray.up(load_nodes(None), os.environ, living_nodes, _tell)[0].address
    try:
        remora.init(address=address, logging_level="ERROR", log_to_driver=False)
        yield {node["NodeID"]: node["NodeName"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
    finally:
        ray.shutdown()
        if started:
            local_ray.down(os.environ, _tell)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
