"""The layer of one process: the job's defaults, the classes that are known to exist, the way to the controller."""

from __future__ import annotations

import time
from typing import Any

import ray

from remora.ray_seam.proxy import Ticket
from remora.ray_seam.ray_port import RayPort
from remora.wire.classes import ClassSpec
from remora.wire.options import Defaults, Rewritten, rewrite
from remora.wire.tokens import class_token

CONTROLLER = "remora-controller"
NAMESPACE = "remora"

_SEEN_SECONDS = 5.0


class Layer:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self._ensured: set[str] = set()
        self._seen: set[str] = set()
        self._controller: Any = None
        self._known: dict[str, Rewritten] = {}
        plain = rewrite({}, defaults)
        self._plain = Ticket(plain.spec.class_id, plain.spec)

    def default(self) -> Ticket:
        """For work that says nothing about where it runs."""
        return self._plain

    def rewrite(self, options: dict[str, Any], resources: dict[str, float]) -> Rewritten:
        """As ``wire.options.rewrite``; the same options are worked out once."""
        key = repr(sorted(options.items())) + (repr(sorted(resources.items())) if options.get("fallback_strategy") else "")
        found = self._known.get(key)
        if found is None:
            found = rewrite(options, self.defaults, resources)
            if len(self._known) < 10_000 and " at 0x" not in key:  # an object that shows its address has no lasting key
                self._known[key] = found
        return found

    def ensure(self, spec: ClassSpec) -> None:
        """One way, and only the first time in this process: no call on the way of a task."""
        if spec.class_id not in self._ensured:
            self.controller().ensure.remote(spec.encode())
            self._ensured.add(spec.class_id)

    def ensure_first(self, spec: ClassSpec) -> None:
        """Returns when the class's token can be seen: Ray does not look again at a placement group that it found infeasible."""
        if spec.class_id in self._seen:
            return
        token = class_token(spec.class_id)
        nodes = set(ray.get(self.controller().ensure.remote(spec.encode())))
        self._ensured.add(spec.class_id)
        deadline = time.monotonic() + _SEEN_SECONDS
        while nodes and time.monotonic() < deadline:
            seen = {view.node_id for view in RayPort().observe().nodes if token in view.total}
            if nodes <= seen:
                self._seen.add(spec.class_id)
                return
            time.sleep(0.01)

    def controller(self) -> Any:
        if self._controller is None:
            self._controller = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
        return self._controller
