"""The process's core worker with tokens added: the one place where everything that is submitted passes.

Here Ray has resolved everything: the resources (a default actor's too, which naming a token earlier would change), and
whether work goes into a placement group, whose bundles hold the tokens already.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ray import Language
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from remora.live.attach.replay import Submit
from remora.live.clusters import scopes
from remora.live.clusters.scopes import CLUSTER
from remora.live.submit.core_call import Call, signature
from remora.live.submit.tickets import FREE, RETRIES, RETURNS, STOCK, Ticket
from remora.wire.tokens import ACTORS, CLUSTER_LABEL, TASKS

if TYPE_CHECKING:
    from remora.live.submit.submitter import Submitter

_USUAL_RETRIES = 3


def _hidden(retries: int, returns: int, language: Language) -> list[Any]:
    """Return hidden arguments: how often the user wants it retried and how many results it has, where that is unusual. Only
    functions in Python have a guard that takes them off again."""
    if language != Language.PYTHON or (retries == _USUAL_RETRIES and returns == 1):
        return []
    return [*([] if retries == _USUAL_RETRIES else [RETRIES, retries]), *([] if returns == 1 else [RETURNS, returns])]


class _Latest(threading.local):
    """How the task that this thread submitted last can be submitted again with other arguments; None if it cannot."""

    submit: Submit | None = None


latest = _Latest()


class HasSubmitter(Protocol):
    @property
    def submitter(self) -> Submitter: ...


class CoreWorkerWithTokens:
    """Everything else is the real core worker's."""

    def __init__(self, inner: Any, owner: HasSubmitter) -> None:
        self.remora_inner = inner
        self._owner = owner

    @functools.cached_property
    def _submitter(self) -> Submitter:
        return self._owner.submitter

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.remora_inner, name)
        if callable(value):
            self.__dict__[name] = value  # bound once; these are asked for on every call
        return value

    @functools.cached_property
    def submit_task(self) -> Callable[..., Any]:
        """Most tasks need nothing but the token of their class: they take the short way, and those like them too."""
        known = signature("submit_task")
        at, count = known.at, len(known.at)
        args_at, returns_at = at["args"], at["num_returns"]

        def submit_task(*args: Any, **kwargs: Any) -> Any:
            values = list(args) if len(args) == count else known.in_order(args, kwargs)
            submit = self._usual(values, at)
            made = self._submit_task(Call(at, values)) if submit is None else submit(values[args_at])
            # Only now: the core worker pickles the arguments, and pickling one of them may have submitted another task.
            latest.submit = submit if values[returns_at] > 0 else None  # others stream
            return made

        return submit_task

    def _usual(self, values: list[Any], at: dict[str, int]) -> Submit | None:
        """Submits this with whatever arguments, where tokens are all that has to be added to it. By position, not with a
        ``Call``: most tasks pass here, and all those like them what it returns."""
        submitter, inner = self._submitter, self.remora_inner.submit_task
        ticket = submitter.usual(values[at["label_selector"]])
        if ticket is None or isinstance(values[at["scheduling_strategy"]], PlacementGroupSchedulingStrategy):
            return None
        args_at, resources_at = at["args"], at["resources"]
        resources, descriptor, name = values[resources_at], values[at["function_descriptor"]], values[at["name"]]
        blank = values.copy()
        blank[at["label_selector"]] = blank[at["fallback_strategy"]] = blank[args_at] = None
        tokens, note = submitter.tokens, submitter.waiting.note
        hidden = _hidden(values[at["max_retries"]], values[at["num_returns"]], values[at["language"]])

        def submit(given: list[Any]) -> Any:
            taken = {**resources, **tokens(ticket, resources)}
            note(taken, descriptor, name)
            again = blank.copy()
            again[args_at] = [*given, *hidden] if hidden else given
            again[resources_at] = taken
            made = inner(*again)
            scopes.keep(made)
            return made

        return submit

    def _submit_task(self, call: Call) -> Any:
        """What has a lease, goes into a placement group or is not ours to steer."""
        hidden, cluster_id = _hidden(call["max_retries"], call["num_returns"], call["language"]), self._submitter.cluster()
        if cluster_id is not None and call.ticket is not STOCK and call["language"] == Language.PYTHON:
            hidden += [CLUSTER, cluster_id]  # others bear it in the name of their token, which costs nothing
        if hidden:
            call["args"] = [*call["args"], *hidden]
        made = self._submit(call)
        if cluster_id is not None:
            scopes.keep(made)
        return made

    def _submit(self, call: Call) -> Any:
        if call.is_leased:
            from remora.live.submit import leased

            return leased.submit_task(self._submitter, self.remora_inner, call)
        self._tokenize(call)
        return self.remora_inner.submit_task(*call.values)

    def create_actor(self, *args: Any, **kwargs: Any) -> Any:
        call = signature("create_actor").call(args, kwargs)
        ticket = call.ticket
        cluster_id = self._submitter.cluster()
        if cluster_id is not None and ticket is not STOCK:
            call["labels"] = {**(call["labels"] or {}), CLUSTER_LABEL: cluster_id}
        actor_id = self._create(call)
        if cluster_id is not None:
            scopes.keep(actor_id)
        return actor_id

    def _create(self, call: Call) -> Any:
        if call.is_leased:
            from remora.live.submit import leased

            return leased.create_actor(self._submitter, self.remora_inner, call)
        # Ray puts an actor that holds nothing on a random node; with a token it holds something, and would be packed.
        if not any(call["resources"].values()) and call["scheduling_strategy"] == "DEFAULT":
            call["scheduling_strategy"] = "SPREAD"
        self._tokenize(call)
        return self.remora_inner.create_actor(*call.values)

    def _tokenize(self, call: Call) -> None:
        """Adds the token of the class to what has to be free for the work to be placed."""
        submitter = self._submitter
        ticket = call.ticket if isinstance(call.ticket, Ticket) else submitter.plain
        call.drop_ticket()
        if ticket is STOCK or ticket is FREE or call.is_in_group:
            return
        takers = ACTORS if call.is_actor else TASKS
        call["resources"] = taken = {**call["resources"], **submitter.tokens(ticket, call["resources"], takers)}
        # An actor's are empty when they are the same as its resources: they are left so.
        if call.is_actor and (placed := call["placement_resources"]):
            call["placement_resources"] = taken = {**placed, **submitter.tokens(ticket, placed, takers)}
        submitter.waiting.note(taken, call["function_descriptor"], call["name"])

    def create_placement_group(self, *args: Any, **kwargs: Any) -> Any:
        from remora.live.submit import group_creation

        return group_creation.create(self._submitter, signature("create_placement_group").call(args, kwargs))

    def remove_placement_group(self, placement_group_id: Any) -> None:
        from remora.live.submit import waiting_groups

        waiting_groups.remove(self.remora_inner, placement_group_id)

    def wait_placement_group_ready(self, placement_group_id: Any, timeout_seconds: Any) -> Any:
        from remora.live.submit import waiting_groups

        return waiting_groups.wait(self.remora_inner, placement_group_id, timeout_seconds)

    def async_wait_placement_group_ready(self, placement_group_id: Any, serialized_object: Any) -> Any:
        from remora.live.submit import waiting_groups

        return self.remora_inner.async_wait_placement_group_ready(
            waiting_groups.to_wait_for(placement_group_id), serialized_object
        )
