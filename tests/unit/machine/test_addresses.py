"""Which Ray a command talks to, without one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from remora.errors import InvalidInputError
from remora.machine import addresses
from remora.machine.addresses import Target, find_target


class Machine:
    """This machine with Rays that answer; ``latest`` is what ``ray start`` has written down."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.rays = [f"127.0.0.1:{each.getsockname()[1]}" for each in self._sockets]
        self.running: list[str] = []
        self.environ = {"RAY_TMPDIR": str(folder), "REMORA_HOME": str(folder / "home")}
        self._file = folder / "ray" / "ray_current_cluster"
        self._file.parent.mkdir()
        monkeypatch.setattr(addresses, "running_rays", lambda: self.running)

    def latest(self, address: str) -> None:
        self._file.write_text(address + "\n", encoding="utf-8")

    def close(self) -> None:
        for each in self._sockets:
            each.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path, monkeypatch)
    yield made
    made.close()


def test_what_is_typed_comes_before_the_variable_and_that_before_what_runs_here(machine: Machine) -> None:
    one, two, three = machine.rays
    machine.running = [three]
    environ = {**machine.environ, "RAY_ADDRESS": two}
    assert find_target(one, environ, changes=True) == Target(one, "--address")
    assert find_target(None, environ, changes=True) == Target(two, "from RAY_ADDRESS")
    assert find_target(None, machine.environ, changes=True) == Target(three, "runs here")
    assert find_target("auto", environ).address == three
    assert find_target(one, environ).line == f"Ray at {one} (--address)"


def test_the_cluster_of_remora_up_comes_before_others_of_this_machine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = machine.rays
    machine.running = [one, two]
    machine.latest(one)
    monkeypatch.setattr(addresses, "running_address", lambda environ: two)
    assert find_target(None, machine.environ) == Target(two, "from 'remora up'")


def test_of_several_rays_one_is_looked_at_and_none_is_changed(machine: Machine) -> None:
    one, two, three = machine.rays
    machine.running = [one, two]
    machine.latest(two)
    assert find_target(None, machine.environ) == Target(two, "what 'ray start' began last here, of 2 Rays on this machine")
    machine.latest(three)  # it has ended since
    assert find_target(None, machine.environ) == Target(one, "the first of 2 Rays on this machine")
    with pytest.raises(InvalidInputError) as caught:
        find_target(None, machine.environ, changes=True)
    assert f"several Rays run on this machine ({', '.join(sorted([one, two]))})" in str(caught.value)
    assert f"--address {min(one, two)}" in str(caught.value)


WRONG = {
    "nobody there": ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    "no port": ("10.0.0.1", "is not HOST:PORT; for example --address 10.0.0.1:6379"),
    "no number": ("head:port", "is not HOST:PORT"),
    "too large a port": ("127.0.0.1:99999999", "no Ray cluster answers"),
    "Ray Client": ("ray://head:10001", "is one of Ray Client"),
    "the dashboard": ("http://head:8265", "is a web server's, not a GCS's: for example --address head:6379"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_address_is_said_at_once(name: str) -> None:
    address, message = WRONG[name]
    for given, environ in ((address, {}), (None, {"RAY_ADDRESS": address})):
        with pytest.raises(InvalidInputError) as caught:
            find_target(given, environ)
        assert message in str(caught.value)


def test_where_no_ray_runs_that_is_said(machine: Machine) -> None:
    with pytest.raises(InvalidInputError, match="no Ray cluster answers here: start one, or give --address"):
        find_target(None, machine.environ)


def test_rays_are_known_by_their_raylets() -> None:
    lines = [
        ["/x/ray/core/src/ray/raylet/raylet", "--a", "--gcs-address=10.0.0.1:6379"],
        ["/x/raylet", "--gcs-address=10.0.0.1:6379"],
        ["/x/raylet", "--gcs-address=10.0.0.2:6379"],
        ["python", "worker.py", "--gcs-address=10.0.0.3:6379"],
        [],
        None,
    ]
    assert addresses._addresses(lines) == ["10.0.0.1:6379", "10.0.0.2:6379"]
