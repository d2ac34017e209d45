"""The cluster of ``remora up`` seen from outside: which nodes it has, and how one proves to be its user."""

from __future__ import annotations

import os

from ray._raylet import Config, GcsClient
from ray.exceptions import RpcError

from remora.live.adapter.node_messages import living_name
from remora.machine.state import AUTH_MODE, auth_at


def living_nodes(address: str) -> dict[str, str]:
    """The living nodes: name to id; none while the GCS does not answer yet."""
    try:
        found = GcsClient(address=address).get_all_node_info()
    except RpcError:
        return {}
    named = ((living_name(info), node_id.hex()) for node_id, info in found.items())
    return {name: node_id for name, node_id in named if name is not None}


def follow_auth(address: str | None) -> None:
    """Authenticate as the local cluster wants it: at an explicit address Ray does not do so by itself."""
    mode = auth_at(address or os.environ.get("RAY_ADDRESS"), os.environ)
    if mode and AUTH_MODE not in os.environ:
        os.environ[AUTH_MODE] = mode
        Config.initialize("")
