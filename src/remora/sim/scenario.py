"""Scenario files: a cluster, what arrives over virtual time, and what happens to the nodes meanwhile.

    name: cats-and-dogs
    nodes:            [{id: n1, count: 4, resources: {CPU: 4}, labels: {zone: "z{i%2}"}, taints: {}}]
    arrivals:         [{at: 0, name: cat, kind: actor, count: 4, every: 1, resources: {CPU: 1}, runs_for: 60}]
    placement_groups: [{at: 5, name: gang, bundles: [{CPU: 1}], strategy: PACK}]
    virtual_clusters: [{at: 0, name: job-1, spec: {flexible_resource_min: {CPU: 2}}, priority: 0, lasts: 30}]
    events:           [{at: 9, remove_node: n1-0}, {at: 9, taint: {node: n1-1, taints: {broken: "true"}}}]
    node_types:       {gpu: {resources: {CPU: 8, GPU: 1}, max_workers: 4, start_seconds: 60, idle_seconds: 300}}
    max_workers: 10
    until: 100

``runs_for`` counts from the placement, and again after a failure; a virtual cluster ``lasts`` from when it is READY. What
happens at one moment happens in this order: work ends, events, virtual clusters, placement groups, arrivals. With
``node_types`` machines are started for what has waited for ``scale_every`` seconds, join after ``start_seconds``, and end after
``idle_seconds`` with nothing on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from remora.errors import InvalidScenarioError
from remora.model.labels import parse_label_keys, parse_labels
from remora.model.node_types import NodeTypes, parse_node_types
from remora.model.taints import parse_taints
from remora.sim.entries import (
    CLUSTER_KEYS,
    GROUP_KEYS,
    WORK_KEYS,
    ClusterOptions,
    Entry,
    GroupOptions,
    NodeSpec,
    WorkOptions,
    read_cluster,
    read_entry,
    read_group,
    read_nodes,
    read_work,
)
from remora.sim.fields import MOST_COPIES, Fields, at_path, fill, is_template, show, unknown

_KEYS = (
    "name",
    "description",
    "seed",
    "nodes",
    "arrivals",
    "placement_groups",
    "virtual_clusters",
    "events",
    "node_types",
    "max_workers",
    "scale_every",
    "until",
)
SCALE_EVERY = 1.0
"""How often the machines are looked at, in seconds, which is also how long demand has to stand before one is started for it."""
ACTIONS = ("add_node", "remove_node", "taint", "untaint", "label", "unlabel", "fail")
_EVENT = "{at: 9, remove_node: n1}"


@dataclass(frozen=True)
class Event:
    """One change to the cluster. ``node`` is the node that joins; ``subject`` a node or, to fail, a workload."""

    path: str
    at: float
    action: str
    subject: str
    node: NodeSpec | None = None
    labels: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A scenario file, read and checked."""

    name: str
    description: str
    seed: int
    until: float | None
    nodes: tuple[NodeSpec, ...]
    arrivals: tuple[Entry[WorkOptions], ...]
    placement_groups: tuple[Entry[GroupOptions], ...]
    virtual_clusters: tuple[Entry[ClusterOptions], ...]
    events: tuple[Event, ...]
    types: NodeTypes | None = None
    scale_every: float = SCALE_EVERY


def shipped() -> dict[str, str]:
    """The scenarios that come with Remora: name to YAML text."""
    folder = resources.files("remora.sim") / "scenarios"
    found = {path.name.removesuffix(".yaml"): path for path in folder.iterdir() if path.name.endswith(".yaml")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def load_scenario(source: str | Path) -> Scenario:
    """A file, or the name of a shipped scenario."""
    path = Path(source)
    if path.is_file():
        try:
            return parse_scenario(path.read_text(encoding="utf-8"), str(source), path.stem)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidScenarioError(f"{source}: it cannot be read: {error}") from None
    ready = shipped()
    if str(source) in ready:
        return parse_scenario(ready[str(source)], str(source), str(source))
    if path.suffix in (".yaml", ".yml", ".json") or len(path.parts) > 1:
        raise InvalidScenarioError(f"there is no scenario file {str(source)!r}; the shipped ones are {', '.join(ready)}")
    raise InvalidScenarioError(f"there is no file {str(source)!r}, and {unknown('shipped scenario', str(source), ready)}")


def parse_scenario(text: str, source: str = "scenario", name: str = "scenario") -> Scenario:
    """The text of a scenario file; every refusal begins with ``source`` and the place in it."""
    value = load_yaml(text, source)
    try:
        scenario = _read(value, name)
        _check_names(scenario)
    except InvalidScenarioError as error:
        raise InvalidScenarioError(f"{source}: {error}") from None
    return scenario


def load_yaml(text: str, source: str) -> Any:
    """The value of a YAML text; every refusal begins with ``source``."""
    try:
        return yaml.load(text, _StrictLoader)  # noqa: TID251 - a SafeLoader that also refuses repeated keys
    except RecursionError:
        raise InvalidScenarioError(f"{source}: it is nested too deeply to be read") from None
    except yaml.YAMLError as error:
        raise InvalidScenarioError(f"{source}: {_yaml_flaw(error)}") from None


def with_seed(scenario: Scenario, seed: int) -> Scenario:
    return replace(scenario, seed=seed)


def with_types(scenario: Scenario, types: NodeTypes) -> Scenario:
    return replace(scenario, types=types)


def _read(value: Any, name: str) -> Scenario:
    fields = Fields(value, "", _KEYS, "{nodes: [{id: n1, resources: {CPU: 4}}], arrivals: [{name: t, resources: {CPU: 1}}]}")
    nodes = [
        node for path, entry in fields.items("nodes", "[{id: n1, resources: {CPU: 4}}]") for node in read_nodes(entry, path)
    ]
    work, group, cluster = "{at: 0, name: cat}", "{at: 0, name: gang, bundles: [{CPU: 1}]}", "{at: 0, name: job-1}"
    return Scenario(
        name=fields.text("name", name),
        description=fields.text("description", " ").strip(),
        seed=fields.whole("seed", 0),
        until=fields.maybe_seconds("until"),
        nodes=tuple(nodes),
        arrivals=tuple(
            read_entry(entry, path, WORK_KEYS, "runs_for", work, read_work)
            for path, entry in fields.items("arrivals", f"[{work}]")
        ),
        placement_groups=tuple(
            read_entry(entry, path, GROUP_KEYS, "runs_for", group, read_group)
            for path, entry in fields.items("placement_groups", f"[{group}]")
        ),
        virtual_clusters=tuple(
            read_entry(entry, path, CLUSTER_KEYS, "lasts", cluster, read_cluster)
            for path, entry in fields.items("virtual_clusters", f"[{cluster}]")
        ),
        events=tuple(event for path, entry in fields.items("events", f"[{_EVENT}]") for event in _read_events(entry, path)),
        types=_read_types(fields),
        scale_every=fields.seconds("scale_every", SCALE_EVERY, above_zero=True),
    )


def _read_types(fields: Fields) -> NodeTypes | None:
    if not fields.has("node_types"):
        if fields.has("max_workers"):
            raise fields.fail("max_workers", "limits nothing without node_types", "10, with node_types: {web: ...}")
        return None
    with at_path("node_types"):
        found = parse_node_types({"node_types": fields.raw("node_types"), "max_workers": fields.raw("max_workers")})
    if found.problems:
        raise InvalidScenarioError(found.problems[0])
    return found


def _read_events(value: Any, path: str) -> list[Event]:
    fields = Fields(value, path, ("at", "count", "every", *ACTIONS), _EVENT)
    actions = [action for action in ACTIONS if fields.has(action)]
    if len(actions) != 1:
        raise InvalidScenarioError(
            f"{path}: {show(value)} names {len(actions)} things to do: it must be one of {', '.join(ACTIONS)}; "
            f"for example {_EVENT}"
        )
    action, at, every = actions[0], fields.seconds("at"), fields.seconds("every", 0.0)
    count = fields.whole("count", 1, least=1, most=MOST_COPIES)
    if count > 1 and not is_template(fields.raw(action)):
        raise InvalidScenarioError(f"{path}.count: {count} copies of one event do the same; for example remove_node: n-{{i}}")
    found = []
    for index in range(count):
        with at_path(fields.at(action)):
            one = Fields(fill(fields.value, index), path, fields.value, _EVENT)
            found.append(_read_event(one, action, at + index * every))
    return found


def _read_event(fields: Fields, action: str, at: float) -> Event:
    path = fields.at(action)
    if action in ("remove_node", "fail"):
        return Event(path, at, action, fields.text(action, example="n1" if action == "remove_node" else "cat-0"))
    if action == "add_node":
        nodes = read_nodes(fields.raw(action), path)
        if len(nodes) > 1 or "count" in fields.raw(action):
            raise InvalidScenarioError(
                f"{path}.count: it belongs to the event; for example {{at: 9, count: 2, add_node: {{id: n-{{i}}}}}}"
            )
        return Event(path, at, action, nodes[0].node_id, nodes[0])
    what = {"taint": "taints", "untaint": "keys", "label": "labels", "unlabel": "keys"}[action]
    example = f"{action}: {{node: n1, {what}: {'[k]' if what == 'keys' else '{k: v}'}}}"
    inner = Fields(fields.raw(action), path, ("node", what), example)
    subject = inner.text("node", example="n1")
    if not inner.has(what) or not inner.raw(what):
        raise InvalidScenarioError(f"{inner.at(what)}: it is missing; for example {example}")
    with at_path(inner.at(what)):
        if what == "keys":
            return Event(path, at, action, subject, keys=parse_label_keys(inner.raw(what)))
        parse = parse_taints if what == "taints" else parse_labels
        return Event(path, at, action, subject, labels=parse(inner.raw(what)))


# Names: everything that is referred to is defined somewhere, so that a slip of the pen is not an hour of waiting.


def _check_names(scenario: Scenario) -> None:
    _check_unique("node", (node.node_id for node in scenario.nodes))
    clusters = list(_names(scenario.virtual_clusters))
    _check_unique("virtual cluster", clusters)
    nodes = {node.node_id for node in scenario.nodes} | {event.subject for event in scenario.events if event.node}
    workloads = dict.fromkeys(_names(scenario.arrivals))
    for event in scenario.events:
        if event.action == "fail":
            _check_known(event.path, "workload", event.subject, workloads)
        elif event.node is None and not _is_machine(scenario, event.subject):
            _check_known(event.path, "node", event.subject, nodes)
    for entry in scenario.virtual_clusters:
        for index in {0, entry.count - 1}:
            parent = entry.options(index).parent
            if parent is not None:
                _check_known(f"{entry.path}.parent", "virtual cluster", parent, clusters)
    entries: tuple[Entry[Any], ...] = (*scenario.arrivals, *scenario.placement_groups)
    for work in entries:
        for index in {0, work.count - 1}:
            options: WorkOptions | GroupOptions = work.options(index)
            if options.virtual_cluster is not None:
                _check_known(f"{work.path}.virtual_cluster", "virtual cluster", options.virtual_cluster, clusters)
            if isinstance(options, WorkOptions):
                for mates in options.strategies.mates:
                    for name in mates.names:
                        _check_known(mates.path, "workload", name, workloads)


def _is_machine(scenario: Scenario, name: str) -> bool:
    """Return whether that is what a machine will be called that is started."""
    node_type, _, number = name.rpartition("-")
    return scenario.types is not None and node_type in scenario.types and number.isdigit()


def _names(entries: Iterable[Entry[Any]]) -> Iterable[str]:
    return (entry.name_of(index) for entry in entries for index in range(entry.count))


def _check_unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidScenarioError(f"there are two {what}s named {name!r}: names are unique; for example {name}-2")
        seen.add(name)


def _check_known(path: str, what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InvalidScenarioError(f"{path}: {unknown(what, name, known)}")


class _StrictLoader(yaml.SafeLoader):
    """A repeated key would silently lose the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for index, key in enumerate(keys) if key in keys[:index]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} stands here twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _yaml_flaw(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{where}it is not YAML: {problem}"
