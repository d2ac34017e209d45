"""Placement groups: bundles that are placed all together or not at all, with ordered fallbacks of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remora.errors import InvalidStrategyError
from remora.model.labels import NODE_ID
from remora.model.requests import NodeClass
from remora.model.resources import Resources
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.model.topology import STRATEGIES, Levels, parse_levels


@dataclass(frozen=True)
class Bundle:
    """Resources that lie on one node, and which nodes may be that."""

    resources: Resources
    nodes: NodeClass


@dataclass(frozen=True)
class GroupRequest:
    """A placement group: ``options`` are the bundle lists in the order in which they are tried."""

    options: tuple[tuple[Bundle, ...], ...]
    strategy: str
    namespace: str = "default"
    cluster: str | None = None
    topologies: tuple[Levels, ...] = ()
    """By option, how its bundles lie over domains of node labels; empty where no option says anything."""

    def levels(self, option: int) -> Levels:
        return self.topologies[option] if self.topologies else ()

    def only(self, option: int) -> GroupRequest:
        """Return the same group with one of its options."""
        return replace(self, options=(self.options[option],), topologies=self.topologies[option : option + 1])


def parse_group(
    bundles: Any,
    strategy: str | None = None,
    *,
    topology_strategy: Any = None,
    bundle_label_selector: Any = None,
    tolerations: Any = None,
    fallback_strategy: Any = None,
    namespace: str = "default",
    virtual_cluster: str | None = None,
) -> GroupRequest:
    """A placement group as users write it, in canonical form."""
    levels, by_node = parse_levels(topology_strategy)
    if by_node is not None and strategy is not None:
        raise InvalidStrategyError(
            f"strategy={strategy!r} and {NODE_ID!r}: {by_node!r} in topology_strategy both say how bundles lie over nodes: "
            "give one"
        )
    strategy = by_node or strategy or "PACK"
    if not isinstance(strategy, str) or strategy.upper() not in STRATEGIES:
        raise InvalidStrategyError(f"the placement group strategy {strategy!r} is not known: use {', '.join(STRATEGIES)}")
    tolerated = Tolerations(tolerations)
    options = [_parse_bundles(bundles, bundle_label_selector, tolerated)]
    topologies = [levels]
    example = "for example [{'bundles': [{'GPU': 1}], 'bundle_label_selector': [{'zone': 'b'}]}]"
    if fallback_strategy is not None and (
        isinstance(fallback_strategy, (str, Mapping)) or not isinstance(fallback_strategy, Sequence)
    ):
        raise InvalidStrategyError(f"fallback_strategy must be a list, not {fallback_strategy!r}; {example}")
    for entry in fallback_strategy or ():
        known = {"bundles", "bundle_label_selector", "topology_strategy"}
        if not isinstance(entry, Mapping) or not entry or not known.issuperset(entry):
            raise InvalidStrategyError(
                f"the fallback {entry!r} must be a mapping with 'bundles' and 'bundle_label_selector', or with "
                f"'topology_strategy'; {example}"
            )
        other, by_node = parse_levels(entry["topology_strategy"]) if "topology_strategy" in entry else (levels, None)
        if by_node not in (None, strategy.upper()):
            raise InvalidStrategyError(
                f"the fallback {entry!r} has another strategy over nodes than the group: that is {strategy.upper()!r} for all"
            )
        topologies.append(other)
        options.append(_parse_bundles(entry.get("bundles", bundles), entry.get("bundle_label_selector"), tolerated))
    said = tuple(topologies) if any(topologies) else ()
    return GroupRequest(tuple(options), strategy.upper(), namespace, virtual_cluster, said)


def _parse_bundles(bundles: Any, selectors: Any, tolerations: Tolerations) -> tuple[Bundle, ...]:
    if isinstance(bundles, (str, Mapping)) or not isinstance(bundles, Sequence) or not bundles:
        raise InvalidStrategyError(
            f"bundles must be a list of at least one bundle, not {bundles!r}; for example [{{'CPU': 1}}]"
        )
    parsed = [Resources.parse(bundle, of="a bundle") for bundle in bundles]
    if not all(parsed):
        raise InvalidStrategyError(
            f"the bundle {bundles[parsed.index(next(b for b in parsed if not b))]!r} asks for nothing; for example {{'CPU': 1}}"
        )
    if selectors is None:
        selectors = [None] * len(parsed)
    if isinstance(selectors, (str, Mapping)) or not isinstance(selectors, Sequence) or len(selectors) != len(parsed):
        raise InvalidStrategyError(
            f"bundle_label_selector must be a list with one selector a bundle ({len(parsed)}), not {selectors!r}; for example "
            f"[{{'zone': 'a'}}] * {len(parsed)}"
        )
    return tuple(
        Bundle(resources, NodeClass(LabelSelector(selector), tolerations))
        for resources, selector in zip(parsed, selectors, strict=True)
    )
