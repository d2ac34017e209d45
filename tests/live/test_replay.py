"""What Ray worked out once is used again: with the same outcome, and only as long as it would work out the same."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import ray
import ray.remote_function
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually

import remora
from remora.live import installed
from remora.live.attach import replay
from remora.live.attach.replay import copied, is_rays


def _both(*values: Any, **named: Any) -> tuple[Any, ...]:
    return (*values, *named.items())


class Watched:
    """The core worker of this process: what reaches it, and how often Ray worked something out on the way there."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.worked_out = 0

    def __call__(self, submitted: Any) -> tuple[list[Any], bool]:
        """What one submission came to, and whether Ray was asked."""
        before = self.worked_out
        submitted()
        return self.calls[-1], self.worked_out > before


@pytest.fixture
def watched(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Nothing is submitted for good: only what would be is of interest."""
    found = Watched()
    installation: Any = installed.current()
    assert installation is not None
    proxy = installation._worker.core_worker
    real = proxy.remora_inner

    class Inner:
        def submit_task(self, *call: Any) -> list[Any]:
            found.calls.append(list(call))
            return [ray.ObjectRef.nil()] * max(call[4], 1)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    options = ray._common.utils.resources_from_ray_options

    def counted(*args: Any) -> Any:
        found.worked_out += 1
        return options(*args)

    monkeypatch.setattr(ray._common.utils, "resources_from_ray_options", counted)
    proxy.remora_inner = Inner()
    proxy.__dict__.pop("submit_task", None)
    yield found
    proxy.remora_inner = real
    proxy.__dict__.pop("submit_task", None)


TABLE: list[dict[str, Any]] = [
    {},
    {"num_cpus": 2, "name": "named"},
    {"num_cpus": 0.5, "memory": 1000, "resources": {"accel": 0.5}},
    {"max_retries": 0},
    {"max_retries": -1, "retry_exceptions": True},
    {"num_returns": 3},
    {"scheduling_strategy": "SPREAD"},
    {"label_selector": {"zone": "in(a, b)"}},
    {"tolerations": {"gpu_node": "exists()"}, "num_gpus": 1},
    {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]},
    {"_labels": {"who": "me"}, "enable_task_events": False},
]


@pytest.mark.core
@pytest.mark.parametrize("options", TABLE, ids=str)
def test_what_is_used_again_is_what_ray_would_work_out(watched: Watched, options: dict[str, Any]) -> None:
    task = ray.remote(_both)
    remote = (task.options(**options) if options else task).remote
    submit = functools.partial(remote, 1, b=2)
    first, asked = watched(submit)
    assert asked
    again, asked = watched(submit)
    assert not asked
    assert again == first
    other, asked = watched(functools.partial(remote, 7))
    assert not asked
    assert other != first
    assert [each for at, each in enumerate(other) if at != 2] == [each for at, each in enumerate(first) if at != 2]


def test_results_are_given_out_as_ray_gives_them_out(world: World) -> None:
    one, three = ray.remote(_both), ray.remote(_both).options(num_returns=3)
    for value in range(3):
        assert ray.get(one.remote(value, b=2), timeout=60) == (value, ("b", 2))
        assert ray.get(three.remote(value, 1, 2), timeout=60) == [value, 1, 2]
        with pytest.raises(TypeError, match="too many positional"):
            ray.remote(lambda: None).remote(value)


@pytest.mark.parametrize(
    "change",
    ["retries", "hook", "debugger", "captured", "exported"],
)
def test_whatever_ray_looks_at_makes_it_look_again(watched: Watched, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    task = ray.remote(_both)
    watched(task.remote)
    assert not watched(task.remote)[1]
    installation: Any = installed.current()
    assert installation is not None
    seen: list[Any] = []
    if change == "retries":
        default = ray._common.ray_option_utils.task_options["max_retries"]
        monkeypatch.setattr(default, "default_value", default.default_value)
        monkeypatch.setenv("RAY_TASK_MAX_RETRIES", "5")
    elif change == "hook":
        monkeypatch.setattr(ray.remote_function, "_task_launch_hook", lambda *told: seen.append(told))
    elif change == "debugger":
        monkeypatch.setattr(installation._worker, "debugger_breakpoint", b"here")
    elif change == "captured":
        proxy = installation._worker.core_worker
        monkeypatch.setattr(proxy, "should_capture_child_tasks_in_placement_group", lambda: True, raising=False)
    else:
        task._last_export_cluster_and_job = None
    call, asked = watched(task.remote)
    assert asked
    assert call[6] == (5 if change == "retries" else 3)
    assert bool(seen) == (change == "hook")
    assert call[10] == (b"here" if change == "debugger" else b"")


def test_a_value_that_the_user_has_changed_since_is_seen(watched: Watched) -> None:
    amounts = {"accel": 0.5}
    task = ray.remote(resources=amounts)(_both)
    assert watched(task.remote)[0][5]["accel"] == 0.5
    assert not watched(task.remote)[1]
    amounts["accel"] = 0.25
    call, asked = watched(task.remote)
    assert asked
    assert call[5]["accel"] == 0.25


def test_whoever_says_something_else_each_time_is_not_learned_from_for_ever(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_MOST_KEEPING", 20)
    task = ray.remote(_both)
    for number in range(20):
        assert watched(task.options(name=f"task {number}").remote)[0][3] == f"task {number}"
    assert not watched(task.options(name="task 19").remote)[1], "the last ones are known"
    for _ in range(2):
        call, asked = watched(task.options(name="another").remote)
        assert (call[3], asked) == ("another", True)


def test_what_only_its_author_can_compare_is_never_kept() -> None:
    assert copied({"num_cpus": 1, "resources": {"a": 1}, "tolerations": [{"key": "a"}]}) is not None
    assert copied({"scheduling_strategy": object()}) is None
    assert copied({"retry_exceptions": [ValueError]}) is None


def test_whoever_has_put_something_around_the_submission_sees_every_task(stock: World) -> None:
    """As tracers do: then nothing is used again."""
    rays, seen = ray.remote_function.RemoteFunction._remote, []
    assert is_rays(rays)

    @functools.wraps(rays)
    def traced(*args: Any, **kwargs: Any) -> Any:
        seen.append(args[0])
        return rays(*args, **kwargs)

    assert not is_rays(traced)
    ray.remote_function.RemoteFunction._remote = traced
    try:
        remora.attach()
        task = ray.remote(_both)
        assert ray.get([task.remote(value) for value in range(3)], timeout=60) == [(0,), (1,), (2,)]
        assert len(seen) == 3
    finally:
        remora.detach()
        assert ray.remote_function.RemoteFunction._remote is traced
        ray.remote_function.RemoteFunction._remote = rays


def test_a_worker_that_is_in_a_group_and_then_not_submits_into_it_and_then_not(world: World) -> None:
    @ray.remote(num_cpus=0)
    def inner() -> bool:
        return get_current_placement_group() is not None

    @ray.remote(num_cpus=0.5)
    def outer() -> list[bool]:
        return [ray.get(inner.remote()) for _ in range(3)]

    group = placement_group([{"CPU": 1}])
    with contextlib.ExitStack() as stack:
        stack.callback(remove_placement_group, group)
        inside = outer.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
        )
        for _ in range(3):
            assert ray.get(outer.remote(), timeout=60) == [False] * 3
            assert ray.get(inside.remote(), timeout=60) == [True] * 3


def test_an_argument_does_not_live_longer_than_its_task(world: World) -> None:
    task = ray.remote(_both)
    kept = ray.put(b"x" * 1000)
    name = kept.hex().encode()
    ray.get([task.remote(kept), task.remote(kept)], timeout=60)
    counts = ray._private.worker.global_worker.core_worker.get_all_reference_counts
    assert name in counts()
    del kept
    eventually(lambda: name not in counts())


class Lazy:
    """Submits a task while it is pickled, as lazy data frames do."""

    def __init__(self, then: Any) -> None:
        self.then = then

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (ray.get(self.then(), timeout=60),)


def test_an_argument_that_submits_another_task_is_not_confused_with_the_task(world: World) -> None:
    f, g = ray.remote(lambda value: ("f", value)), ray.remote(lambda value: value)
    for number in range(3):
        assert ray.get(f.remote(Lazy(functools.partial(g.remote, number))), timeout=60) == ("f", number)
        assert ray.get(f.remote(7), timeout=60) == ("f", 7)
