"""The Ray body of ``Port``: GCS's state, resize call and internal KV, over the process's own GCS client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ray import PlacementGroupID
from ray.exceptions import RaySystemError
from ray.util import placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup

from remora.live.adapter.kv import Kv
from remora.port.contract import RUNNING, NodeGoneError, Observation, Work

if TYPE_CHECKING:
    from remora.live.adapter.reports import Reports
    from remora.live.adapter.tables import Lookup
    from remora.port.scaler import Scaler

_HOLD_SECONDS = 2.0
_DIGITS = 4  # as exactly as Ray counts


class RayPort(Kv):
    def __init__(self, gcs_client: Any = None) -> None:
        super().__init__(gcs_client)
        self._tables: Lookup | None = None
        self._reports: Reports | None = None
        self._scaler: Scaler | None = None
        self._held: dict[str, str] = {}  # the placement groups that this process made, by name

    @property
    def scaler(self) -> Scaler | None:
        """On the head node only: there the autoscaler's settings are. Found once; without one nothing is looked at again."""
        from remora.live.adapter.ray_scaler import RayScaler
        from remora.live.adapter.type_sources import find_source

        if self._scaler is None:
            source = find_source(self._gcs.address)
            self._scaler = RayScaler(self._gcs, self._lookup().calls, source) if source is not None else None
        return self._scaler

    def observe(self) -> Observation:
        """Nodes that have not changed since the last time are the identical objects."""
        return self._reported().observe()

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        try:
            return dict(self._gcs.resize_raylet_resource_instances(node_id, dict(amounts)))
        except ValueError as error:
            if self._is_alive(node_id):
                raise
            raise NodeGoneError(node_id) from error

    def _is_alive(self, node_id: str) -> bool:
        return bool(self._reported().infos([bytes.fromhex(node_id)]))

    def find(self, id_or_name: str | None) -> list[Work]:
        return self._lookup().find(id_or_name) if id_or_name is not None else self._lookup().living()

    def ended(self, worker_ids: Iterable[str]) -> list[str]:
        return [worker_id for worker_id in worker_ids if self._lookup().has_ended(worker_id)]

    def restart(self, actor_id: str) -> None:
        self._lookup().restart(actor_id)

    def give_up(self, shapes: Iterable[Mapping[str, float]]) -> None:
        from remora.live.adapter.raylet_calls import give_up

        give_up(self._lookup().calls, shapes)

    def _reported(self) -> Reports:
        # Here, because workers import this module when they start, never observe, and should not pay for it.
        from remora.live.adapter.reports import Reports

        if self._reports is None:
            self._reports = Reports(self._lookup().calls)
        return self._reports

    def _lookup(self) -> Lookup:
        from remora.live.adapter.tables import Lookup

        if self._tables is None:
            self._tables = Lookup(self._gcs.address)
        return self._tables

    def watch(self, wake: Callable[[Work | None], None]) -> Callable[[], None]:
        from remora.live.adapter.feeds import Feeds

        return Feeds(self._gcs.address, wake).stop

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        """A placement group takes what it asks for without a worker. One of the same name that holds the same there is it: the
        answer to whoever made it may have been lost. Another is let go."""
        here = [{"ray.io/node-id": node_id}]
        try:
            group = placement_group([dict(amounts)], name=name, lifetime="detached", bundle_label_selector=here)
        except (ValueError, RaySystemError):  # which of the two depends on who refuses it
            found = self._lookup().groups_named(name)
            if not found:
                raise
            if any(_holds(each, node_id, amounts) for each in found):
                return True
            self.let_go(name)
            return False
        is_held = self._lookup().is_created(group.id, _HOLD_SECONDS)
        if is_held:
            self._held[name] = group.id.hex()
        else:
            remove_placement_group(group)
        return is_held

    def let_go(self, name: str) -> None:
        """By id: whoever made it may have lived in another namespace."""
        known = self._held.pop(name, None)
        for group_id in [known] if known is not None else self._lookup().group_ids(name):
            remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(group_id))))


def _holds(group: Work, node_id: str, amounts: Mapping[str, float]) -> bool:
    """Whether a placement group has just this on a node."""
    has = [{name: round(amount, _DIGITS) for name, amount in shape.items()} for shape in (*group.shapes, amounts)]
    return group.state == RUNNING and group.node_ids == (node_id,) and len(has) == 2 and has[0] == has[1]
