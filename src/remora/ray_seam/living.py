"""The cluster of ``remora up`` seen from outside: which nodes it has, and how one proves to be its user."""

from __future__ import annotations

import os

from ray._raylet import Config, GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo
from ray.exceptions import RpcError

from remora.machine.local import AUTH_MODE
from remora.machine.state import auth_at


def living_nodes(address: str) -> dict[str, str]:
    """The living nodes: name to id; none while the GCS does not answer yet."""
    try:
        found = GcsClient(address=address).get_all_node_info()
    except RpcError:
        return {}
    return {node.node_name: node_id.hex() for node_id, node in found.items() if node.state == GcsNodeInfo.ALIVE}


def follow_auth(address: str | None) -> None:
    """Authenticate as the local cluster wants it: at an explicit address Ray does not do so by itself."""
    mode = auth_at(address or os.environ.get("RAY_ADDRESS"), os.environ)
    if mode and AUTH_MODE not in os.environ:
        os.environ[AUTH_MODE] = mode
        Config.initialize("")
