"""The engine: calls from many threads, writes at the same time, and nothing asked of the cluster while its lock is held."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, LONELY, spec, wanted, wanted_task

from remora import ControllerAwayError, UnknownNameError
from remora.controller import engine as engine_module
from remora.controller.engine import Engine
from remora.port.contract import JOB, RUNNING, NodeView, Observation, Work
from remora.port.memory_port import MemoryPort
from remora.wire import calls
from remora.wire.asks import encode_ask
from remora.wire.tokens import OFFERED, class_token, lease_token

PLAIN = spec()
TOKEN = class_token(PLAIN.class_id)
SOON = 10.0


class OwnedLock:
    """A lock that knows which thread holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owner: int | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self.owner = threading.get_ident()
        return taken

    def release(self) -> None:
        self.owner = None
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SlowPort(MemoryPort):
    """Every call takes a moment. Counts how many writes are under way, and notes who calls while they hold a lock."""

    def __init__(self, seconds: float = 0.003) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._under_way = 0
        self.seconds = seconds
        self.lock: OwnedLock | None = None
        self.most = 0
        self.offences: list[str] = []
        self.observed = 0
        self.slow: dict[str, float] = {}  # nodes that take longer
        self.broken = False

    def _takes(self, what: str, seconds: float | None = None) -> None:
        if self.lock is not None and self.lock.owner == threading.get_ident():
            self.offences.append(what)
        time.sleep(self.seconds if seconds is None else seconds)

    def observe(self) -> Observation:
        self._takes("observe")
        self.observed += 1
        if self.broken:
            raise OSError("GCS does not answer")
        with self._guard:
            return super().observe()

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        with self._guard:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        try:
            self._takes("resize", self.slow.get(node_id))
            with self._guard:
                return super().resize(node_id, amounts)
        finally:
            with self._guard:
                self._under_way -= 1

    def put(self, key: str, value: bytes | None) -> None:
        self._takes("put")
        with self._guard:
            super().put(key, value)

    def get(self, key: str) -> bytes | None:
        self._takes("get", 0.0)
        return super().get(key)

    def find(self, id_or_name: str | None) -> list[Work]:
        self._takes("find")
        with self._guard:
            return super().find(id_or_name)

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        self._takes("hold")
        with self._guard:
            return super().hold(name, node_id, amounts)

    def let_go(self, name: str) -> None:
        self._takes("let go")
        with self._guard:
            super().let_go(name)

    def view(self, node_id: str) -> NodeView:
        return self._nodes[node_id]

    def offering(self) -> set[str]:
        return {node_id for node_id, view in list(self._nodes.items()) if view.total.get(TOKEN) == OFFERED}


@pytest.fixture
def port() -> SlowPort:
    port = SlowPort()
    for number in range(4):
        port.join(f"n{number}", {"CPU": 4})
    port.submit(Work(JOB, JOB_ID, "", JOB_ID, RUNNING, "RUNNING", ()))
    return port


@pytest.fixture
def engine(port: SlowPort, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with running(port, monkeypatch) as engine:
        yield engine


@contextmanager
def running(port: SlowPort, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Run an engine with a lock that knows its owner. At the end nobody has asked anything of the port while holding it."""
    port.lock = OwnedLock()
    with monkeypatch.context() as patch:
        patch.setattr(engine_module, "threading", Threading(port.lock))
        engine = Engine(port, time.monotonic)
    try:
        yield engine
    finally:
        engine.close()
    assert port.offences == []


class Threading:
    """The module, with this lock as the one that is made next."""

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock

    def Lock(self) -> OwnedLock:  # noqa: N802 - as in the module
        return self._lock

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


def eventually(holds: Callable[[], bool], seconds: float = SOON) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.005)
    return holds()


def place(engine: Engine, **options: Any) -> Any:
    return engine.answer(calls.Place(calls.new_ask(), encode_ask(wanted(cpus=0.01, **options)), JOB_ID))


def test_calls_from_many_threads_are_answered(engine: Engine, port: SlowPort):
    def one(number: int) -> Any:
        match number % 5:
            case 0:
                return place(engine, labels={"k": str(number)})[0]
            case 1:
                return engine.answer(calls.EnsureClass(spec(label_selector={"zone": f"!z{number}"}).encode()))
            case 2:
                task = encode_ask(wanted_task(cpus=0.01, labels={"k": "v"}))
                return engine.answer(calls.Place(f"q{number}", task, JOB_ID))[0]
            case 3:
                return engine.answer(calls.LabelNode(f"n{number % 4}", (("k", str(number)),), [], f"q{number}")) is None
            case _:
                return engine.answer(calls.GetStatus())["nodes"]

    with ThreadPoolExecutor(32) as callers:
        answers = list(callers.map(one, range(200)))
    assert all(answers)
    slots = [answer for number, answer in enumerate(answers) if number % 5 in (0, 2)]
    assert len(set(slots)) == len(slots)


def test_errors_are_raised_in_the_thread_that_asked(engine: Engine):
    with pytest.raises(UnknownNameError, match="no node has the id 'nowhere'"):
        engine.answer(calls.TaintNode("nowhere", (("k", "v"),), []))
    assert engine.answer(calls.FindNode("n1", None)) == "n1"


def test_writes_to_all_nodes_are_in_flight_together(monkeypatch: pytest.MonkeyPatch):
    """Each of them waits for all others: one after the other, none would ever be answered."""
    port = SlowPort(0.001)
    for number in range(60):
        port.join(f"n{number}", {"CPU": 4})
    together, whole = threading.Barrier(60), port.resize
    passed = threading.Event()

    def resize(node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        if not passed.is_set():
            together.wait(SOON)
            passed.set()
        return whole(node_id, amounts)

    with running(port, monkeypatch) as engine:
        monkeypatch.setattr(port, "resize", resize)
        engine.answer(calls.EnsureClass(PLAIN.encode()))
        assert eventually(lambda: len(port.offering()) == 60)
        assert passed.is_set()


def test_no_node_is_written_to_twice_at_a_time(engine: Engine, port: SlowPort):
    whole, busy, twice = port.resize, set[str](), list[str]()

    def once(node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        if node_id in busy:
            twice.append(node_id)
        busy.add(node_id)
        try:
            return whole(node_id, amounts)
        finally:
            busy.discard(node_id)

    port.resize = once  # type: ignore[method-assign]
    with ThreadPoolExecutor(16) as callers:
        list(callers.map(lambda number: place(engine, labels={"k": str(number)}), range(100)))
        list(callers.map(lambda number: engine.answer(calls.TaintNode(f"n{number % 4}", (("k", "v"),), [])), range(8)))
    assert twice == []


def test_a_node_that_does_not_answer_holds_nobody_up(engine: Engine, port: SlowPort):
    port.slow = {"n3": 2.0}
    engine.answer(calls.EnsureClass(PLAIN.encode()))
    assert eventually(lambda: port.offering() == {"n0", "n1", "n2"})
    began = time.monotonic()
    assert engine.answer(calls.TaintNode("n0", (("k", "v"),), [])) is True
    task = encode_ask(wanted_task(labels={"a": "b"}))
    slot, node_id = engine.answer(calls.Place("q1", task, JOB_ID))
    engine.answer(calls.LabelNode("n1", (("zone", "a"),), []))
    assert time.monotonic() - began < 1.5
    assert node_id is not None
    if node_id != "n3":
        assert eventually(lambda: bool(port.view(node_id).total.get(lease_token(slot))))
    port.slow = {}


def test_whoever_asks_waits_only_for_what_the_answer_needs(engine: Engine, port: SlowPort):
    port.slow = {"n3": 2.0}
    cats = [place(engine, **LONELY) for _ in range(4)]
    assert {node_id for _, node_id in cats} == {"n0", "n1", "n2", "n3"}  # all of them have to be written to
    began = time.monotonic()
    engine.answer(calls.Place("q1", encode_ask(wanted_task(labels={"a": "b"})), JOB_ID))
    assert time.monotonic() - began < 1.5
    assert all(eventually(lambda each=each: slot_on(port, each)) for each in cats if each[1] != "n3")  # type: ignore[misc]
    assert time.monotonic() - began < 1.5


def slot_on(port: SlowPort, given: tuple[str, str]) -> bool:
    slot, node_id = given
    return bool(port.view(node_id).total.get(lease_token(slot)))


def test_rounds_are_made_without_anybody_asking(engine: Engine, port: SlowPort):
    engine.answer(calls.EnsureClass(PLAIN.encode()))
    port.join("n9", {"CPU": 4})
    assert eventually(lambda: "n9" in port.offering())


def test_a_port_whose_reports_fail_does_not_end_the_rounds(engine: Engine, port: SlowPort, caplog: pytest.LogCaptureFixture):
    engine.answer(calls.EnsureClass(PLAIN.encode()))
    assert eventually(lambda: len(port.offering()) == 4)
    port.broken = True
    before = port.observed
    assert eventually(lambda: port.observed > before + 1)
    in_b = spec(label_selector={"zone": "!b"})
    engine.answer(calls.EnsureClass(in_b.encode()))  # what needs no report goes on
    assert eventually(lambda: all(class_token(in_b.class_id) in port.view(f"n{number}").total for number in range(4)))
    assert len([record for record in caplog.records if "GCS does not answer" in record.getMessage()]) == 1
    port.broken = False
    port.join("n9", {"CPU": 4})
    assert eventually(lambda: "n9" in port.offering())
    assert engine.answer(calls.GetStatus())["set_aside"] == []


def test_a_report_that_was_asked_for_earlier_is_not_taken_in_later(engine: Engine, port: SlowPort):
    """Two threads look at the same time: the older of two reports would make a node leave that has just joined."""
    engine.answer(calls.EnsureClass(PLAIN.encode()))
    whole, first, may_go = port.observe, threading.Event(), threading.Event()

    def late() -> Observation:
        observation = whole()
        if not first.is_set():
            first.set()
            may_go.wait(SOON)
        return observation

    port.observe = late  # type: ignore[method-assign]
    asking = threading.Thread(target=lambda: engine.answer(calls.GetStatus()))
    asking.start()
    assert first.wait(SOON)
    port.join("n9", {"CPU": 4})
    assert eventually(lambda: "n9" in port.offering())
    may_go.set()
    asking.join(SOON)
    assert not any("left" in entry["text"] for entry in engine.answer(calls.GetEvents()))


def test_close_stops_the_thread_and_whoever_waits(engine: Engine, port: SlowPort):
    port.seconds = 0.5  # so that what it waits for is on its way
    failed: list[Exception] = []

    def ask() -> None:
        try:
            engine.answer(calls.CreateCluster("q1", '{"flexible_resource_min": {"CPU": 16}}', None, JOB_ID, 0, [], 5.0))
        except ControllerAwayError as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert eventually(lambda: bool(engine._controller.registry.records))
    engine.close()
    asking.join(SOON)
    assert not asking.is_alive()
    assert len(failed) == 1
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith(("remora-rounds", "remora-write")) for name in names)
    before = port.observed
    time.sleep(0.3)
    assert port.observed == before


def test_the_lock_of_these_tests_finds_who_calls_while_holding_it(engine: Engine, port: SlowPort):
    """Or the others would prove nothing."""
    with engine._lock:
        port.observe()
    assert port.offences == ["observe"]
    port.offences.clear()


def test_what_is_told_with_a_question_is_taken_in_before_it(engine: Engine, port: SlowPort):
    """A gang that takes all there is, and the next like it in the question that ends it; nobody waits for what comes of a
    message, not even of one that is wrong."""
    spec = json.dumps({"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 4}}] * 4}]})
    for number in range(4):
        told = [calls.CloseCluster(f"q{number - 1}", unused=True), calls.LookAtCluster("nobody")] if number else []
        answer = engine.answer(calls.CreateCluster(f"q{number}", spec, None, JOB_ID, 0, [], 5.0), told)
        assert answer["state"] == "READY", answer
