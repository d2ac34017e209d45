"""What passes the core worker's stand-in: a stub takes the place of Ray's own, so no cluster is needed."""

import pickle
from types import FunctionType
from typing import Any

import pytest
import ray
from ray import Language

from remora.live import installed
from remora.live.attach import install
from remora.live.attach.core_worker import CoreWorkerWithTokens, latest
from remora.live.submit.core_call import signature
from remora.live.submit.tickets import Ticket
from remora.wire.rewrite import Defaults

KNOWN = signature("submit_task")


class Lazy:
    """An argument that submits a task of its own when it is pickled, as lazy data frames do."""

    def __init__(self, then: Any) -> None:
        self.then = then


class Inner:
    """Pickles the arguments while it submits, as Ray's core worker does."""

    def __init__(self) -> None:
        self.submitted: list[str] = []

    def submit_task(self, *call: Any) -> list[str]:
        for argument in call[KNOWN.at["args"]]:
            if isinstance(argument, Lazy):
                argument.then()
        self.submitted.append(call[KNOWN.at["function_descriptor"]])
        return ["ref"]


class Options:
    plain = Ticket("plain")

    class waiting:  # noqa: N801
        @staticmethod
        def note(*_: Any) -> None: ...

    def usual(self, ticket: Ticket | None) -> Ticket | None:
        return self.plain if ticket is None else None

    def tokens(self, ticket: Ticket, resources: Any, takers: str = "") -> dict[str, float]:
        return {}

    def cluster(self) -> None: ...


class Owner:
    submitter: Any = Options()


class Submitter:
    def __init__(self) -> None:
        self.inner = Inner()
        self.proxy = CoreWorkerWithTokens(self.inner, Owner())

    def __call__(self, who: str, *args: Any, ticket: Ticket | None = None, returns: int = 1) -> Any:
        """Submit, and say how to submit it again."""
        given = {
            "args": list(args),
            "num_returns": returns,
            "function_descriptor": who,
            "label_selector": ticket,
            "resources": {"CPU": 1.0},
            "max_retries": 3,
            "language": Language.PYTHON,
            "name": "",
        }
        call: list[Any] = [None] * len(KNOWN.at)
        for name, value in given.items():
            call[KNOWN.at[name]] = value
        self.proxy.submit_task(*call)
        return latest.submit


@pytest.fixture
def submit() -> Submitter:
    latest.submit = None
    return Submitter()


def test_what_is_kept_is_how_the_task_itself_was_submitted(submit):
    kept = submit("f", Lazy(lambda: submit("g")))
    assert submit.inner.submitted == ["g", "f"]
    kept([])
    assert submit.inner.submitted[2:] == ["f"]


@pytest.mark.parametrize("other", [{"ticket": Ticket("special")}, {"returns": -2}], ids=["not usual", "streams"])
def test_what_cannot_be_submitted_again_is_not_taken_for_a_task_that_its_arguments_submit(submit, other):
    assert submit("f", Lazy(lambda: submit("g")), **other) is None
    assert submit.inner.submitted == ["g", "f"]


def rays(function: Any) -> Any:
    """The function as if a module of Ray's own had it."""
    return FunctionType(function.__code__, {"__name__": "ray.fake"}, closure=function.__closure__)


def test_a_task_that_is_submitted_in_the_middle_of_another_at_any_moment_leaves_no_trace(submit):
    """As when garbage is collected, and what collects it submits a task."""

    def stock(function: Any, *_: Any) -> list[str]:
        submit(function.__name__)
        if function is f:
            remote(g)
        return ["ref"]

    f, g = ray.remote(_f), ray.remote(_g)
    f.__name__, g.__name__ = "f", "g"
    install.arrive(pickle.dumps(Defaults()))
    installation: Any = installed.current()
    try:
        installation._worker.core_worker = submit.proxy
        remote = installation._around_task(rays(stock))
        remote(f)
        kept = f.__dict__[install._REPLAYS]._kept
    finally:
        install.uninstall()
    assert submit.inner.submitted == ["f", "g"]
    kept[0].submit([])
    assert submit.inner.submitted[2:] == ["f"]
    assert latest.submit is None


def _f() -> None: ...


def _g() -> None: ...
