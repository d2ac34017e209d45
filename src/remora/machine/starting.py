"""What ``remora start`` turns into: one ``ray start`` with every label on it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from remora.errors import InvalidInputError
from remora.machine.defaults import Ask, default_labels, is_head
from remora.machine.written import isolation_of, labels_in_file, labels_of, taints_of
from remora.model.labels import show_labels
from remora.sim.node_types_file import load_node_types


def start_labels(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    ask: Ask,
    *,
    labels: Sequence[str] = (),
    labels_file: Path | None = None,
    taints: Sequence[str] = (),
    rare_resources: Sequence[str] = (),
    devices: Path = Path("/dev"),
) -> dict[str, str]:
    """All labels of the node: flags over the file, both over defaults. Raises before the cloud is asked."""
    if rare_resources and not is_head(arguments):
        raise InvalidInputError(
            f"--rare-resource-isolation {','.join(rare_resources)} is said once for the whole cluster, by its head; "
            "for example remora start --head --rare-resource-isolation gpu"
        )
    given = labels_in_file(labels_file) if labels_file is not None else {}
    given |= labels_of(labels) | taints_of(taints) | isolation_of(rare_resources)
    return given | default_labels(given, arguments, environ, ask, devices)


def types_file(arguments: Sequence[str], path: Path) -> str:
    """Return where a file of node types lies, for whoever reads it later. Raises when nothing of it could be read, or part of
    it: whoever starts a cluster can still repair it."""
    if not is_head(arguments):
        raise InvalidInputError(
            f"--node-types {path} is said once for the whole cluster, by its head; "
            "for example remora start --head --node-types types.yaml"
        )
    problems = load_node_types(path).problems
    if problems:
        raise InvalidInputError("; ".join(problems))
    return str(path.resolve())


def start_command(arguments: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """The command line. The labels come first: an option at the end that lacks its value must not swallow them."""
    # As key=value, not JSON: only this form may name keys under ray.io/ and be empty.
    ours = [f"--labels={show_labels(labels)}"] if labels else []
    return [*ray_command(), "start", *ours, *arguments]


def ray_command(python: str | None = None) -> list[str]:
    """The ``ray`` that belongs to this Python, whatever the path says."""
    python = python or sys.executable
    beside = Path(python).with_name("ray")
    return [str(beside)] if beside.is_file() else [python, "-m", "ray.scripts.scripts"]
