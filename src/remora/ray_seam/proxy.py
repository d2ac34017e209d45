"""The process's core worker with tokens added: the one place where everything that is submitted passes.

Here Ray has resolved everything: the resources (a default actor's too, which naming a token earlier would change), and
whether work goes into a placement group, whose bundles hold the tokens already.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ray import Language
from ray._raylet import CoreWorker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from remora.model.strategies import ACTOR, TASK
from remora.ray_seam import clusters
from remora.ray_seam.within import CLUSTER
from remora.wire.classes import ClassSpec
from remora.wire.leases import CLUSTER_LABEL, LEASE_LABEL, REQUEST_LABEL
from remora.wire.options import Rewritten
from remora.wire.tokens import TAKEN, class_token, lease_token

if TYPE_CHECKING:
    from remora.ray_seam.layer import Layer

RETRIES = "__remora_max_retries__"
"""A hidden argument: how often the task may be retried, for the guard that hands it on."""

_USUAL_RETRIES = 3


class _Signature:
    """Where the arguments of a call of the core worker stand, and what stands there when they are left out."""

    def __init__(self, method: str) -> None:
        parameters = list(inspect.signature(getattr(CoreWorker, method)).parameters.values())[1:]
        self.at = {parameter.name: index for index, parameter in enumerate(parameters)}
        self._blank = [None if each.default is inspect.Parameter.empty else each.default for each in parameters]

    def in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """All arguments by position, whichever way they came."""
        if len(args) == len(self._blank):
            return list(args)
        call = [*args, *self._blank[len(args) :]]
        for name, value in kwargs.items():
            call[self.at[name]] = value
        return call


class Ticket:
    """Carries the class of a request through Ray's own code, in the place of its label selector.

    ``spec`` is None where the class is known to exist: work that a guard hands on. ``lease`` is there where the kernel
    places the work by itself.
    """

    __slots__ = ("class_id", "lease", "mentioned_at", "spec", "token")

    def __init__(self, class_id: str, spec: ClassSpec | None = None, lease: Rewritten | None = None) -> None:
        self.class_id = class_id
        self.spec = spec
        self.lease = lease
        self.token = class_token(class_id)
        self.mentioned_at = -inf  # when the controller was last told that somebody uses the class


class Given(NamedTuple):
    """A lease: its slot, the node that was chosen if there is one, and what was asked for."""

    slot: str
    node_id: str | None
    text: str


STOCK = Ticket("")
"""For what has to run whatever the rules say: it takes no token. The controller itself."""


class CoreWorkerProxy:
    """Everything else is the real core worker's."""

    def __init__(self, inner: Any, layer: Layer) -> None:
        self.remora_inner = inner
        self.groups = threading.local()  # the tickets of the bundles of the group that this thread is creating
        self._layer = layer
        self._task = _Signature("submit_task")
        self._actor = _Signature("create_actor")
        self._group = _Signature("create_placement_group")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.remora_inner, name)
        if callable(value):
            self.__dict__[name] = value  # bound once; these are asked for on every call
        return value

    def submit_task(self, *args: Any, **kwargs: Any) -> Any:
        at = self._task.at
        call = self._task.in_order(args, kwargs)
        ticket = call[at["label_selector"]]
        lease = self._lease(call, at, TASK) if isinstance(ticket, Ticket) and ticket.lease is not None else None
        if lease is not None:
            taken: dict[str, float] | None = {**self._with_share(call[at["resources"]]), lease_token(lease.slot): TAKEN}
            call[at["resources"]] = taken
        else:
            taken = self._tokenize(call, at, ("resources",))
        cluster_id = clusters.current()
        if taken is not None:
            self._layer.waiting.note(taken, call[at["function_descriptor"]], call[at["name"]])
        retries = call[at["max_retries"]]
        # Only functions in Python have a guard that takes the hidden argument off again.
        hidden = [RETRIES, retries] if retries != _USUAL_RETRIES else []
        if cluster_id is not None:
            hidden += [CLUSTER, cluster_id]
        if hidden and call[at["language"]] == Language.PYTHON:
            call[at["args"]] = [*call[at["args"]], *hidden]
        if lease is None:
            return self.remora_inner.submit_task(*call)
        with self._given_up_on_error(lease.slot):
            made = self.remora_inner.submit_task(*call)
        self._layer.give_up_when_done(lease.slot, made)
        return made

    def create_actor(self, *args: Any, **kwargs: Any) -> Any:
        at = self._actor.at
        call = self._actor.in_order(args, kwargs)
        cluster_id = clusters.current()
        if cluster_id is not None and call[at["label_selector"]] is not STOCK:
            call[at["labels"]] = {**(call[at["labels"]] or {}), CLUSTER_LABEL: cluster_id}
        ticket = call[at["label_selector"]]
        lease = self._lease(call, at, ACTOR) if isinstance(ticket, Ticket) and ticket.lease is not None else None
        if lease is not None:
            # Only to be placed: it does not hold the token, so when it dies it needs it again, and we decide anew.
            call[at["resources"]] = self._with_share(call[at["resources"]])
            placed = self._with_share(call[at["placement_resources"]])
            needs = {**(placed or call[at["resources"]]), lease_token(lease.slot): TAKEN}
            call[at["placement_resources"]] = needs
            call[at["labels"]] = {**(call[at["labels"]] or {}), LEASE_LABEL: lease.slot, REQUEST_LABEL: lease.text}
            self._layer.waiting.note(needs, call[at["function_descriptor"]], call[at["name"]])
            with self._given_up_on_error(lease.slot):
                actor_id = self.remora_inner.create_actor(*call)
            self._layer.claim(lease.slot, actor_id.hex())
            return actor_id
        # Ray puts an actor that holds nothing on a random node; with a token it holds something, and would be packed.
        if not any(call[at["resources"]].values()) and call[at["scheduling_strategy"]] == "DEFAULT":
            call[at["scheduling_strategy"]] = "SPREAD"
        taken = self._tokenize(call, at, ("resources", "placement_resources"))
        if taken is not None:
            self._layer.waiting.note(taken, call[at["function_descriptor"]], call[at["name"]])
        return self.remora_inner.create_actor(*call)

    def _lease(self, call: list[Any], at: dict[str, int], kind: str) -> Given | None:
        """A slot for what the kernel places by itself; its node, if it is decided, is a hint for Ray."""
        if isinstance(call[at["scheduling_strategy"]], PlacementGroupSchedulingStrategy):
            return None  # its bundle lies where it lies
        asked = call[at["label_selector"]].lease
        call[at["label_selector"]] = call[at["fallback_strategy"]] = None
        resources = call[at["resources"]]
        placed = call[at["placement_resources"]] if kind == ACTOR else None
        namespace = call[at["ray_namespace"]] if kind == ACTOR else None
        given = self._layer.place(asked, kind, resources, placed or resources, namespace)
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

    def _tokenize(self, call: list[Any], at: dict[str, int], amounts: tuple[str, ...]) -> dict[str, float] | None:
        """Adds the token of the class; what has to be free for it to be placed, or None where it takes no token."""
        ticket = call[at["label_selector"]]
        if not isinstance(ticket, Ticket):
            ticket = self._layer.default()
        call[at["label_selector"]] = call[at["fallback_strategy"]] = None
        if ticket is STOCK or isinstance(call[at["scheduling_strategy"]], PlacementGroupSchedulingStrategy):
            return None
        taken: dict[str, float] = {}
        for name in amounts:
            resources = call[at[name]]
            # Placement resources are empty when they are the same as the resources: leave them so.
            if resources or name == "resources":
                taken = {**resources, **self._layer.tokens(ticket, resources)}
                call[at[name]] = taken
        return taken

    def _with_share(self, resources: dict[str, float]) -> dict[str, float]:
        """With what it takes of the virtual cluster that we are in."""
        cluster_id = clusters.current()
        return resources if cluster_id is None else {**resources, **clusters.shares(cluster_id, None, resources)}

    def create_placement_group(self, *args: Any, **kwargs: Any) -> Any:
        at = self._group.at
        call = self._group.in_order(args, kwargs)
        bundles = call[at["bundles"]]
        # Code that got hold of Ray's own function before the layer was there says no classes.
        tickets = getattr(self.groups, "tickets", None) or [self._layer.default()] * len(bundles)
        made = [{**bundle, **self._layer.tokens(ticket, bundle)} for bundle, ticket in zip(bundles, tickets, strict=True)]
        call[at["bundles"]] = made
        self._layer.waiting.note_group(made, f"placement group {call[at['name']] or ''}".rstrip())
        return self.remora_inner.create_placement_group(*call)
