"""Actors and tasks that the kernel places by itself: submitted with the token of their slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from remora.live.clusters import scopes
from remora.live.link import link
from remora.live.perform import Body, perform
from remora.model.strategies import ACTOR, TASK
from remora.model.taints import rare_taints
from remora.protocol import steps
from remora.protocol.lease_steps import create_with_lease
from remora.wire.asks import LEASE_LABEL, REQUEST_LABEL, encode_ask
from remora.wire.calls import new_ask
from remora.wire.rewrite import Rewritten
from remora.wire.tokens import TAKEN, lease_token

if TYPE_CHECKING:
    from remora.live.submit.core_call import Call
    from remora.live.submit.submitter import Submitter


def submit_task(submitter: Submitter, inner: Any, call: Call) -> Any:
    """Return what the core worker returns for a task."""
    text = _text(submitter, call.ticket.lease, TASK, call["resources"], call["resources"], None)
    made: list[Any] = []

    def create(step: steps.CreateWithLease) -> None:
        _hint(call, step.node_id)
        call["resources"] = taken = {**submitter.with_share(call["resources"]), lease_token(step.slot): TAKEN}
        submitter.waiting.note(taken, call["function_descriptor"], call["name"])
        made.append(inner.submit_task(*call.values))

    def tell_when_done(step: steps.TellWhenDone) -> None:
        """A task has ended when its first result is there. Of one that streams, the controller sees it later."""
        if isinstance(made[0], list) and made[0]:
            made[0][0]._on_completed(lambda _: link.tell(step.call))

    _perform(text, {steps.CreateWithLease: create, steps.TellWhenDone: tell_when_done})
    return made[0]


def create_actor(submitter: Submitter, inner: Any, call: Call) -> Any:
    """Return the id of an actor. It takes the token of its slot only to be placed, and does not hold it: so when it dies it
    needs it again, and the kernel decides anew."""
    resources, needs = call["resources"], call["placement_resources"] or call["resources"]
    text = _text(submitter, call.ticket.lease, ACTOR, resources, needs, call["ray_namespace"])
    made: list[Any] = []

    def create(step: steps.CreateWithLease) -> str:
        _hint(call, step.node_id)
        call["resources"] = submitter.with_share(resources)
        placed = {**submitter.with_share(needs), lease_token(step.slot): TAKEN}
        call["placement_resources"] = placed
        call["labels"] = {**(call["labels"] or {}), LEASE_LABEL: step.slot, REQUEST_LABEL: text}
        submitter.waiting.note(placed, call["function_descriptor"], call["name"])
        made.append(inner.create_actor(*call.values))
        return str(made[0].hex())

    _perform(text, {steps.CreateWithLease: create})
    return made[0]


def _perform(text: str, given: Mapping[type, Callable[[Any], Any]]) -> None:
    worker_id, job_id = ray._private.worker.global_worker.worker_id.hex(), ray.get_runtime_context().get_job_id()
    perform(create_with_lease(new_ask(), text, job_id, worker_id), Body(given))


def _hint(call: Call, node_id: str | None) -> None:
    """Where it was decided to go is a hint for Ray; its token is the law."""
    call.drop_ticket()
    call["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=True) if node_id else "DEFAULT"


def _text(
    submitter: Submitter,
    asked: Rewritten,
    kind: str,
    held: Mapping[str, float],
    demand: Mapping[str, float],
    namespace: str | None,
) -> str:
    """Return what the kernel is asked, encoded."""
    keys = rare_taints((name for name, amount in demand.items() if amount), submitter.defaults.rare)
    ask = asked.ask(kind, held, demand, namespace or ray.get_runtime_context().namespace, keys)
    return encode_ask(ask._replace(request=replace(ask.request, cluster=scopes.current())))
