"""What the controller remembers beyond its own life: classes, and what was said about nodes at run time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from remora.seam.port import Port
from remora.wire.classes import ClassSpec

_CLASS = "class/"
_NODE = "node/"


@dataclass
class Overrides:
    """Labels and taints set at run time on one node; None takes a static one away."""

    labels: dict[str, str | None] = field(default_factory=dict)
    taints: dict[str, str | None] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps({"labels": self.labels, "taints": self.taints}, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Overrides:
        return cls(**json.loads(data))


class Memory:
    """Classes by id and overrides by node id, in the cluster's own key-value store."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.classes = {key.removeprefix(_CLASS): self._class(key) for key in port.keys(_CLASS)}
        self.overrides = {key.removeprefix(_NODE): self._overrides(key) for key in port.keys(_NODE)}

    def add_class(self, spec: ClassSpec) -> None:
        self._port.put(_CLASS + spec.class_id, spec.encode())
        self.classes[spec.class_id] = spec

    def forget_class(self, class_id: str) -> None:
        self._port.put(_CLASS + class_id, None)
        del self.classes[class_id]

    def set_overrides(self, node_id: str, overrides: Overrides) -> None:
        self._port.put(_NODE + node_id, overrides.encode())
        self.overrides[node_id] = overrides

    def forget_node(self, node_id: str) -> None:
        if self.overrides.pop(node_id, None) is not None:
            self._port.put(_NODE + node_id, None)

    def forget_all(self) -> None:
        for key in [*self._port.keys(_CLASS), *self._port.keys(_NODE)]:
            self._port.put(key, None)
        self.classes.clear()
        self.overrides.clear()

    def _class(self, key: str) -> ClassSpec:
        return ClassSpec.decode(self._port.get(key) or b"")

    def _overrides(self, key: str) -> Overrides:
        return Overrides.decode(self._port.get(key) or b"{}")
