"""What users write in ``.options(...)``, with the defaults of their job, as one class to take a token of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remora.errors import InvalidStrategyError
from remora.model.groups import Bundle, GroupRequest, parse_group
from remora.model.labels import ACTOR_ID, Labels, as_label_value, parse_workload_labels
from remora.model.requests import NodeClass, Request, parse_fallbacks
from remora.model.resources import EMPTY, Resources
from remora.model.selectors import LabelMatchExpression, LabelSelector
from remora.model.spreading import SpreadSchedulingStrategy, parse_spreads
from remora.model.strategies import Affinity, Placement, parse_strategies
from remora.model.taints import Tolerations, rare_taints
from remora.wire.asks import Ask
from remora.wire.classes import ClassSpec

NEW_OPTIONS = ("tolerations", "labels", "node_labels", "affinity")
"""The options that Ray does not know; ``label_selector`` and ``fallback_strategy`` it knows, with fewer spellings."""

_ACTOR_DIGITS = 32
_HEX = frozenset("0123456789abcdef")


MADE_FROM = "remora.io/made-from"
"""The label of an actor that is spread among those of its class: the name of the class."""

_POLICIES = ("DEFAULT", "SPREAD")


@dataclass(frozen=True)
class Defaults:
    """What ``remora.init(tolerations=, label_selector=, labels=, spread=)`` says for everything that a job submits; ``spreads``
    for actors only.

    ``rare``: the cluster's rare resources, which whoever asks for one may use. ``ignores_selectors``: on a single-node Ray
    that was started without labels nothing could match.
    """

    label_selector: LabelSelector = field(default_factory=LabelSelector)
    tolerations: Tolerations = field(default_factory=Tolerations)
    labels: Labels = ()
    rare: frozenset[str] = frozenset()
    ignores_selectors: bool = False
    spreads: tuple[SpreadSchedulingStrategy, ...] = ()

    @classmethod
    def parse(cls, label_selector: Any = None, tolerations: Any = None, labels: Any = None, spread: Any = None) -> Defaults:
        return cls(
            LabelSelector(label_selector),
            Tolerations(tolerations),
            parse_workload_labels(labels),
            spreads=parse_spreads(spread),
        )

    def spread(self, options: dict[str, Any], made_from: str, *, in_group: bool = False) -> dict[str, Any]:
        """The options of an actor with what the job says about evenness, unless they say where it goes by themselves;
        ``made_from`` is the name of its class. An actor that nothing else tells apart is spread among those of its class."""
        strategy, affinity = options.get("scheduling_strategy"), options.get("affinity")
        plain = affinity is None and (strategy is None or (isinstance(strategy, str) and strategy in _POLICIES))
        if self.spreads and plain and not in_group:
            among = {} if all(each.labels is not None for each in self.spreads) else {MADE_FROM: as_label_value(made_from)}
            labels = dict(self.labels) if options.get("labels") is None else options["labels"]
            return {**options, "affinity": list(self.spreads), "labels": {**labels, **among}}
        listed = affinity if isinstance(affinity, (list, tuple)) else (affinity,)
        own = any(isinstance(each, SpreadSchedulingStrategy) and each.labels is None for each in (strategy, *listed))
        if own and not options.get("labels") and not self.labels:
            return {**options, "labels": {MADE_FROM: as_label_value(made_from)}}
        return options


@dataclass(frozen=True)
class Rewritten:
    """The class, the node that it names (a hint for Ray), and the labels of the work itself.

    ``lease``: where it goes depends on what else is placed, or others depend on it; then the kernel places it, by ``choices``
    and ``placement``.
    """

    spec: ClassSpec
    node_id: str | None
    labels: Labels
    choices: tuple[NodeClass, ...]
    placement: Placement

    @property
    def lease(self) -> bool:
        return bool(self.labels or self.placement.is_leased)

    def ask(self, kind: str, held: Mapping[str, float], demand: Mapping[str, float], namespace: str, keys: list[str]) -> Ask:
        """What the kernel is asked; ``keys`` are taints that it tolerates besides."""
        placement = self.placement
        request = Request(
            kind=kind,
            resources=Resources.parse(dict(held)),
            demand=Resources.parse(dict(demand)),
            choices=ClassSpec(self.choices).tolerating(keys).choices,
            wishes=placement.node_wishes,
            wished_node=placement.pin.node_id if placement.pin is not None and placement.pin.soft else None,
            affinities=placement.affinities,
            policy=placement.policy,
            namespace=namespace,
            spreads=placement.spreads,
        )
        return Ask(request, self.labels)


def rewrite(options: Mapping[str, Any], defaults: Defaults, resources: Mapping[str, float] | None = None) -> Rewritten:
    """All spellings as one class; ``scheduling_strategy`` is given only if ``is_ours``. Raises an InvalidInputError that
    names what is wrong."""
    placement = parse_strategies(options.get("scheduling_strategy"), options.get("affinity"))
    selector = _selector(options, defaults, pinned=placement.pin is not None and not placement.pin.soft)
    tolerations = Tolerations(options["tolerations"]) if options.get("tolerations") is not None else defaults.tolerations
    choices = [selector, *parse_fallbacks(options.get("fallback_strategy"))]
    terms = placement.node_terms
    pin = placement.pin.node_id if placement.pin is not None and not placement.pin.soft else None
    plain = tuple(dict.fromkeys(NodeClass(choice.also(terms), tolerations, placement.node_any, pin) for choice in choices))
    if placement.node_wishes:
        choices = [choice.also(_hard(placement.node_wishes)) for choice in choices] + choices
    classes = tuple(dict.fromkeys(NodeClass(choice.also(terms), tolerations, placement.node_any, pin) for choice in choices))
    demand = Resources.parse(dict(resources or {})) if len(classes) > 1 else EMPTY
    if defaults.ignores_selectors:
        plain = classes = (NodeClass(LabelSelector(), tolerations, (), pin),)
        demand = EMPTY
    labels = defaults.labels if options.get("labels") is None else parse_workload_labels(options["labels"])
    return Rewritten(ClassSpec(classes, demand), pin, labels, plain, placement)


def is_ours(strategy: Any) -> bool:
    """Whether a scheduling strategy is decided by the class: ours, and those of Ray's that say which nodes are allowed.

    A hard node affinity is one of them: Ray fails it at once when the node does not offer the token (yet).
    """
    kind = type(strategy)
    if kind.__name__ == "NodeAffinitySchedulingStrategy" and not strategy.soft:
        return True
    return kind.__module__.startswith("remora.") or kind.__name__ == "NodeLabelSchedulingStrategy"


def _selector(options: Mapping[str, Any], defaults: Defaults, *, pinned: bool) -> LabelSelector:
    """``node_labels`` is an older spelling of ``label_selector``; both together must both hold. Whoever names a node says
    something else than the job, as Ray Serve does of its controller."""
    given = [options[name] for name in ("label_selector", "node_labels") if options.get(name) is not None]
    if not given:
        return LabelSelector() if pinned else defaults.label_selector
    selector = LabelSelector(given[0])
    return selector.also(LabelSelector(given[1]).terms) if len(given) > 1 else selector


def check_handles(affinities: Iterable[Affinity]) -> None:
    """Raise for affinity to a string that is no actor's id: it would wait for ever, for nobody."""
    for affinity in affinities:
        for term in affinity.expressions:
            wrong = [each for each in term.values if not _is_actor_id(each)] if term.key == ACTOR_ID else []
            if wrong:
                raise InvalidStrategyError(
                    f"affinity to {wrong[0]!r}: that is no actor's id, which has {_ACTOR_DIGITS} hexadecimal digits; give the "
                    f"handle, for example affinity([ray.get_actor({wrong[0]!r})])"
                )


def _is_actor_id(text: str) -> bool:
    return len(text) == _ACTOR_DIGITS and set(text) <= _HEX


def _hard(terms: tuple[LabelMatchExpression, ...]) -> tuple[LabelMatchExpression, ...]:
    return tuple(term.hardened() for term in terms)


def rewrite_group(bundles: Any, strategy: str | None, options: Mapping[str, Any], defaults: Defaults) -> GroupRequest:
    """A placement group as users write it, with the defaults of their job and the tolerations of what it asks for."""
    request = parse_group(bundles, strategy, **options)
    return replace(
        request, options=tuple(tuple(_bundle(bundle, options, defaults) for bundle in option) for option in request.options)
    )


def _bundle(bundle: Bundle, options: Mapping[str, Any], defaults: Defaults) -> Bundle:
    nodes = bundle.nodes
    if not nodes.selector.terms:
        nodes = replace(nodes, selector=defaults.label_selector)
    if options.get("tolerations") is None:
        nodes = replace(nodes, tolerations=defaults.tolerations)
    if defaults.ignores_selectors:
        nodes = replace(nodes, selector=LabelSelector())
    keys = rare_taints(bundle.resources, defaults.rare)
    return replace(bundle, nodes=ClassSpec((nodes,)).tolerating(keys).choices[0])
