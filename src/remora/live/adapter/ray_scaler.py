"""The Ray body of ``Scaler``: autoscaler v2, asked through the cluster resource constraint and read through its status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remora.errors import ControllerError
from remora.live.adapter import asking, machine_messages
from remora.live.adapter.gcs_calls import CLUSTER_STATUS, GcsCalls
from remora.live.adapter.type_sources import Source
from remora.model.node_types import NodeTypes
from remora.port.scaler import Survey

_VERSION_KEY = b"__autoscaler_v2_enabled"
_NAMESPACE = b"__autoscaler"
_TIMEOUT_SECONDS = 5


class RayScaler:
    def __init__(self, gcs: Any, calls: GcsCalls, source: Source) -> None:
        self._gcs = gcs
        self._calls = calls
        self._source = source
        self._types = NodeTypes()

    def node_types(self) -> NodeTypes:
        if self._gcs.internal_kv_get(_VERSION_KEY, _NAMESPACE) != b"1":
            raise ControllerError(
                "this cluster has Ray's autoscaler v1, which knows no labels: attached work adds no node; start the head with "
                "RAY_enable_autoscaler_v2=1"
            )
        self._types = replace(self._source.read(), source=self._source.name)
        return self._types

    def survey(self) -> Survey:
        reply = self._calls(CLUSTER_STATUS, b"")
        bundles = machine_messages.constraint(reply)
        granted = machine_messages.granted(reply)
        return Survey(
            asked=asking.read(bundles),
            coming=Counter(machine_messages.requested(reply)) + Counter(granted),
            granted=granted,
            refused=machine_messages.is_refused(reply),
            failed=machine_messages.failures(reply),
            busy=machine_messages.busy_nodes(reply),
            others=sum(not asking.is_ours(each) for each in bundles),
        )

    def ask(self, wanted: Mapping[str, int], nodes: Mapping[str, str], head: str) -> None:
        """Theirs are read just before they are written back. Who asks in that very moment is lost until they ask again."""
        standing = machine_messages.constraint(self._calls(CLUSTER_STATUS, b""))
        theirs = [each for each in standing if not asking.is_ours(each)]
        bundles = [*theirs, *asking.spell(self._types, wanted, nodes, head)]
        self._gcs.request_cluster_resource_constraint(
            [each.amounts for each in bundles],
            [each.selector for each in bundles],
            [each.nodes for each in bundles],
            timeout_s=_TIMEOUT_SECONDS,
        )
