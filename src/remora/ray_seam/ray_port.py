"""The Ray body of ``Port``: GCS's state, resize call and internal KV, over the process's own GCS client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ray import PlacementGroupID
from ray.util import placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup

from remora.ray_seam.kv import Kv
from remora.seam.port import ENDED, GROUP, Demand, NodeGoneError, NodeView, Observation, Work

if TYPE_CHECKING:
    from remora.ray_seam.lookup import Lookup

_HOLD_SECONDS = 2.0
_USAGE_SECONDS = 10


class RayPort(Kv):
    def __init__(self, gcs_client: Any = None) -> None:
        super().__init__(gcs_client)
        self._head: str | None = None
        self._tables: Lookup | None = None

    def observe(self) -> Observation:
        # Here, because workers import this module when they start, never observe, and should not pay for it.
        from ray.autoscaler.v2.sdk import get_cluster_resource_state
        from ray.core.generated.autoscaler_pb2 import NodeStatus

        state = get_cluster_resource_state(self._gcs)
        # What is in use is up to a second old in the state that the autoscaler reads, and a tenth of one in this report.
        usage = self._gcs.get_all_resource_usage(timeout=_USAGE_SECONDS).resource_usage_data.batch
        latest = {each.node_id: each for each in usage}
        head = self._head_id()
        nodes = []
        for node in state.node_states:
            if node.status == NodeStatus.DEAD:
                continue
            node_id, now = node.node_id.hex(), latest.get(node.node_id)
            total, available = node.total_resources, node.available_resources
            if now is not None and now.resources_total:  # not yet, for a node that has just joined
                total, available = now.resources_total, now.resources_available
            nodes.append(
                NodeView(
                    node_id=node_id,
                    address=node.node_ip_address,
                    labels=dict(node.labels),
                    total=dict(total),
                    available=dict(available),
                    is_head=node_id == head,
                )
            )
        demands = tuple(
            Demand(dict(pending.request.resources_bundle), pending.count) for pending in state.pending_resource_requests
        )
        groups = tuple(_group(gang) for gang in state.pending_gang_resource_requests)
        return Observation(tuple(nodes), demands + groups)

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        try:
            return dict(self._gcs.resize_raylet_resource_instances(node_id, dict(amounts)))
        except ValueError as error:
            if "not alive" in str(error):
                raise NodeGoneError(node_id) from error
            raise

    def find(self, id_or_name: str | None) -> list[Work]:
        return self._lookup().find(id_or_name) if id_or_name is not None else self._lookup().living()

    def ended(self, worker_ids: Iterable[str]) -> list[str]:
        return [worker_id for worker_id in worker_ids if self._lookup().has_ended(worker_id)]

    def restart(self, actor_id: str) -> None:
        self._lookup().restart(actor_id)

    def _lookup(self) -> Lookup:
        from remora.ray_seam.lookup import Lookup

        if self._tables is None:
            self._tables = Lookup(self._gcs.address)
        return self._tables

    def watch(self, wake: Callable[[Work | None], None]) -> Callable[[], None]:
        from remora.ray_seam.feeds import Feeds

        return Feeds(self._gcs.address, wake).stop

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        """A placement group takes what it asks for without a worker."""
        here = [{"ray.io/node-id": node_id}]
        try:
            group = placement_group([dict(amounts)], name=name, lifetime="detached", bundle_label_selector=here)
        except ValueError:  # there is one of that name, from before we died
            self.let_go(name)
            return False
        is_held = self._lookup().is_created(group.id, _HOLD_SECONDS)
        if not is_held:
            remove_placement_group(group)
        return is_held

    def let_go(self, name: str) -> None:
        # By id: whoever made it may have lived in another namespace.
        for found in self.find(name):
            if found.kind == GROUP and found.state != ENDED:
                remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(found.work_id))))

    def _head_id(self) -> str | None:
        if self._head is None:
            infos = self._gcs.get_all_node_info()
            self._head = next((info.node_id.hex() for info in infos.values() if info.is_head_node), None)
        return self._head


def _group(gang: Any) -> Demand:
    """A placement group that waits. Whether its bundles must lie apart or together is told, weaker wishes are not."""
    constraints = [constraint for request in gang.requests for constraint in request.placement_constraints]
    strategy = "PACK"
    if any(constraint.HasField("anti_affinity") for constraint in constraints):
        strategy = "STRICT_SPREAD"
    elif any(constraint.HasField("affinity") for constraint in constraints):
        strategy = "STRICT_PACK"
    return Demand({}, 1, tuple(dict(request.resources_bundle) for request in gang.requests), strategy)
