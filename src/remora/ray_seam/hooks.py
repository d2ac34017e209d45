"""Install the layer in this process, and take it out again: every attribute of Ray that is replaced is replaced here."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import ray.remote_function
from ray._common import ray_option_utils
from ray._private.auto_init_hook import auto_init_ray
from ray.actor import ActorClass, ActorHandle
from ray.remote_function import RemoteFunction
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from remora.errors import InvalidStrategyError
from remora.model.groups import Bundle
from remora.model.labels import parse_workload_labels
from remora.model.requests import parse_fallbacks
from remora.model.resources import TOKEN_PREFIX, check_resource_name
from remora.model.selectors import LabelSelector
from remora.model.strategies import handle_id, parse_strategies
from remora.model.taints import Tolerations
from remora.ray_seam import blocking, clusters, introspection, names, travel
from remora.ray_seam.late import LateGroup, create_later, late_key
from remora.ray_seam.layer import Layer
from remora.ray_seam.proxy import STOCK, CoreWorkerProxy, Ticket
from remora.ray_seam.shim import ray_with, view_of
from remora.wire.groups import class_of
from remora.wire.options import NEW_OPTIONS, Defaults, is_ours, rewrite_group

_installed: list[Installation] = []  # at most one
_MARK = "_remora_exported_by"
_ABSENT = object()


def current() -> Installation | None:
    return _installed[0] if _installed else None


def install(defaults: Defaults, *, probe: bool = True) -> Installation:
    """Put the layer between user code and Ray, in this process. Twice is once; new defaults take over.

    A worker need not probe: the driver that it works for did.
    """
    uninstall()
    if probe:
        names.probe()
    _installed.append(Installation(Layer(defaults), everywhere=probe))
    return _installed[0]


def uninstall() -> None:
    """Everything that was replaced is as it was."""
    if _installed:
        _installed.pop().undo()


class Installation:
    def __init__(self, layer: Layer, *, everywhere: bool) -> None:
        self.layer = layer
        self._everywhere = everywhere
        self._mark = uuid.uuid4().hex  # functions are pickled with it, and in another process it means nothing
        self._undo: list[Callable[[], None]] = []
        self._exported: weakref.WeakSet[RemoteFunction] = weakref.WeakSet()
        self._exported_actors: weakref.WeakSet[Any] = weakref.WeakSet()
        self._accept_options()
        self._replace(RemoteFunction, "_remote", self._around_task(RemoteFunction._remote))
        self._replace(ActorClass, "_remote", self._around_actor(ActorClass._remote))
        self._replace(ray.remote_function, "pickle_dumps", self._around_pickle(ray.remote_function.pickle_dumps))
        self._worker = view_of(ray._private.worker.global_worker, lambda real: CoreWorkerProxy(real, layer))
        for module in ("ray.remote_function", "ray.actor", "ray.util.placement_group"):
            self._replace(sys.modules[module], "ray", ray_with(self._worker))
        self._take_placement_groups()
        self._say_when_waiting()
        self._replace(
            ray._private.worker, "filter_autoscaler_events", _without_tokens(ray._private.worker.filter_autoscaler_events)
        )
        for owner, name, new in introspection.replacements():
            self._replace(owner, name, new)
        self._undo.append(introspection.with_state_api(self._replace))

    def undo(self) -> None:
        self.layer.stop()
        clusters.forget()
        while self._undo:
            self._undo.pop()()
        # What was exported with the layer in it is exported again, without.
        for function in self._exported:
            function._last_export_cluster_and_job = None
            function.__dict__.pop(_MARK, None)
        for metadata in self._exported_actors:
            travel.leave(metadata.modified_class)
            metadata.last_export_cluster_and_job = None

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        old = vars(owner).get(name, _ABSENT)
        setattr(owner, name, new)
        self._undo.append(functools.partial(_restore, owner, name, old))

    def _accept_options(self) -> None:
        """The tables that ``.options()`` and ``@ray.remote`` validate against."""
        for table in (ray_option_utils.task_options, ray_option_utils.actor_options):
            for name, check in _CHECKS.items():
                old = table.get(name)
                table[name] = ray_option_utils.Option(None, check, default_value=None)
                self._undo.append(functools.partial(_put_back, table, name, old))
            resources = table["resources"]
            table["resources"] = dataclasses.replace(resources, value_constraint=_also(_check_resources, resources))
            self._undo.append(functools.partial(_put_back, table, "resources", resources))
        valid = ray_option_utils.valid_options
        ray_option_utils.valid_options = {**valid, **{name: ray_option_utils.task_options[name] for name in _CHECKS}}
        self._undo.append(lambda: setattr(ray_option_utils, "valid_options", valid))

    def _around_task(self, stock: Any) -> Any:
        @functools.wraps(stock)
        def _remote(function: RemoteFunction, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            if getattr(function, _MARK, None) != self._mark:
                function._last_export_cluster_and_job = None  # exported before we were here: again, with the layer in it
                setattr(function, _MARK, self._mark)
                self._exported.add(function)
            return stock(function, args, kwargs, **self._ticketed(options, is_actor=False))

        return _remote

    def _around_actor(self, stock: Any) -> Any:
        @functools.wraps(stock)
        def _remote(actor_class: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            metadata = actor_class.__ray_metadata__
            if options.get("label_selector") is STOCK:
                return stock(actor_class, args, kwargs, **options)
            if metadata not in self._exported_actors and not metadata.is_cross_language:
                travel.board(metadata.modified_class, self.layer.defaults)
                metadata.last_export_cluster_and_job = None
                self._exported_actors.add(metadata)
            return stock(actor_class, args, kwargs, **self._ticketed(options, is_actor=True))

        return _remote

    def _ticketed(self, options: dict[str, Any], *, is_actor: bool) -> dict[str, Any]:
        """Options that Ray understands, with everything that it does not in a ticket."""
        if options.keys().isdisjoint(_OURS) and not self.layer.defaults.labels:
            return options
        strategy = options.get("scheduling_strategy")
        ours = is_ours(strategy) and not self.layer.names_no_node(strategy)
        if isinstance(options.get("label_selector"), Ticket):
            return options
        asked = {name: options.pop(name) for name in NEW_OPTIONS if name in options}
        if not ours and not any(value is not None for value in asked.values()) and options.get("label_selector") is None:
            if not self.layer.defaults.labels:
                return options
            if not is_actor:  # a call for each task would be too dear for what nobody asked for by name
                options.setdefault("_labels", dict(self.layer.defaults.labels))
                return options
        for name in ("label_selector", "fallback_strategy"):
            asked[name] = options.pop(name, None)
        in_group = isinstance(strategy, PlacementGroupSchedulingStrategy)
        asked["scheduling_strategy"] = None if in_group else strategy
        given = {name: value for name, value in asked.items() if value is not None}
        rewritten = self.layer.rewrite(given, _demand(options))
        lease = rewritten if rewritten.placement.affinities or (rewritten.labels and (is_actor or "labels" in given)) else None
        if lease is not None and lease.placement.affinities and in_group:
            raise InvalidStrategyError(
                "affinity inside a placement group: its bundles lie where they lie already; give either affinity= or a group, "
                "for example scheduling_strategy=actor_affinity(label_in('type', ['cat']))"
            )
        plain = self.layer.ticket(rewritten)
        options["label_selector"] = plain if lease is None else Ticket(plain.class_id, plain.spec, lease)
        if ours:
            node_id = rewritten.node_id
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=True) if node_id else None
        if rewritten.labels:
            options["_labels"] = dict(rewritten.labels)
        return options

    def _around_pickle(self, stock: Any) -> Any:
        def pickle_dumps(function: Any, message: str) -> Any:
            return stock(travel.Luggage(function, self.layer.defaults), message)

        return pickle_dumps

    def _take_placement_groups(self) -> None:
        module = sys.modules["ray.util.placement_group"]
        stock = module.placement_group

        @functools.wraps(stock)
        def placement_group(
            bundles: Any,
            strategy: Any = None,
            *args: Any,
            bundle_label_selector: Any = None,
            tolerations: Any = None,
            fallback_strategy: Any = None,
            **kwargs: Any,
        ) -> Any:
            options = {
                "bundle_label_selector": bundle_label_selector,
                "tolerations": tolerations,
                "fallback_strategy": fallback_strategy,
            }
            auto_init_ray()
            request = rewrite_group(bundles, strategy, options, self.layer.defaults)
            request = dataclasses.replace(request, cluster=clusters.current())

            def attempt() -> Any:
                """The group, or why there is none yet."""
                offer = self.layer.offer_group(request)
                if offer["option"] is None:
                    return offer
                chosen = request.options[offer["option"]]
                with self._creating(chosen):
                    return stock([bundle.resources.to_dict() for bundle in chosen], strategy or "PACK", *args, **kwargs)

            made = attempt()
            if isinstance(made, PlacementGroup):
                return made
            module.validate_placement_group(bundles=bundles, strategy=strategy or "PACK", lifetime=kwargs.get("lifetime"))
            group = LateGroup(late_key(), [dict(bundle) for bundle in bundles])
            what = f"placement group {kwargs.get('name') or (args[0] if args else '')}".rstrip()
            create_later(group, attempt, what, self.layer.stopped)
            return group

        self._rebind(stock, placement_group)
        stock_remove = module.remove_placement_group

        @functools.wraps(stock_remove)
        def remove_placement_group(placement_group: Any) -> None:
            if not (isinstance(placement_group, LateGroup) and placement_group.withdraw()):
                stock_remove(placement_group)

        self._rebind(stock_remove, remove_placement_group)

    def _say_when_waiting(self) -> None:
        """In a virtual cluster: a worker that waits gives its share back."""
        worker = ray._private.worker
        self._replace(worker.Worker, "get_objects", blocking.around_get(worker.Worker.get_objects, self.layer.controller))
        self._rebind(worker.wait, blocking.around_wait(worker.wait, self.layer.controller))

    @contextlib.contextmanager
    def _creating(self, bundles: tuple[Bundle, ...]) -> Any:
        """In this thread a group with these bundles is created: each takes the tokens of its class."""
        groups = self._worker.core_worker.groups
        specs = [class_of(bundle.nodes) for bundle in bundles]
        groups.tickets = [Ticket(spec.class_id, spec) for spec in specs]
        try:
            yield
        finally:
            groups.tickets = None

    def _rebind(self, old: Any, new: Any) -> None:
        """Every module that imported the function by name sees the new one, and the old one again afterwards. In a worker
        user code is imported later, so looking through all modules would only make it start more slowly."""
        own = [sys.modules[name] for name in ("ray.util.placement_group", "ray.util", "ray", "ray._private.worker")]
        for module in list(sys.modules.values()) if self._everywhere else own:
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is old:
                    self._replace(module, name, new)


_OURS = frozenset({*NEW_OPTIONS, "label_selector", "fallback_strategy", "scheduling_strategy"})


def _without_tokens(stock: Any) -> Any:
    """Ray takes whatever waits for a token for unfulfillable and says so every few seconds; we say why it waits, once."""

    def filter_autoscaler_events(lines: list[str]) -> Any:
        return (line for line in stock(lines) if TOKEN_PREFIX not in line)

    return filter_autoscaler_events


def _restore(owner: Any, name: str, old: Any) -> None:
    if old is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, old)


def _put_back(table: dict[str, Any], name: str, old: Any) -> None:
    if old is None:
        table.pop(name, None)
    else:
        table[name] = old


def _demand(options: dict[str, Any]) -> dict[str, float]:
    """What the work needs to be placed at all, for choosing among fallbacks."""
    cpus = options.get("num_cpus")
    demand = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus") or 0, **(options.get("resources") or {})}
    return {name: amount for name, amount in demand.items() if amount}


def _checking(parse: Callable[[Any], Any]) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value is not None and not isinstance(value, Ticket):
            parse(value)

    return check


def _check_strategy(value: Any) -> None:
    if is_ours(value):
        parse_strategies(value)


def _check_resources(value: Any) -> None:
    for name in value or ():
        check_resource_name(name)


def _also(check: Callable[[Any], None], option: Any) -> Callable[[Any], Any]:
    """Our check, then Ray's own."""

    def both(value: Any) -> Any:
        check(value)
        return option.value_constraint(value) if option.value_constraint else None

    return both


_CHECKS: dict[str, Callable[[Any], None]] = {
    "label_selector": _checking(LabelSelector),
    "node_labels": _checking(LabelSelector),
    "fallback_strategy": _checking(parse_fallbacks),
    "tolerations": _checking(Tolerations),
    "labels": _checking(parse_workload_labels),
    "affinity": _checking(lambda value: parse_strategies(None, value)),
    "scheduling_strategy": _checking(_check_strategy),
}


@handle_id.register
def _(handle: ActorHandle) -> str:
    return str(handle._actor_id.hex())
