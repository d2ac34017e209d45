"""Who creates placement groups beside the controller, and keeps those that wait: it dies with it, and its successor goes on.

Mirrors ``live.host.group_host``: which steps there are to a group is ``remora.protocol.group_steps``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.world.clients import Submitter
from tests.world.groups import CREATED, GroupEntry
from tests.world.processes import LATER, Process, Thread
from tests.world.raylet import to_units

from remora.errors import RemoraError
from remora.model.groups import Bundle
from remora.protocol import steps
from remora.protocol.group_steps import drop_group, keep_group, make_group
from remora.protocol.steps import Found
from remora.wire.calls import DropGroup, MakeGroup
from remora.wire.group_plans import WAITING, GroupPlan, LateEntry
from remora.wire.group_requests import class_of, decode_group
from remora.wire.keys import LATE_GROUPS
from remora.wire.tokens import is_real

if TYPE_CHECKING:
    from tests.world.world import World

Answered = Callable[[Any, Exception | None], None]

_LOOK_SECONDS = 0.01
_SEEN_SECONDS = 0.02


class GroupSteps(Submitter):
    """The steps that are made of placement groups in GCS and of what is kept of those that wait."""

    def perform(self, thread: Thread, step: Any) -> Any:
        found = _PERFORM.get(type(step))
        return found(self, thread, step) if found is not None else super().perform(thread, step)

    def _until(self, thread: Thread, look: Callable[[], Any], seconds: float, at_last: Any, every: float) -> Any:
        """Answer with what a look finds, or at last with something else."""
        found = look()
        if found is not None:
            return found
        end = self._world.now + seconds

        def again() -> None:
            if thread.over:
                return
            found = look()
            if found is None and self._world.now < end - 1e-9:
                self._world.after(every, again)
            else:
                thread.go(at_last if found is None else found)

        self._world.after(min(every, seconds), again)
        return LATER

    def _wait_for_tokens(self, thread: Thread, step: steps.WaitForTokens) -> Any:
        def look() -> bool | None:
            views = self._world.gcs.views
            wanted = [(token, node_id) for token, nodes in step.nodes.items() for node_id in nodes]
            return all(node_id in views and token in views[node_id].total for token, node_id in wanted) or None

        return self._until(thread, look, step.seconds, False, _SEEN_SECONDS)

    def _create(self, thread: Thread, step: steps.CreateGroup) -> Any:
        plan = step.plan
        if plan.group_id not in self._world.gcs.groups.entries:
            scope = self._world.group_scopes.get(plan.group_id)
            entry = GroupEntry(
                plan.group_id,
                plan.name,
                plan.job_id,
                [to_units(bundle) for bundle in step.bundles],
                plan.strategy,
                detached=plan.detached,
                cluster=scope.name if scope is not None else None,
                classes=[class_of(bundle.nodes) for bundle in _option(plan, step.bundles)],
            )
            self._world.gcs.groups.create(entry)
        thread.later(0.002, "")
        return LATER

    def _look(self, thread: Thread, step: steps.LookAtGroup) -> Any:
        def look() -> Found | None:
            entry = self._world.gcs.groups.entries.get(step.group_id)
            if entry is None or entry.is_hopeless:
                return Found.HOPELESS
            if entry.state == CREATED:
                return Found.RESERVED
            return Found.QUEUED if entry.tries and not step.patient else None

        return self._until(thread, look, step.seconds, Found.QUEUED, _LOOK_SECONDS)

    def _remove(self, thread: Thread, step: steps.RemoveGroup) -> Any:
        self._world.gcs.groups.remove(step.group_id)
        thread.later(0.002)
        return LATER

    def _is_name_free(self, _: Thread, __: steps.IsNameFree) -> Any:
        return True

    def _is_wanted(self, _: Thread, step: steps.IsWanted) -> Any:
        return self._world.gcs.jobs.get(step.plan.job_id, False)

    def _remember(self, thread: Thread, step: steps.Remember) -> Any:
        self._put(step.entry)
        thread.later(0.001)
        return LATER

    def _recall(self, _: Thread, step: steps.Recall) -> Any:
        data = self._world.gcs.kv.get(LATE_GROUPS.key(step.group_id))
        return LATE_GROUPS.read(data) if data is not None else None

    def _advance(self, thread: Thread, step: steps.Advance) -> Any:
        data = self._world.gcs.kv.get(LATE_GROUPS.key(step.entry.plan.group_id))
        done = data is not None and LATE_GROUPS.read(data).state == step.before
        if done:
            self._put(step.entry)
        thread.later(0.001, done)
        return LATER

    def _forget(self, _: Thread, step: steps.Forget) -> Any:
        self._world.gcs.kv.pop(LATE_GROUPS.key(step.group_id), None)

    def _signal(self, _: Thread, step: steps.Signal) -> Any:
        if step.created:
            self._world.signals.add(step.group_id)

    def _end_signal(self, _: Thread, step: steps.EndSignal) -> Any:
        self._world.signals.discard(step.group_id)

    def _put(self, entry: LateEntry) -> None:
        self._world.gcs.kv[LATE_GROUPS.key(entry.plan.group_id)] = LATE_GROUPS.write(entry)


class _Inside(GroupSteps):
    """In the process of the controller: what it is asked does not travel."""

    def perform(self, thread: Thread, step: Any) -> Any:
        if isinstance(step, steps.Ask):
            self._world.host.inside(step.call, lambda value, error: None if thread.over else thread.go(value, error))
            return LATER
        if isinstance(step, steps.Tell):
            self._world.host.inside(step.call, lambda _, __: None)
            return None
        return super().perform(thread, step)


class Keeper(Process):
    """One for each controller."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"keeper{number}", "", "")
        self.submitter = _Inside(world, self)
        self._kept: set[str] = set()

    def resume(self) -> None:
        """Keep on what one before it kept."""
        for key in sorted(self.world.gcs.kv):
            if key.startswith(LATE_GROUPS.prefix):
                self._keep(LATE_GROUPS.read(self.world.gcs.kv[key]))

    def answer(self, call: MakeGroup | DropGroup, answered: Answered) -> None:
        if isinstance(call, DropGroup):
            self.run(lambda _: drop_group(call.group_id), answered)
            return

        def made(value: Any, error: Exception | None) -> None:
            if error is None and value["state"] == WAITING:
                self._keep(LateEntry(WAITING, call.plan, value["reason"], value["suggestions"]))
            answered(value, error if isinstance(error, RemoraError) else None)

        self.run(lambda _: make_group(call.plan), made)

    def _keep(self, entry: LateEntry) -> None:
        if entry.plan.group_id not in self._kept:
            self._kept.add(entry.plan.group_id)
            self.run(lambda _: keep_group(entry), lambda _, __: self._kept.discard(entry.plan.group_id))


def _option(plan: GroupPlan, shapes: list[dict[str, float]]) -> Sequence[Bundle]:
    """The option of a group that these are the bundles of."""
    wanted = [{name: amount for name, amount in shape.items() if is_real(name)} for shape in shapes]
    options = decode_group(plan.group).options
    return next(option for option in options if [bundle.resources.to_dict() for bundle in option] == wanted)


_PERFORM: dict[type, Callable[..., Any]] = {
    steps.WaitForTokens: GroupSteps._wait_for_tokens,
    steps.CreateGroup: GroupSteps._create,
    steps.LookAtGroup: GroupSteps._look,
    steps.RemoveGroup: GroupSteps._remove,
    steps.IsNameFree: GroupSteps._is_name_free,
    steps.IsWanted: GroupSteps._is_wanted,
    steps.Remember: GroupSteps._remember,
    steps.Recall: GroupSteps._recall,
    steps.Advance: GroupSteps._advance,
    steps.Forget: GroupSteps._forget,
    steps.Signal: GroupSteps._signal,
    steps.EndSignal: GroupSteps._end_signal,
}
