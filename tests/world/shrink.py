"""A long story made short: actions are taken out as long as the same rule is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.world.faults import ControllerDies, ProcessDies, ProcessStops
from tests.world.script import Action, Creates, JobBegins, NodeJoins, OpensCluster, Options, Script, Submits, Task

Fails = Callable[[Script], bool]


def shrink(script: Script, fails: Fails, most: int = 400) -> Script:
    """Return the shortest script found, in at most so many replays, for which ``fails`` still holds."""
    left = _Budget(most, fails)
    actions = _without_parts(list(script), left)
    actions = _simpler(actions, left)
    return tuple(_without_parts(actions, left))


class _Budget:
    def __init__(self, most: int, fails: Fails) -> None:
        self.left = most
        self._fails = fails

    def fails(self, actions: list[Action]) -> bool:
        self.left -= 1
        return self.left >= 0 and self._fails(tuple(actions))


def _without_parts(actions: list[Action], budget: _Budget) -> list[Action]:
    """Delta debugging: half of it, a quarter of it, down to each one by itself."""
    size = max(len(actions) // 2, 1)
    while True:
        begin, found = 0, False
        while begin < len(actions) and budget.left > 0:
            tried = actions[:begin] + actions[begin + size :]
            if tried and budget.fails(tried):
                actions, found = tried, True
            else:
                begin += size
        if size == 1 and not found:
            return actions
        if budget.left <= 0:
            return actions
        size = size if size == 1 else max(size // 2, 1)


def _simpler(actions: list[Action], budget: _Budget) -> list[Action]:
    """Each action with less in it."""
    for index in range(len(actions)):
        again = True
        while again and budget.left > 0:
            again = False
            for tried in _variants(actions[index]):
                changed = [*actions[:index], tried, *actions[index + 1 :]]
                if budget.fails(changed):
                    actions, again = changed, True
                    break
    return actions


def _variants(action: Action) -> list[Action]:
    found: list[Action] = []
    if isinstance(action, Submits):
        found += [replace(action, task=task) for task in _tasks(action.task)]
        if action.cluster:
            found.append(replace(action, cluster=""))
    elif isinstance(action, Creates):
        found += [replace(action, actor=replace(action.actor, options=options)) for options in _options(action.actor.options)]
        if action.actor.max_restarts:
            found.append(replace(action, actor=replace(action.actor, max_restarts=0)))
        if action.actor.detached:
            found.append(replace(action, actor=replace(action.actor, detached=False)))
        if action.cluster:
            found.append(replace(action, cluster=""))
    elif isinstance(action, OpensCluster) and action.parent:
        found.append(replace(action, parent=""))
    elif isinstance(action, (ControllerDies,)) and action.effects:
        found.append(replace(action, effects=0))
    elif isinstance(action, ProcessDies | ProcessStops) and action.steps:
        found.append(replace(action, steps=0))
    elif isinstance(action, NodeJoins) and action.labels:
        found.append(replace(action, labels=()))
    elif isinstance(action, JobBegins) and action.node != "n0":
        found.append(replace(action, node="n0"))
    return found


def _tasks(task: Task) -> list[Task]:
    found: list[Task] = [replace(task, options=options) for options in _options(task.options)]
    for index, child in enumerate(task.children):
        rest = (*task.children[:index], *task.children[index + 1 :])
        found.append(replace(task, children=rest))
        if isinstance(child, Task):
            found += [
                replace(task, children=(*task.children[:index], simpler, *task.children[index + 1 :]))
                for simpler in _tasks(child)
            ]
    if task.inside:
        found.append(replace(task, inside=""))
    return found


def _options(options: Options) -> list[Options]:
    simpler = (
        replace(options, fallbacks=()),
        replace(options, rules=()),
        replace(options, tolerations=()),
        replace(options, labels=()),
        replace(options, selector=(), fallbacks=()),
    )
    found = [each for each in simpler if each != options]
    if options.gpus:
        found.append(replace(options, gpus=0.0))
    if options.cpus != 1.0:
        found.append(replace(options, cpus=1.0))
    return found
