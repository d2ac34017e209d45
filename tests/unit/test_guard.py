"""What is submitted once more from a node that no longer accepts it: a stub takes the place of Ray's own, so no cluster is
needed."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray._common.signature import DUMMY_TYPE, recover_args
from ray._raylet import STREAMING_GENERATOR_RETURN

from remora.live.submit.tickets import RETURNS
from remora.live.worker import admitting, guard


class Remote:
    """A remote function that runs at once: its results are pickled, each of them or all as one, as its options say."""

    def __init__(self, function: Callable[..., Any], returns: Any = None) -> None:
        self._function = function
        self._returns = returns or ("streaming" if inspect.isgeneratorfunction(function) else 1)

    def options(self, num_returns: Any = None, **_: Any) -> Remote:
        return Remote(self._function, num_returns)

    def remote(self, *args: Any) -> Any:
        made = self._function(*args)
        if self._returns == 1:
            return pickle.dumps(made)
        return map(pickle.dumps, made) if self._returns == "streaming" else [pickle.dumps(each) for each in made]


def count(number: int) -> Iterator[int]:
    yield from range(number)


def returns_a_generator(number: int) -> Any:
    return count(number)


def returns_a_list(number: int) -> list[int]:
    return list(range(number))


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts here is submitted once more."""
    monkeypatch.setattr(guard, "_closed", lambda: "class")
    monkeypatch.setattr(guard, "_options", dict)
    monkeypatch.setattr(admitting, "resubmitted", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(ray, "remote", Remote)
    monkeypatch.setattr(ray, "get", lambda ref: pickle.loads(ref) if isinstance(ref, bytes) else list(map(pickle.loads, ref)))


@pytest.mark.parametrize(
    ("function", "returns"),
    [
        (count, STREAMING_GENERATOR_RETURN),
        (count, 3),
        (returns_a_generator, 3),
        (returns_a_list, 3),
        (returns_a_list, 1),
    ],
)
def test_what_is_handed_on_returns_as_many_as_it_was_asked_for(
    fenced: None, function: Callable[..., Any], returns: int
) -> None:
    hidden = {} if returns == 1 else {RETURNS: returns}
    args, kwargs = guard.without_hidden(recover_args)([DUMMY_TYPE, 3, *itertools.chain(*hidden.items())])
    made = guard.Guarded(function)(*args, **kwargs)
    assert returns != STREAMING_GENERATOR_RETURN or inspect.isgenerator(made)  # or Ray would refuse to stream it
    assert list(made) == [0, 1, 2]


def test_no_frame_of_ours_is_in_the_traceback_of_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_closed", lambda: None)
    monkeypatch.setattr("remora.live.clusters.scopes.begin", lambda _: None)

    def fail() -> None:
        raise ValueError([frame.name for frame in traceback.extract_stack()])

    run = guard.Guarded(fail)
    assert inspect.unwrap(run) is fail
    with pytest.raises(ValueError, match="fail") as caught:
        run()
    frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert frames[-2:] == ["test_no_frame_of_ours_is_in_the_traceback_of_what_fails", "fail"]


@pytest.mark.filterwarnings("ignore:num_returns='dynamic'")
@pytest.mark.parametrize("returns", ["streaming", "dynamic"])
def test_ray_itself_refuses_to_stream_what_is_no_generator_function(returns: str) -> None:
    """So that whoever returns a generator says how many there are in it, or fails without us too."""
    with pytest.raises(ValueError, match="can only be used with generator functions"):
        ray.remote(returns_a_generator).options(num_returns=returns)
