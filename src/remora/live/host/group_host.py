"""Placement groups of attached jobs, created and kept beside the controller: they outlive the process that asked for them.

GCS takes the id that a group is created with. So the handle of one that waits is an ordinary one from the beginning: what is
submitted into it waits in Ray until the group is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray import ActorID, PlacementGroupID
from ray._private.state import state

from remora.errors import UnreadableEntryError
from remora.live.adapter import messages, unpatched
from remora.live.adapter.gcs_calls import CREATE_GROUP, REMOVE_GROUP, GcsCalls
from remora.live.adapter.kv import Kv
from remora.live.adapter.messages import GroupSpec, Outcome
from remora.live.perform import Body, Several, Until, perform
from remora.live.submit import waiting_groups
from remora.protocol import steps
from remora.protocol.group_steps import drop_group, keep_group, make_group
from remora.protocol.steps import Found
from remora.wire.calls import Call
from remora.wire.group_plans import WAITING, GroupPlan, LateEntry, signal_id
from remora.wire.keys import LATE_GROUPS
from remora.wire.tokens import signal_name

_SEEN_EVERY_SECONDS = 0.02
_LOOK_EVERY_SECONDS = 0.002
_LATELY_SECONDS = 1.0
_EVERYWHERE = {"node:__internal_head__": 0.0001}
_NOWHERE = {"node:__internal_head__": 2.0}  # there is one of it

_log = logging.getLogger(__name__)

_FOUND = {Outcome.CREATED: Found.RESERVED, Outcome.HOPELESS: Found.HOPELESS, Outcome.WAITING: Found.QUEUED}


class GroupHost:
    """``answer`` is the controller's, in this process."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        self._answer = answer
        self._gcs = Groups()
        self._several = Several("remora-groups")
        self._lock = threading.Lock()
        self._kept: set[str] = set()

    def resume(self) -> None:
        """Keep on what a controller before this one kept."""
        for key in self._gcs.kv.keys(LATE_GROUPS.prefix):
            try:
                entry = LATE_GROUPS.read(self._gcs.kv.get(key) or b"")
            except UnreadableEntryError as error:  # noqa: PERF203 - one that cannot be read stops nobody else
                _log.warning("a placement group that waits is left alone: %s", error)
            else:
                self._keep(entry)

    def make(self, plan: GroupPlan) -> dict[str, Any]:
        """Return the answer to ``MakeGroup``."""
        made = perform(make_group(plan), self._body())
        if made["state"] == WAITING:
            self._keep(LateEntry(WAITING, plan, made["reason"], made["suggestions"]))
        return made

    def drop(self, group_id: str) -> None:
        perform(drop_group(group_id), self._body())

    def stop(self) -> None:
        self._several.stop()

    def _keep(self, entry: LateEntry) -> None:
        with self._lock:
            if entry.plan.group_id in self._kept:
                return
            self._kept.add(entry.plan.group_id)
        body = self._body()
        body.closing.callback(self._kept.discard, entry.plan.group_id)
        self._several.add(keep_group(entry), body)

    def _body(self) -> Body:
        return _HostBody(self._answer, self._gcs)


class _HostBody(Body):
    def __init__(self, answer: Callable[[Call], Any], gcs: Groups) -> None:
        super().__init__(gcs.steps)
        self._answer = answer

    def ask(self, call: Call) -> Any:
        return self._answer(call)

    def tell(self, call: Call) -> Any:
        try:
            self._answer(call)
        except Exception:  # noqa: BLE001 - whoever tells something does not want to hear of it
            _log.exception("the controller failed over %s", type(call).__name__)


class Groups:
    """Placement groups in GCS, and what is kept of those that wait: each step done by one call."""

    def __init__(self) -> None:
        self.kv = Kv()
        self._advancing = threading.Lock()
        self._gcs_calls: GcsCalls | None = None
        self._seen_wanted: dict[str, tuple[float, bool]] = {}
        self.steps: dict[type, Callable[[Any], Any]] = {
            steps.WaitForTokens: self._wait_for_tokens,
            steps.CreateGroup: lambda step: self.create(step.plan, step.bundles),
            steps.LookAtGroup: self._look,
            steps.RemoveGroup: lambda step: self.remove(step.group_id),
            steps.IsNameFree: self._is_name_free,
            steps.IsWanted: self._is_wanted,
            steps.Remember: lambda step: waiting_groups.put(step.entry, self.kv),
            steps.Recall: lambda step: waiting_groups.recall(step.group_id, self.kv),
            steps.Advance: self._advance,
            steps.Forget: lambda step: self.kv.put(LATE_GROUPS.key(step.group_id), None),
            steps.Signal: self._signal,
            steps.EndSignal: lambda step: self.remove(signal_id(step.group_id)),
        }

    def create(self, plan: GroupPlan, bundles: list[dict[str, float]]) -> str:
        return messages.refusal(self._calls()(CREATE_GROUP, messages.create_group(_spec(plan, bundles))))

    def remove(self, group_id: str) -> None:
        self._calls()(REMOVE_GROUP, messages.remove_group(group_id))

    def find(self, group_id: str, *, patient: bool = False) -> Found | None:
        """Return what GCS says of a group; None while it has not tried, or if one is patient while it may succeed."""
        data = _accessor().get_placement_group_info(PlacementGroupID(bytes.fromhex(group_id)))
        found = messages.outcome(data) if data else Outcome.HOPELESS
        return None if found is Outcome.WAITING and patient else _FOUND.get(found)

    def _look(self, step: steps.LookAtGroup) -> Until:
        look = lambda: self.find(step.group_id, patient=step.patient)  # noqa: E731
        return Until(look, step.seconds, Found.QUEUED, _LOOK_EVERY_SECONDS)

    def _wait_for_tokens(self, step: steps.WaitForTokens) -> Until:
        def look() -> bool | None:
            # The view that placement groups are placed by; others are a moment ahead of it or behind.
            totals = unpatched.total_resources_per_node() if step.nodes else {}
            return all(token in totals.get(node, {}) for token, nodes in step.nodes.items() for node in nodes) or None

        return Until(look, step.seconds, False, _SEEN_EVERY_SECONDS)

    def _is_name_free(self, step: steps.IsNameFree) -> bool:
        plan = step.plan
        if _accessor().get_placement_group_by_name(plan.name, plan.namespace) is not None:
            return False
        return waiting_groups.by_name(plan.name, plan.namespace, self.kv) is None

    def _is_wanted(self, step: steps.IsWanted) -> bool:
        plan, now = step.plan, time.monotonic()
        if plan.detached:
            return True
        key = f"{plan.job_id}/{plan.actor_id}"
        at, was = self._seen_wanted.get(key, (0.0, False))
        if step.lately and now - at < _LATELY_SECONDS:
            return was
        is_wanted = self._actor_lives(plan.actor_id) if plan.actor_id else self._job_lives(plan.job_id)
        self._seen_wanted = {known: seen for known, seen in self._seen_wanted.items() if now - seen[0] < _LATELY_SECONDS}
        self._seen_wanted[key] = now, is_wanted
        return is_wanted

    def _job_lives(self, job_id: str) -> bool:
        client = ray._private.worker.global_worker.gcs_client
        found = client.get_all_job_info(
            job_or_submission_id=job_id, skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
        return not all(messages.is_dead(job) for job in found.values())

    def _actor_lives(self, actor_id: str) -> bool:
        data = _accessor().get_actor_info(ActorID(bytes.fromhex(actor_id)))
        return bool(data) and messages.is_alive(data)

    def _advance(self, step: steps.Advance) -> bool:
        with self._advancing:
            known = waiting_groups.recall(step.entry.plan.group_id, self.kv)
            if known is None or known.state != step.before:
                return False
            waiting_groups.put(step.entry, self.kv)
            return True

    def _signal(self, step: steps.Signal) -> None:
        """Those who wait for it in GCS wait for a group of this id: it comes; or it comes and goes, and was never reserved."""
        group_id = signal_id(step.group_id)
        plan = GroupPlan(group_id, b"", job_id=group_id[-8:], name=signal_name(group_id))
        self.create(plan, [_EVERYWHERE if step.created else _NOWHERE])
        if not step.created:
            self.remove(group_id)

    def _calls(self) -> GcsCalls:
        if self._gcs_calls is None:
            self._gcs_calls = GcsCalls(ray.get_runtime_context().gcs_address)
        return self._gcs_calls


def _accessor() -> Any:
    return state._connect_and_get_accessor()


def _spec(plan: GroupPlan, bundles: list[dict[str, float]]) -> GroupSpec:
    return GroupSpec(
        group_id=plan.group_id,
        name=plan.name,
        strategy=plan.strategy,
        job_id=plan.job_id,
        actor_id=plan.actor_id,
        actor_detached=plan.actor_detached,
        detached=plan.detached,
        soft_target=plan.soft_target,
        topology=dict(plan.topology),
        bundles=bundles,
    )
