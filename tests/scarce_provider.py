"""A provider of machines that are processes here, and that runs out of some types: Ray's monitor loads it by its name."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.autoscaler.tags import TAG_RAY_USER_NODE_TYPE

LATE = "late"
"""Instead of a reason: the machine comes when that is no longer written."""


class ScarceProvider(FakeMultiNodeProvider):
    """``scarce`` in its settings is a file: for each type that cannot be had now, why."""

    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: dict[str, str], count: int, resources: Any, labels: Any
    ) -> Any:
        while (reason := self._scarce().get(tags[TAG_RAY_USER_NODE_TYPE])) == LATE:
            time.sleep(0.2)
        if reason is not None:
            raise RuntimeError(reason)
        return super().create_node_with_resources_and_labels(node_config, tags, count, resources, labels)

    def _scarce(self) -> dict[str, str]:
        file = Path(self.provider_config["scarce"])
        found: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return found
