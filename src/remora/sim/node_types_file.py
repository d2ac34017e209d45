"""Files of node types, and cluster files of ``ray up``: what machines an autoscaler can start."""

from __future__ import annotations

from pathlib import Path

from remora.errors import InvalidInputError, InvalidNodeTypeError
from remora.model.node_types import NodeTypes, parse_node_types
from remora.sim.scenario import load_yaml

FILE_VARIABLE = "REMORA_NODE_TYPES"
"""Names such a file for a cluster whose autoscaler does not say what it can start; on the head node."""


def load_node_types(path: str | Path) -> NodeTypes:
    """The types of a file; those that cannot be read are in its ``problems``, each with the place in the file in front."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidNodeTypeError(
            f"the node types {str(path)!r} cannot be read ({error}); it is a file such as "
            "{node_types: {web: {resources: {CPU: 4}, max_workers: 10}}}"
        ) from None
    try:
        found = parse_node_types(load_yaml(text, str(path)))
    except InvalidNodeTypeError as error:
        raise InvalidNodeTypeError(f"{path}: {error}") from None
    except InvalidInputError as error:
        raise InvalidNodeTypeError(str(error)) from None
    return NodeTypes(found.types, found.most, tuple(f"{path}: {problem}" for problem in found.problems))
