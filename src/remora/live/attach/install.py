"""Install the layer in this process, and take it out again: every attribute that is replaced, Ray's or not, is replaced here.

Every worker does so before its first task, and most never submit anything. So this module and what it imports are light; what
decides is imported with the first thing that is submitted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import sys
import threading
import uuid
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray.remote_function
from ray._common import ray_option_utils, signature
from ray._private import function_manager
from ray._private.state import state
from ray.actor import ActorClass, ActorHandle
from ray.remote_function import RemoteFunction
from ray.util import serialization_addons

from remora.live import installed, releases
from remora.live.attach import serializers, travel
from remora.live.attach.core_worker import CoreWorkerWithTokens, latest
from remora.live.attach.misspelled import with_what_was_meant
from remora.live.attach.ray_views import ray_with, view_of
from remora.live.attach.replay import Replays, copied, flattened, is_rays
from remora.live.clusters import scopes
from remora.live.inspect import narrow
from remora.live.link import CONTROLLER_CLASS
from remora.live.submit.tickets import STOCK, Ticket
from remora.live.worker import blocking
from remora.live.worker.guard import without_hidden
from remora.model.resources import TOKEN_PREFIX, check_resource_name
from remora.wire.tokens import is_token

if TYPE_CHECKING:
    from remora.live.submit.submitter import Submitter
    from remora.wire.rewrite import Defaults

_REPLAYS = "_remora_replays"
_MISSING: Any = object()
_INFEASIBLE = "There are tasks with infeasible resource requests"
_NO_ACCELERATOR = frozenset({"CPU", "memory"})
_CHECKED = ("label_selector", "node_labels", "fallback_strategy", "tolerations", "labels", "affinity", "scheduling_strategy")


def install(defaults: Defaults) -> Installation:
    """Put the layer between user code and Ray, in this process. Twice is once; new defaults take over."""
    from remora.live import names

    uninstall()
    names.probe()
    releases.warn_of_newer()
    installation = Installation(pickle.dumps(defaults), everywhere=True)
    installed.replace(installation)
    return installation


def arrive(packed: bytes) -> None:
    """The same in a worker, unless it was done. It need not probe: the driver that it works for did."""
    if installed.current() is None:
        installed.replace(Installation(packed, everywhere=False))


def uninstall() -> None:
    """Everything that was replaced is as it was."""
    installation = installed.current()
    installed.replace(None)
    if isinstance(installation, Installation):
        installation.undo()


class Installation:
    """``packed`` is what travels on to other workers: the job's defaults, pickled. ``replaced`` lists every attribute that is
    replaced in this process: owner and name."""

    def __init__(self, packed: bytes, *, everywhere: bool) -> None:
        self._packed = packed
        self._everywhere = everywhere
        self._submitter: Submitter | None = None
        self._lock = threading.Lock()
        self.replaced: list[tuple[Any, str]] = []
        self._exported: weakref.WeakSet[RemoteFunction] = weakref.WeakSet()
        self._exported_actors: weakref.WeakSet[Any] = weakref.WeakSet()
        with contextlib.ExitStack() as undo:  # puts back what was replaced, if something fails on the way
            self._undo = undo
            self._replace_all()
            self._undo = undo.pop_all()

    def _replace_all(self) -> None:
        self._accept_options()
        self._replace(RemoteFunction, "_remote", self._around_task(RemoteFunction._remote))
        self._replace(ActorClass, "_remote", self._around_actor(ActorClass._remote))
        self._replace(signature, "recover_args", without_hidden(signature.recover_args))
        self._replace(ActorHandle, "remora_id", property(lambda handle: handle._actor_id.hex()))
        for module in (ray.remote_function, function_manager):  # where functions are exported, and classes of actors
            self._replace(module, "pickle_dumps", self._around_pickle(module.pickle_dumps))
        self._worker, renew = view_of(ray._private.worker.global_worker, lambda real: CoreWorkerWithTokens(real, self))
        self._when_connected(renew)
        for module in ("ray.remote_function", "ray.actor", "ray.util.placement_group"):
            self._replace(sys.modules[module], "ray", ray_with(self._worker))
        self._take_placement_groups()
        self._say_when_waiting()
        stock = ray.util.list_named_actors
        self._rebind(stock, narrow.named_actors(stock))
        self._replace(
            ray._private.worker, "filter_autoscaler_events", _without_tokens(ray._private.worker.filter_autoscaler_events)
        )
        worker = ray._private.worker
        self._replace(worker, "print_to_stdstream", _without_infeasible(worker.print_to_stdstream))
        utils = ray._private.utils
        if not releases.hides_accelerators():
            self._replace(utils, "set_visible_accelerator_ids", _known_without_accelerators(utils.set_visible_accelerator_ids))
        self._put_off_addons()
        for owner, name, new in narrow.replacements():
            self._replace(owner, name, new)
        self._undo.callback(narrow.later(self._replace))
        for owner, name, new in scopes.replacements():
            self._replace_around(owner, name, new)

    @functools.cached_property
    def submitter(self) -> Submitter:
        """One, whichever thread submits first."""
        from remora.live.submit.submitter import Submitter

        with self._lock:
            if self._submitter is None:
                self._submitter = Submitter(pickle.loads(self._packed))
        return self._submitter

    def undo(self) -> None:
        if self._submitter is not None:
            self._submitter.stop()
        scopes.forget()
        self._undo.close()
        # What was exported with the layer in it is exported again, without.
        for function in self._exported:
            self._export_anew(function)
            function.__dict__.pop(_REPLAYS, None)
        for metadata in self._exported_actors:
            metadata.last_export_cluster_and_job = None

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, new)
        self.replaced.append((owner, name))
        if old is _MISSING:
            self._undo.callback(delattr, owner, name)
        else:
            self._undo.callback(setattr, owner, name, old)

    def _replace_around(self, owner: Any, name: str, new: Any) -> None:
        """The same for what is not Ray's. Others replace it too, and who came after us stays: around ours, which then leaves
        everything as it is."""
        old = getattr(owner, name)
        setattr(owner, name, new)
        self.replaced.append((owner, name))
        self._undo.callback(_put_back_ours, owner, name, old, new)

    def _when_connected(self, call: Callable[[], None]) -> None:
        """Whenever ``ray.init`` has connected this process, from now on."""
        known = ray._private.worker._post_init_hooks
        known.insert(0, call)  # before any that submits something
        self._undo.callback(known.remove, call)

    def _put_off_addons(self) -> None:
        """Workers start sooner; whoever is detached has them all."""
        if serializers.is_known(serialization_addons.apply):
            mine = serializers.Addons(serialization_addons.apply)
            self._replace(serialization_addons, "apply", mine.apply)
            self._undo.callback(mine.register)

    def _accept_options(self) -> None:
        """The tables that ``.options()`` and ``@ray.remote`` validate against."""
        ours = {name: ray_option_utils.Option(None, _checking(name), default_value=None) for name in _CHECKED}
        for name in ("task_options", "actor_options", "valid_options"):
            table = getattr(ray_option_utils, name)
            resources = dataclasses.replace(table["resources"], value_constraint=_also_ours(table["resources"]))
            self._replace(ray_option_utils, name, _Options(table, {**ours, "resources": resources}))
        for check, table in (("validate_task_options", "task_options"), ("validate_actor_options", "actor_options")):
            known = getattr(ray_option_utils, table)
            self._replace(ray_option_utils, check, with_what_was_meant(getattr(ray_option_utils, check), known))

    def _around_task(self, stock: Any) -> Any:
        only_rays = is_rays(stock)

        @functools.wraps(stock)
        def _remote(
            function: RemoteFunction,
            args: Any = None,
            kwargs: Any = None,
            serialized_runtime_env_info: str | None = None,
            **options: Any,
        ) -> Any:
            replays = function.__dict__.get(_REPLAYS)
            if not replays or replays.worker is not self._worker:
                replays = self._board(function)
            submit = replays.find(function, serialized_runtime_env_info, options)
            if submit is not None:
                made = submit(flattened(function, args, kwargs))
                return made[0] if len(made) == 1 else made
            copy = copied(options) if only_rays and not replays.full else None
            # Exporting a function, pickling an argument or collecting garbage may submit another task in the middle of this
            # one: each leaves behind what it found.
            around, latest.submit = latest.submit, None
            try:
                made = stock(
                    function, args, kwargs, serialized_runtime_env_info, **self.submitter.ticketed(options, is_actor=False)
                )
                if copy is not None and latest.submit is not None:
                    replays.keep(function, serialized_runtime_env_info, copy, latest.submit)
            finally:
                latest.submit = around
            return made

        return _remote

    def _board(self, function: RemoteFunction) -> Replays:
        """From now on it is exported with the layer in it."""
        self._export_anew(function)
        replays = Replays(self._worker)
        setattr(function, _REPLAYS, replays)
        self._exported.add(function)
        return replays

    def _export_anew(self, function: RemoteFunction) -> None:
        """Under another name if it was exported from here before: workers keep what they have loaded under the old one. What
        reaches a worker has the layer in it already."""
        if self._everywhere and function._last_export_cluster_and_job is not None:
            function._uuid = uuid.uuid4()
        function._last_export_cluster_and_job = None

    def _around_actor(self, stock: Any) -> Any:
        @functools.wraps(stock)
        def _remote(actor_class: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            metadata = actor_class.__ray_metadata__
            if options.get("label_selector") is STOCK:
                return stock(actor_class, args, kwargs, **options)
            if metadata not in self._exported_actors and not metadata.is_cross_language:
                metadata.last_export_cluster_and_job = None
                self._exported_actors.add(metadata)
            made_from = metadata.class_name
            return stock(actor_class, args, kwargs, **self.submitter.ticketed(options, is_actor=True, made_from=made_from))

        return _remote

    def _around_pickle(self, stock: Any) -> Any:
        def pickle_dumps(thing: Any, message: str) -> Any:
            return stock(thing if _is_ours(thing) else travel.Luggage(thing, self._packed), message)

        return pickle_dumps

    def _take_placement_groups(self) -> None:
        module = sys.modules["ray.util.placement_group"]
        stock = module.placement_group

        @functools.wraps(stock)
        def placement_group(bundles: Any, strategy: Any = None, *args: Any, **kwargs: Any) -> Any:
            from remora.live.submit.group_creation import create_group

            return create_group(self.submitter, stock, bundles, strategy, args, kwargs)

        self._rebind(stock, placement_group)
        for name in ("placement_group_table", "get_placement_group_by_name"):
            self._replace(state, name, _with_those_that_wait(getattr(state, name)))

    def _say_when_waiting(self) -> None:
        """In a virtual cluster: a worker that waits gives its share back."""
        worker = ray._private.worker
        self._replace(worker.Worker, "get_objects", blocking.around_get(worker.Worker.get_objects))
        for stock in {worker.wait, ray.wait}:  # Ray has put another function around the latter
            self._rebind(stock, blocking.around_wait(stock))

    def _rebind(self, old: Any, new: Any) -> None:
        """Every module that imported the function by name sees the new one, and the old one again afterwards. In a worker
        user code is imported later, so looking through all modules would only make it start more slowly."""
        own = [sys.modules[name] for name in ("ray.util.placement_group", "ray.util", "ray", "ray._private.worker")]
        self._undo.callback(_put_back, old, new)
        for module in list(sys.modules.values()) if self._everywhere else own:
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is old:
                    self._replace(module, name, new)


def _is_ours(thing: Any) -> bool:
    """Return whether this is the controller: it must run as stock Ray would run it."""
    return (getattr(thing, "__module__", ""), getattr(thing, "__name__", "")) == CONTROLLER_CLASS


def _with_those_that_wait(stock: Any) -> Any:
    """What Ray tells of placement groups, with those that wait to be created."""

    @functools.wraps(stock)
    def look(*args: Any) -> Any:
        from remora.live.submit import waiting_groups

        return waiting_groups.shown(stock, *args)

    return look


def _put_back(old: Any, new: Any) -> None:
    """Also in modules that were imported in the meantime."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is new:
                setattr(module, name, old)


def _put_back_ours(owner: Any, name: str, old: Any, new: Any) -> None:
    if vars(owner).get(name) is new:
        setattr(owner, name, old)


class _Options(dict[str, Any]):
    """A table of Ray's with our options in it. Ray goes through all of it for the defaults of every task; of ours there are
    none, so it goes through its own."""

    def __init__(self, stock: dict[str, Any], ours: dict[str, Any]) -> None:
        super().__init__({**stock, **ours})
        self.items = stock.items  # type: ignore[method-assign]


def _without_tokens(stock: Any) -> Any:
    """Ray takes whatever waits for a token for unfulfillable and says so every few seconds; we say why it waits, once."""

    def filter_autoscaler_events(lines: list[str]) -> Any:
        return (line for line in stock(lines) if TOKEN_PREFIX not in line)

    return filter_autoscaler_events


def _without_infeasible(stock: Any) -> Any:
    """GCS tells every driver that tasks are infeasible whenever more of them are, also those for which a machine is just being
    started; we say what each waits for."""

    @functools.wraps(stock)
    def print_to_stdstream(data: dict[str, Any], ignore_prefix: bool) -> Any:
        if data.get("pid") == "raylet" and any(_INFEASIBLE in line for line in data.get("lines", ())):
            return None
        return stock(data, ignore_prefix)

    return print_to_stdstream


def _known_without_accelerators(stock: Any) -> Any:
    """Before every task Ray compares the name of all that it holds with a pattern for each kind of accelerator; with a token
    more that takes longer. Of work that holds CPUs, memory and tokens only, the answer is known."""
    worker = ray._private.worker.global_worker
    even_none = ray._private.accelerators.RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR

    @functools.wraps(stock)
    def set_visible_accelerator_ids() -> Any:
        if even_none in os.environ or any(
            name not in _NO_ACCELERATOR and not is_token(name) for name in worker.core_worker.resource_ids()
        ):
            return stock()
        return {}

    return set_visible_accelerator_ids


def _checking(name: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value is not None and not isinstance(value, Ticket):
            from remora.live.submit import checks

            checks.check(name, value)

    return check


def _also_ours(option: Any) -> Callable[[Any], Any]:
    """Our check of resources, then Ray's own."""

    def both(value: Any) -> Any:
        for name in value or ():
            check_resource_name(name)
        return option.value_constraint(value) if option.value_constraint else None

    return both
