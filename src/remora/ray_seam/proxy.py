"""The process's core worker with tokens added: the one place where everything that is submitted passes.

Here Ray has resolved everything: the resources (a default actor's too, which naming a token earlier would change), and
whether work goes into a placement group, whose bundles hold the tokens already.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from ray import Language
from ray._raylet import CoreWorker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from remora.ray_seam import within
from remora.ray_seam.replay import Submit
from remora.ray_seam.tickets import RETRIES, STOCK, Given, Making, Ticket
from remora.ray_seam.within import CLUSTER
from remora.wire.tokens import ACTORS, CLUSTER_LABEL, TAKEN, TASKS, lease_token

if TYPE_CHECKING:
    from remora.ray_seam.layer import Layer

_USUAL_RETRIES = 3


class _Call:
    """The arguments of a call of the core worker: where each stands, and what stands there when it is left out."""

    def __init__(self, method: str) -> None:
        parameters = list(inspect.signature(getattr(CoreWorker, method)).parameters.values())[1:]
        self.at = {parameter.name: index for index, parameter in enumerate(parameters)}
        self.count = len(parameters)
        self._blank = [None if each.default is inspect.Parameter.empty else each.default for each in parameters]

    def in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """All arguments by position, whichever way they came."""
        call = [*args, *self._blank[len(args) :]]
        for name, value in kwargs.items():
            call[self.at[name]] = value
        return call


_call = functools.cache(_Call)  # of what a process submits: workers that submit nothing look nothing up


def _retries(call: list[Any], at: dict[str, int]) -> list[Any]:
    """Hidden arguments: how often the user wants it retried, where that is unusual. Only functions in Python have a guard that
    takes them off again."""
    retries = call[at["max_retries"]]
    return [] if retries == _USUAL_RETRIES or call[at["language"]] != Language.PYTHON else [RETRIES, retries]


class _Latest(threading.local):
    """How the last task of this thread was submitted, where another may be so too."""

    submit: Submit | None = None


latest = _Latest()


class HasLayer(Protocol):
    @property
    def layer(self) -> Layer: ...


class CoreWorkerProxy:
    """Everything else is the real core worker's."""

    def __init__(self, inner: Any, owner: HasLayer) -> None:
        self.remora_inner = inner
        self.groups = threading.local()  # what is given to the group that this thread is creating
        self._owner = owner

    @functools.cached_property
    def _layer(self) -> Layer:
        return self._owner.layer

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.remora_inner, name)
        if callable(value):
            self.__dict__[name] = value  # bound once; these are asked for on every call
        return value

    @functools.cached_property
    def submit_task(self) -> Callable[..., Any]:
        """Most tasks need nothing but the token of their class: they take the short way, and those like them too."""
        known = _call("submit_task")
        at = known.at
        arguments, returns = at["args"], at["num_returns"]

        def submit_task(*args: Any, **kwargs: Any) -> Any:
            call = list(args) if len(args) == known.count else known.in_order(args, kwargs)
            submit = self._usual(call, at)
            if submit is None:
                return self._submit_task(call, at)
            latest.submit = submit if call[returns] > 0 else None  # others stream
            return submit(call[arguments])

        return submit_task

    def _usual(self, call: list[Any], at: dict[str, int]) -> Submit | None:
        """Submits this with whatever arguments, where tokens are all that has to be added to it."""
        layer, inner = self._layer, self.remora_inner.submit_task
        ticket = layer.usual(call[at["label_selector"]])
        if ticket is None or isinstance(call[at["scheduling_strategy"]], PlacementGroupSchedulingStrategy):
            return None
        arguments, tokens_at = at["args"], at["resources"]
        resources, descriptor, name = call[tokens_at], call[at["function_descriptor"]], call[at["name"]]
        blank = call.copy()
        blank[at["label_selector"]] = blank[at["fallback_strategy"]] = blank[arguments] = None
        tokens, note, hidden = layer.tokens, layer.waiting.note, _retries(call, at)

        def submit(given: list[Any]) -> Any:
            taken = {**resources, **tokens(ticket, resources)}
            note(taken, descriptor, name)
            again = blank.copy()
            again[arguments] = [*given, *hidden] if hidden else given
            again[tokens_at] = taken
            made = inner(*again)
            within.keep(made)
            return made

        return submit

    def _submit_task(self, call: list[Any], at: dict[str, int]) -> Any:
        """What has a lease, goes into a placement group or is not ours to steer."""
        hidden, cluster_id = _retries(call, at), self._layer.cluster()
        if cluster_id is not None and call[at["label_selector"]] is not STOCK and call[at["language"]] == Language.PYTHON:
            hidden += [CLUSTER, cluster_id]  # others bear it in the name of their token, which costs nothing
        if hidden:
            call[at["args"]] = [*call[at["args"]], *hidden]
        made = self._submit(call, at)
        if cluster_id is not None:
            within.keep(made)
        return made

    def _submit(self, call: list[Any], at: dict[str, int]) -> Any:
        ticket = call[at["label_selector"]]
        if isinstance(ticket, Ticket) and ticket.lease is not None:
            lease = self._lease(call, at)
            if lease is not None:
                return self._submit_leased(call, at, lease)
        self._tokenize(call, at)
        return self.remora_inner.submit_task(*call)

    def _submit_leased(self, call: list[Any], at: dict[str, int], lease: Given) -> Any:
        call[at["resources"]] = taken = {**self._layer.with_share(call[at["resources"]]), lease_token(lease.slot): TAKEN}
        self._layer.waiting.note(taken, call[at["function_descriptor"]], call[at["name"]])
        with self._given_up_on_error(lease.slot):
            made = self.remora_inner.submit_task(*call)
        self._layer.give_up_when_done(lease.slot, made)
        return made

    def create_actor(self, *args: Any, **kwargs: Any) -> Any:
        known = _call("create_actor")
        at = known.at
        call = known.in_order(args, kwargs)
        ticket = call[at["label_selector"]]
        cluster_id = self._layer.cluster()
        if cluster_id is not None and ticket is not STOCK:
            call[at["labels"]] = {**(call[at["labels"]] or {}), CLUSTER_LABEL: cluster_id}
        actor_id = self._create(call, at)
        if cluster_id is not None:
            within.keep(actor_id)
        return actor_id

    def _create(self, call: list[Any], at: dict[str, int]) -> Any:
        ticket = call[at["label_selector"]]
        lease = self._lease(call, at) if isinstance(ticket, Ticket) and ticket.lease is not None else None
        if lease is not None:
            # Only to be placed: it does not hold the token, so when it dies it needs it again, and we decide anew.
            call[at["resources"]] = self._layer.with_share(call[at["resources"]])
            placed = self._layer.with_share(call[at["placement_resources"]])
            needs = {**(placed or call[at["resources"]]), lease_token(lease.slot): TAKEN}
            call[at["placement_resources"]] = needs
            call[at["labels"]] = {**(call[at["labels"]] or {}), **lease.labels}
            self._layer.waiting.note(needs, call[at["function_descriptor"]], call[at["name"]])
            with self._given_up_on_error(lease.slot):
                actor_id = self.remora_inner.create_actor(*call)
            self._layer.claim(lease.slot, actor_id.hex())
            return actor_id
        # Ray puts an actor that holds nothing on a random node; with a token it holds something, and would be packed.
        if not any(call[at["resources"]].values()) and call[at["scheduling_strategy"]] == "DEFAULT":
            call[at["scheduling_strategy"]] = "SPREAD"
        self._tokenize(call, at)
        return self.remora_inner.create_actor(*call)

    def _lease(self, call: list[Any], at: dict[str, int]) -> Given | None:
        """A slot for what the kernel places by itself; its node, if it is decided, is a hint for Ray."""
        if isinstance(call[at["scheduling_strategy"]], PlacementGroupSchedulingStrategy):
            return None  # its bundle lies where it lies
        asked = call[at["label_selector"]].lease
        call[at["label_selector"]] = call[at["fallback_strategy"]] = None
        resources = call[at["resources"]]
        if "placement_resources" in at:
            needs = call[at["placement_resources"]] or resources
            given = self._layer.place_actor(asked, resources, needs, call[at["ray_namespace"]])
        else:
            given = self._layer.place_task(asked, resources)
        hint = NodeAffinitySchedulingStrategy(given.node_id, soft=True) if given.node_id else "DEFAULT"
        call[at["scheduling_strategy"]] = hint
        return given

    @contextlib.contextmanager
    def _given_up_on_error(self, slot: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._layer.give_up(slot)
            raise

    def _tokenize(self, call: list[Any], at: dict[str, int]) -> None:
        """Adds the token of the class to what has to be free for the work to be placed."""
        layer, selector, resources = self._layer, at["label_selector"], at["resources"]
        ticket = call[selector]
        if not isinstance(ticket, Ticket):
            ticket = layer.plain
        call[selector] = call[at["fallback_strategy"]] = None
        if ticket is STOCK or isinstance(call[at["scheduling_strategy"]], PlacementGroupSchedulingStrategy):
            return
        placement = at.get("placement_resources")
        takers = TASKS if placement is None else ACTORS
        call[resources] = taken = {**call[resources], **layer.tokens(ticket, call[resources], takers)}
        # An actor's are empty when they are the same as its resources: they are left so.
        if placement is not None and call[placement]:
            call[placement] = taken = {**call[placement], **layer.tokens(ticket, call[placement], takers)}
        layer.waiting.note(taken, call[at["function_descriptor"]], call[at["name"]])

    def create_placement_group(self, *args: Any, **kwargs: Any) -> Any:
        known = _call("create_placement_group")
        at = known.at
        call = known.in_order(args, kwargs)
        bundles = call[at["bundles"]]
        making: Making | None = getattr(self.groups, "making", None)
        if making is None and self._layer.cluster() is not None:
            # Code that got hold of Ray's own function before the layer was there.
            from remora.ray_seam.grouping import create_when_it_fits

            again = functools.partial(self.create_placement_group, *call)
            return create_when_it_fits(self._layer, self, bundles, call[at["strategy"]], again)
        taken = self._layer.bundle_tokens(making or Making([self._layer.plain] * len(bundles)), bundles)
        made = [{**bundle, **tokens} for bundle, tokens in zip(bundles, taken, strict=True)]
        call[at["bundles"]] = made
        self._layer.waiting.note_group(made, f"placement group {call[at['name']] or ''}".rstrip())
        return self.remora_inner.create_placement_group(*call)

    @contextlib.contextmanager
    def creating(self, making: Making) -> Iterator[None]:
        """In this thread."""
        self.groups.making = making
        try:
            yield
        finally:
            self.groups.making = None
