"""How the parts of a whole lie over domains: by a strategy for each of some node labels, from the widest to the narrowest.

The first level says over which of its domains the parts are packed or spread; the next says the same of what lies in one of
these; and so on down to the nodes. ``zone`` SPREAD and ``rack`` STRICT_PACK: spread over zones, in each zone in one rack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remora.errors import InvalidLabelError, InvalidStrategyError
from remora.model.labels import NODE_ID, validate_label_key

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
Levels = tuple[tuple[str, str], ...]
"""Label and strategy, the widest first."""

_EXAMPLE = "for example [{'zone': 'SPREAD'}, {'rack': 'STRICT_PACK'}]"


def parse_levels(topology: Any) -> tuple[Levels, str | None]:
    """Return the levels of a ``topology_strategy``, Ray's own mapping or a list of mappings; and the strategy over nodes, where
    it says one."""
    if topology is None:
        return (), None
    listed = [topology] if isinstance(topology, Mapping) else topology
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, Mapping) for each in listed):
        raise InvalidStrategyError(f"topology_strategy={topology!r} is neither a mapping nor a list of mappings; {_EXAMPLE}")
    levels: dict[str, str] = {}
    for key, strategy in (pair for each in listed for pair in each.items()):
        try:
            validate_label_key(key)
        except InvalidLabelError as error:
            raise InvalidStrategyError(f"topology_strategy names {key!r}, which is not a label of nodes: {error}") from None
        if not isinstance(strategy, str) or strategy.upper() not in STRATEGIES:
            raise InvalidStrategyError(
                f"the strategy {strategy!r} over {key!r} is not known: use {', '.join(STRATEGIES)}; {_EXAMPLE}"
            )
        if key in levels:
            raise InvalidStrategyError(f"topology_strategy={topology!r} names {key!r} twice; {_EXAMPLE}")
        levels[key] = strategy.upper()
    by_node = levels.pop(NODE_ID, None)
    return tuple(levels.items()), by_node


def show_levels(levels: Levels) -> str:
    """Return levels as a reason names them: ``in one rack``, ``in different zones``."""
    how = {"STRICT_PACK": "in one {}", "STRICT_SPREAD": "in different {}s"}
    return " and ".join(how[strategy].format(label) for label, strategy in levels if strategy in how)
