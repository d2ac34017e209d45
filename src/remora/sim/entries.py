"""What a scenario file holds, as frozen values: entries that arrive over time, in one or many copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from remora.errors import InvalidScenarioError
from remora.model.groups import parse_group
from remora.model.labels import parse_labels, parse_workload_labels
from remora.model.requests import parse_fallbacks, parse_request
from remora.model.resources import Resources
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations, parse_taints
from remora.model.virtual_clusters import VirtualCluster
from remora.sim.fields import MOST_COPIES, Fields, at_path, fill, is_template, name_of_copy
from remora.sim.strategies_yaml import STRATEGY_KEYS, Strategies, read_strategies

_T = TypeVar("_T")

_COPIES = ("at", "name", "count", "every")
WORK_KEYS = (
    *_COPIES,
    "kind",
    "namespace",
    "resources",
    "labels",
    "label_selector",
    "fallback_strategy",
    "tolerations",
    *STRATEGY_KEYS,
    "virtual_cluster",
    "runs_for",
)
GROUP_KEYS = (
    *_COPIES,
    "bundles",
    "strategy",
    "bundle_label_selector",
    "tolerations",
    "fallback_strategy",
    "virtual_cluster",
    "runs_for",
)
CLUSTER_KEYS = (*_COPIES, "parent", "priority", "spec", "tolerations", "lasts")
NODE_KEYS = ("id", "count", "resources", "labels", "taints")


@dataclass(frozen=True)
class NodeSpec:
    """One node as it joins."""

    node_id: str
    resources: Resources
    labels: Mapping[str, str]
    taints: Mapping[str, str]


@dataclass(frozen=True)
class WorkOptions:
    """What one actor or task asks for."""

    kind: str
    namespace: str
    resources: Resources | None
    labels: Mapping[str, str]
    label_selector: LabelSelector
    fallback_strategy: list[Any] | None
    tolerations: Tolerations
    strategies: Strategies
    virtual_cluster: str | None


@dataclass(frozen=True)
class GroupOptions:
    """What one placement group asks for."""

    bundles: list[Any]
    strategy: str
    bundle_label_selector: Any
    tolerations: Tolerations
    fallback_strategy: Any
    virtual_cluster: str | None


@dataclass(frozen=True)
class ClusterOptions:
    """What one virtual cluster asks for."""

    spec: VirtualCluster
    parent: str | None
    priority: int
    tolerations: Tolerations


@dataclass(frozen=True)
class Entry(Generic[_T]):
    """``count`` copies of one thing, ``every`` so many seconds from ``at``. ``lasts`` counts from when each is placed."""

    path: str
    name: str
    at: float
    count: int
    every: float
    numbered: bool
    lasts: float | None
    raw: Mapping[str, Any]
    read: Callable[[Fields], _T]
    known: tuple[str, ...]
    shared: _T | None

    def name_of(self, index: int) -> str:
        return name_of_copy(self.name, index, self.numbered)

    def time_of(self, index: int) -> float:
        return self.at + index * self.every

    def options(self, index: int) -> _T:
        """Copies that are all alike are read once."""
        return self.shared if self.shared is not None else self._read(index)

    def _read(self, index: int) -> _T:
        with at_path(self.path):
            return self.read(Fields(fill(self.raw, index), self.path, self.known, ""))


def read_entry(
    value: Any, path: str, known: tuple[str, ...], lasts: str, example: str, read: Callable[[Fields], _T]
) -> Entry[_T]:
    """An entry whose first and last copies are known to be well-formed."""
    fields = Fields(value, path, known, example)
    count = fields.whole("count", 1, least=1, most=MOST_COPIES)
    with at_path(fields.at("name")):
        fill(fields.raw("name"), 0)
    templated = any(is_template(entry) for key, entry in fields.value.items() if key != "name")
    entry = Entry(
        path=path,
        name=fields.text("name"),
        at=fields.seconds("at", 0.0),
        count=count,
        every=fields.seconds("every", 0.0),
        numbered=fields.has("count"),
        lasts=fields.maybe_seconds(lasts),
        raw=dict(fields.value),
        read=read,
        known=known,
        shared=None if templated else read(fields),
    )
    if templated:
        for index in {0, count - 1}:
            entry.options(index)
    return entry


def read_nodes(value: Any, path: str) -> list[NodeSpec]:
    fields = Fields(value, path, NODE_KEYS, "{id: n1, resources: {CPU: 4}}")
    numbered = fields.has("count")
    count = fields.whole("count", 1, least=1, most=MOST_COPIES)
    node_id = fields.text("id", example="n1")
    alike = None if any(is_template(fields.raw(key)) for key in ("labels", "taints")) else _read_node(fields)
    found = []
    for index in range(count):
        with at_path(path):
            resources, labels, taints = alike or _read_node(Fields(fill(fields.value, index), path, NODE_KEYS, ""))
            found.append(NodeSpec(name_of_copy(node_id, index, numbered), resources, labels, taints))
    return found


def _read_node(fields: Fields) -> tuple[Resources, dict[str, str], dict[str, str]]:
    with at_path(fields.at("resources")):
        resources = Resources.parse(fields.raw("resources"))
    with at_path(fields.at("labels")):
        labels = dict(parse_labels(fields.raw("labels")))
    with at_path(fields.at("taints")):
        taints = dict(parse_taints(fields.raw("taints")))
    return resources, labels, taints


def read_work(fields: Fields) -> WorkOptions:
    kind = fields.text("kind", "task", example="actor")
    with at_path(fields.at("kind")):
        parse_request(kind)
    with at_path(fields.at("resources")):
        resources = Resources.parse(fields.raw("resources")) if fields.has("resources") else None
    with at_path(fields.at("labels")):
        labels = dict(parse_workload_labels(fields.raw("labels")))
    with at_path(fields.at("label_selector")):
        selector = LabelSelector(fields.raw("label_selector"))
    with at_path(fields.at("fallback_strategy")):
        parse_fallbacks(fields.raw("fallback_strategy"))
    return WorkOptions(
        kind=kind,
        namespace=fields.text("namespace", "default"),
        resources=resources,
        labels=labels,
        label_selector=selector,
        fallback_strategy=fields.raw("fallback_strategy"),
        tolerations=_read_tolerations(fields),
        strategies=read_strategies(fields),
        virtual_cluster=fields.maybe_text("virtual_cluster", example="job-1"),
    )


def read_group(fields: Fields) -> GroupOptions:
    bundles, strategy = fields.raw("bundles"), fields.text("strategy", "PACK", example="STRICT_SPREAD")
    selectors, fallbacks = fields.raw("bundle_label_selector"), fields.raw("fallback_strategy")
    # Each in turn, so that the refusal names the key that is wrong.
    with at_path(fields.at("bundles")):
        parse_group(bundles)
    with at_path(fields.at("strategy")):
        parse_group(bundles, strategy)
    with at_path(fields.at("bundle_label_selector")):
        parse_group(bundles, strategy, bundle_label_selector=selectors)
    with at_path(fields.at("fallback_strategy")):
        parse_group(bundles, strategy, fallback_strategy=fallbacks)
    tolerations = _read_tolerations(fields)
    cluster = fields.maybe_text("virtual_cluster", example="job-1")
    return GroupOptions(bundles, strategy, selectors, tolerations, fallbacks, cluster)


def read_cluster(fields: Fields) -> ClusterOptions:
    with at_path(fields.at("spec")):
        spec = VirtualCluster.parse({} if fields.raw("spec") is None else fields.raw("spec"))
    parent = fields.maybe_text("parent", example="job-1")
    if parent is not None and parent == fields.raw("name"):
        raise InvalidScenarioError(
            f"{fields.at('parent')}: {parent!r} is its own parent; leave parent out for the whole cluster"
        )
    return ClusterOptions(spec, parent, fields.whole("priority", 0), _read_tolerations(fields))


def _read_tolerations(fields: Fields) -> Tolerations:
    with at_path(fields.at("tolerations")):
        return Tolerations(fields.raw("tolerations"))
