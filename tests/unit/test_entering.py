"""``with VirtualCluster(...)`` in a driver: one at a time enters an object, and it ends whatever happened inside. A stub takes
the place of the way to the controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from remora import VirtualCluster
from remora.errors import ControllerAwayError, InvalidVirtualClusterError
from remora.live import perform
from remora.live.clusters import entering, scopes
from remora.live.clusters.cancelling import Made
from remora.model.taints import Tolerations
from remora.wire.calls import Call, CloseCluster, CreateCluster


class Link:
    """Reserves what is asked for; ``meanwhile`` happens before it answers."""

    def __init__(self) -> None:
        self.asked: list[CreateCluster] = []
        self.told: list[Call] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def ask(self, call: Call) -> dict[str, Any] | None:
        if not isinstance(call, CreateCluster):
            self.told.append(call)
            return None
        self.asked.append(call)
        self.meanwhile()
        return {"cluster_id": f"vc{len(self.asked)}", "state": "READY", "reason": ""}

    def tell_soon(self, call: Call) -> None:
        self.told.append(call)


class Driver:
    """What is known of the connection of this process."""

    def __init__(self) -> None:
        self.job_id: str | None = "01000000"

    def get_job_id(self) -> str:
        if self.job_id is None:
            raise RuntimeError("Ray has not been initialized")
        return self.job_id


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(ray, "is_initialized", lambda: driver.job_id is not None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: driver)
    monkeypatch.setattr(ray._private.worker, "global_worker", SimpleNamespace(worker_id=b"w1", mode=ray.SCRIPT_MODE))
    monkeypatch.setattr(ray, "cancel", lambda *_, **__: driver.get_job_id())
    monkeypatch.setattr(entering, "_tolerations", Tolerations)
    return driver


@pytest.fixture
def link(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    link = Link()
    monkeypatch.setattr(perform, "link", link)
    scopes.set_base(None)
    yield link
    scopes.forget()


def closed(link: Link) -> list[str]:
    return [call.cluster_id for call in link.told if isinstance(call, CloseCluster)]


def test_of_two_threads_that_enter_one_object_the_second_is_refused_while_the_first_still_waits(link: Link) -> None:
    spec, answers = VirtualCluster(flexible_resource_max={"CPU": 1}), []

    def enter() -> None:
        try:
            with spec:
                answers.append(scopes.peek())
        except InvalidVirtualClusterError as error:
            answers.append(str(error))

    def another() -> None:
        link.meanwhile = lambda: None
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(10)

    link.meanwhile = another
    enter()
    refused, entered = answers
    assert "is in use already" in str(refused)
    assert entered == "vc1"
    assert closed(link) == [each.ask for each in link.asked]
    with spec:  # and afterwards it can be entered again
        assert scopes.peek() == "vc2"


def test_one_that_could_not_be_opened_can_be_entered_again(link: Link) -> None:
    spec = VirtualCluster(flexible_resource_max={"CPU": 1})

    def away() -> None:
        raise ControllerAwayError("it is away")

    link.meanwhile = away
    with pytest.raises(ControllerAwayError), spec:
        raise AssertionError("it was never opened")
    link.meanwhile = lambda: None
    with spec:
        assert scopes.peek() == "vc2"


def shut_down(driver: Driver) -> None:
    driver.job_id = None


def connect_anew(driver: Driver) -> None:
    driver.job_id = "02000000"


def detach(_: Driver) -> None:
    scopes.forget()


@pytest.mark.parametrize(
    ("happens", "is_closed"), [(shut_down, False), (connect_anew, False), (detach, True), (lambda _: None, True)]
)
def test_whatever_happens_inside_the_users_exception_comes_out_and_nobody_is_inside_any_more(
    link: Link, driver: Driver, happens: Callable[[Driver], None], is_closed: bool
) -> None:
    """What belonged to a job that is over has ended with it, and nobody connects for it again."""

    def program() -> None:
        with VirtualCluster(flexible_resource_max={"CPU": 1}, cancel=True):
            scopes.keep([object()])
            happens(driver)
            raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        program()
    assert scopes.peek() is None
    assert closed(link) == [each.ask for each in link.asked] * is_closed


def test_one_whose_work_is_being_stopped_when_the_user_interrupts_is_given_back(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Made) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Made, "stop", stop)
    with pytest.raises(KeyboardInterrupt), VirtualCluster(flexible_resource_max={"CPU": 1}, cancel=True):
        pass
    assert closed(link) == [each.ask for each in link.asked]
