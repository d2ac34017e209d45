"""The stage of the demo: the nodes of the cluster, the actors on them, and a picture of both."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from examples.demo.picture import WIDTH, Box, picture
from rich.console import Console
from rich.text import Text

import remora

START_SECONDS = 60.0


class Seat:
    """An actor that knows where it is."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def where(seconds: float) -> str:
    """A task that takes a while and says where it ran."""
    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


class Stage:
    """``ids`` are the nodes: name to id, in the order in which they are drawn."""

    def __init__(self, ids: Mapping[str, str], address: str) -> None:
        self.ids = ids
        self.address = address
        self._console = Console(highlight=False, width=WIDTH)
        self._actors: dict[str, Any] = {}

    def title(self, number: int, text: str) -> None:
        self._console.print(Text(f"\n{number}. {text}", style="bold"))

    def seat(self, name: str, **options: Any) -> Any:
        """Start an actor; where it goes is what the options say, and nobody else."""
        self._actors[name] = ray.remote(Seat).options(**{"num_cpus": 0, **options}).remote()
        return self._actors[name]

    def run(self, names: Iterable[str], **options: Any) -> list[tuple[str, str]]:
        """Tasks, each with the id of the node where it ran."""
        task = ray.remote(where).options(scheduling_strategy="SPREAD", **options)
        return self.found({name: task.remote(0.3) for name in names})

    def show(self, text: str, others: Iterable[tuple[str, str]] = (), waiting: Iterable[str] = ()) -> None:
        """Everybody on their nodes, as they say themselves; ``others`` are no actors of ours."""
        asked = {name: actor.node.remote() for name, actor in self._actors.items() if name not in waiting}
        seats = [*self.found(asked), *others]
        nodes = {node["node_id"]: node for node in remora.status()["nodes"]}
        boxes = [
            Box(name, _notes(nodes[node_id]), tuple(who for who, where in seats if where == node_id))
            for name, node_id in self.ids.items()
        ]
        self._console.print(Text(picture(boxes)))
        self.say(text)

    def say(self, text: str) -> None:
        self._console.print(Text(textwrap.fill(" ".join(text.split()), WIDTH, initial_indent="→ ", subsequent_indent="  ")))

    def why(self, name: str) -> str:
        return remora.explain(self._actors[name]).reason

    def clear(self) -> None:
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()

    def found(self, references: Mapping[str, Any]) -> list[tuple[str, str]]:
        return list(zip(references, ray.get(list(references.values()), timeout=START_SECONDS), strict=True))


def _notes(node: Mapping[str, Any]) -> tuple[str, str]:
    size = ", ".join(f"{amount:g} {name}" for name, amount in node["total"].items())
    return size, ", ".join(f"taint {key}" for key in node["taints"])
