"""The process's core worker with tokens added: the one place where everything that is submitted passes.

Here Ray has resolved everything: the resources (a default actor's too, which naming a token earlier would change), and
whether work goes into a placement group, whose bundles hold the tokens already.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from ray import Language
from ray._raylet import CoreWorker
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from remora.wire.classes import ClassSpec
from remora.wire.tokens import TAKEN

if TYPE_CHECKING:
    from remora.ray_seam.layer import Layer

RETRIES = "__remora_max_retries__"
"""A hidden argument: how often the task may be retried, for the guard that hands it on."""

_USUAL_RETRIES = 3


def _positions(method: str) -> dict[str, int]:
    return {name: index - 1 for index, name in enumerate(inspect.signature(getattr(CoreWorker, method)).parameters)}


class Ticket:
    """Carries the class of a request through Ray's own code, in the place of its label selector.

    ``spec`` is None where the class is known to exist: work that a guard hands on.
    """

    __slots__ = ("class_id", "spec")

    def __init__(self, class_id: str, spec: ClassSpec | None = None) -> None:
        self.class_id = class_id
        self.spec = spec


STOCK = Ticket("")
"""For what has to run whatever the rules say: it takes no token. The controller itself."""


class CoreWorkerProxy:
    """Everything else is the real core worker's."""

    def __init__(self, inner: Any, layer: Layer) -> None:
        self.remora_inner = inner
        self.groups = threading.local()  # the tokens of the bundles of the group that this thread is creating
        self._layer = layer
        self._task = _positions("submit_task")
        self._actor = _positions("create_actor")
        self._group = _positions("create_placement_group")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.remora_inner, name)
        if callable(value):
            self.__dict__[name] = value  # bound once; these are asked for on every call
        return value

    def submit_task(self, *args: Any, **kwargs: Any) -> Any:
        call = list(args)
        taken = self._tokenize(call, kwargs, self._task, ("resources",))
        if taken is not None:
            named = _get(call, kwargs, self._task, "name")
            self._layer.waiting.note(taken, named or _get(call, kwargs, self._task, "function_descriptor").function_name)
        retries = _get(call, kwargs, self._task, "max_retries")
        # Only functions in Python have a guard that takes the hidden argument off again.
        if retries != _USUAL_RETRIES and _get(call, kwargs, self._task, "language") == Language.PYTHON:
            _set(call, kwargs, self._task, "args", [*_get(call, kwargs, self._task, "args"), RETRIES, retries])
        return self.remora_inner.submit_task(*call, **kwargs)

    def create_actor(self, *args: Any, **kwargs: Any) -> Any:
        call = list(args)
        # Ray puts an actor that holds nothing on a random node; with a token it holds something, and would be packed.
        holds = any(_get(call, kwargs, self._actor, "resources").values())
        if not holds and _get(call, kwargs, self._actor, "scheduling_strategy") == "DEFAULT":
            _set(call, kwargs, self._actor, "scheduling_strategy", "SPREAD")
        taken = self._tokenize(call, kwargs, self._actor, ("resources", "placement_resources"))
        if taken is not None:
            named = _get(call, kwargs, self._actor, "name")
            self._layer.waiting.note(taken, named or _get(call, kwargs, self._actor, "function_descriptor").class_name)
        return self.remora_inner.create_actor(*call, **kwargs)

    def _tokenize(
        self, call: list[Any], kwargs: dict[str, Any], at: dict[str, int], amounts: tuple[str, ...]
    ) -> dict[str, float] | None:
        """Adds the token of the class; what has to be free for it to be placed, or None where it takes no token."""
        ticket = _get(call, kwargs, at, "label_selector")
        if not isinstance(ticket, Ticket):
            ticket = self._layer.default()
        _set(call, kwargs, at, "label_selector", None)
        _set(call, kwargs, at, "fallback_strategy", None)
        if ticket is STOCK or isinstance(_get(call, kwargs, at, "scheduling_strategy"), PlacementGroupSchedulingStrategy):
            return None
        token = self._layer.token(ticket, _get(call, kwargs, at, "resources"))
        taken: dict[str, float] = {}
        for name in amounts:
            resources = _get(call, kwargs, at, name)
            # Placement resources are empty when they are the same as the resources: leave them so.
            if resources or name == "resources":
                taken = {**resources, token: TAKEN}
                _set(call, kwargs, at, name, taken)
        return taken

    def create_placement_group(self, *args: Any, **kwargs: Any) -> Any:
        call = list(args)
        bundles = _get(call, kwargs, self._group, "bundles")
        # Code that got hold of Ray's own function before the layer was there says no classes.
        tokens = getattr(self.groups, "tokens", None) or [self._layer.token(self._layer.default(), each) for each in bundles]
        made = [{**bundle, token: TAKEN} for bundle, token in zip(bundles, tokens, strict=True)]
        _set(call, kwargs, self._group, "bundles", made)
        self._layer.waiting.note_group(made, f"placement group {_get(call, kwargs, self._group, 'name') or ''}".rstrip())
        return self.remora_inner.create_placement_group(*call, **kwargs)


def _get(call: list[Any], kwargs: dict[str, Any], at: dict[str, int], name: str) -> Any:
    return call[at[name]] if at[name] < len(call) else kwargs.get(name)


def _set(call: list[Any], kwargs: dict[str, Any], at: dict[str, int], name: str, value: Any) -> None:
    if at[name] < len(call):
        call[at[name]] = value
    else:
        kwargs[name] = value
