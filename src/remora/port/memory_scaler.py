"""An autoscaler in memory, over the cluster in memory: it starts what is asked for and ends what is idle when a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remora.errors import InvalidNodeTypeError
from remora.model.node_types import NodeTypes
from remora.model.taints import taint_label
from remora.port.contract import NodeView
from remora.port.memory_port import MemoryPort
from remora.port.scaler import Failure, Request, Survey
from remora.wire.tokens import is_in_group, is_token


@dataclass
class MemoryScaler:
    """``asked`` is what stands in our name, ``asks`` every request that was made. ``out_of`` are types of which none is
    granted: what is begun of them stays begun."""

    port: MemoryPort
    types: NodeTypes | None
    asked: dict[str, Request] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    refused: bool = False
    asks: list[dict[str, int]] = field(default_factory=list)
    coming: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    out_of: set[str] = field(default_factory=set)
    made: int = 0

    def node_types(self) -> NodeTypes:
        if self.types is None:
            raise InvalidNodeTypeError("there are no types")
        return self.types

    def survey(self) -> Survey:
        counts = {name: self.coming.count(name) for name in self.coming}
        granted = {name: count for name, count in counts.items() if name not in self.out_of}
        others = len(self.others)
        return Survey(dict(self.asked), counts, tuple(self.failed), frozenset(self.busy()), others, granted, self.refused)

    def ask(self, wanted: Mapping[str, int], nodes: Mapping[str, str], head: str) -> None:
        self.asks.append(dict(wanted))
        self.asked = {
            name: Request(count, frozenset(each for each, kind in nodes.items() if kind == name))
            for name, count in wanted.items()
        }

    # What only a test can do

    def start(self) -> dict[str, int]:
        """Begin to start what is asked for and not there yet. Return how many of each type."""
        begun: dict[str, int] = {}
        if self.refused:
            return begun
        for name, request in self.asked.items():
            there = [view for view in self._views() if view.node_type == name and view.node_id not in request.known]
            lack = request.count - len(there) - self.coming.count(name)
            if lack > 0:
                self.coming += [name] * lack
                begun[name] = lack
        return begun

    def arrive(self, most: int = 1000) -> list[str]:
        """Machines that were begun and can be had join. Return their ids."""
        joined = []
        arriving = [name for name in self.coming if name not in self.out_of][:most]
        for name in arriving:
            each = self.types.get(name) if self.types is not None else None
            assert each is not None, name
            self.made += 1
            labels = {**dict(each.labels), **{taint_label(key): value for key, value in each.taints}}
            self.port.join(f"{name}-{self.made}", each.resources.to_dict(), labels, name)
            joined.append(f"{name}-{self.made}")
            self.coming.remove(name)
        return joined

    def busy(self) -> list[str]:
        """Return the nodes on which anything is in use, our own holds too."""
        return [
            view.node_id
            for view in self._views()
            if any(view.available.get(name, 0.0) < amount for name, amount in view.total.items())
        ]

    def end_idle(self) -> list[str]:
        """End every machine on which nothing is in use. Return their ids."""
        busy = self.busy()
        idle = [view.node_id for view in self._views() if view.node_type and view.node_id not in busy]
        for node_id in idle:
            self.port.leave(node_id)
        return idle

    def tokens(self, node_id: str) -> list[str]:
        """Return the tokens of a node."""
        view = next(view for view in self._views() if view.node_id == node_id)
        return sorted(name for name in view.total if is_token(name) and not is_in_group(name))

    def _views(self) -> tuple[NodeView, ...]:
        return self.port.observe().nodes
