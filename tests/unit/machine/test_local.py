"""``up`` and ``down`` around a command that only pretends to be ray: what is started, written down and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from remora.errors import InvalidInputError, RemoraError
from remora.machine import local_ray, state
from remora.machine.nodes_file import LocalNode
from remora.machine.processes import Process, Session, boot_id, process, stop

# A node leaves a file when it is alive; it has a child, as a real one; "broken" dies, "orphaning" after its child
# was started, "stubborn" ignores SIGTERM.
PRETEND = """
import os, signal, socket, subprocess, sys, time
from pathlib import Path
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
name = words["--node-name"]
print("pretending to be", name)
if name == "broken":
    sys.exit("no such luck")
if name == "orphaning":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", __file__])
    time.sleep(1.0)
    sys.exit("gone")
if name == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "--head" in sys.argv:
    server = socket.create_server(("", int(words["--port"])))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", __file__])
Path(os.environ["PRETEND_HOME"], name).touch()
time.sleep(100)
"""


def node(name: str) -> LocalNode:
    return LocalNode(name, {"CPU": 1}, {})


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive_folder = folder / "alive"
        self.alive_folder.mkdir()
        self.environ = {**os.environ, "REMORA_HOME": str(folder / "home"), "PRETEND_HOME": str(self.alive_folder)}
        self.told: list[str] = []

    def alive(self, address: str) -> dict[str, str]:
        return {path.name: f"id of {path.name}" for path in self.alive_folder.iterdir()}

    def up(self, *names: str) -> tuple[state.LocalCluster, dict[str, str]]:
        return local_ray.up([node(name) for name in names], self.environ, self.alive, self.told.append)

    def down(self) -> state.LocalCluster | None:
        return local_ray.down(self.environ, self.told.append)

    def saved(self) -> state.LocalCluster | None:
        return state.load(state.home(self.environ))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    script = tmp_path / "ray.py"
    script.write_text(PRETEND, encoding="utf-8")
    monkeypatch.setattr(local_ray, "ray_command", lambda: [sys.executable, str(script)])
    # A Popen that is collected while its process runs says so; here that is the point.
    monkeypatch.setattr(subprocess.Popen, "__del__", lambda self: None)
    made = Machine(tmp_path)
    yield made
    made.down()


def living(cluster: state.LocalCluster) -> list[Process]:
    return [member for session in cluster.sessions() for member in session.living()]


def test_up_waits_for_all_and_down_stops_all(machine: Machine) -> None:
    cluster, ids = machine.up("a", "b", "c")
    assert ids == {"a": "id of a", "b": "id of b", "c": "id of c"}
    assert machine.saved() == cluster
    assert len(living(cluster)) == 6
    assert all(len(each.session.members) == 2 for each in cluster.nodes)
    lines = [Path(f"/proc/{each.session.leader.pid}/cmdline").read_text().split("\0") for each in cluster.nodes]
    assert len({word for line in lines for word in line if word.startswith("--temp-dir=")}) == 3
    assert state.running_address(machine.environ) == cluster.address
    assert machine.down() == cluster
    assert living(cluster) == []
    assert not any(member.is_alive() for each in cluster.nodes for member in each.session.members)
    assert not Path(cluster.folder).exists()
    assert (machine.saved(), state.running_address(machine.environ), machine.down()) == (None, None, None)


def test_a_second_up_is_refused_and_changes_nothing(machine: Machine) -> None:
    cluster, _ = machine.up("a")
    with pytest.raises(InvalidInputError, match=f"at {cluster.address}: .*'remora down'"):
        machine.up("b")
    assert machine.saved() == cluster
    assert len(living(cluster)) == 2


def test_what_died_meanwhile_does_not_stand_in_the_way(machine: Machine) -> None:
    first, _ = machine.up("a")
    stop(first.sessions(), 5.0)
    assert state.running_address(machine.environ) is None
    second, _ = machine.up("a")
    assert second.address != first.address
    assert not Path(first.folder).exists()


def test_a_node_that_dies_is_told_with_its_log_and_nothing_stays(machine: Machine) -> None:
    before = set(Path("/tmp").glob("remora-*"))
    with pytest.raises(RemoraError, match="the node 'broken' did not start") as caught:
        machine.up("a", "broken")
    assert [each for each in Path("/tmp").glob("remora-*") if each not in before and each.is_dir()] == []
    assert not isinstance(caught.value, InvalidInputError)
    assert "  no such luck" in machine.told
    assert machine.saved() is None
    assert not running(machine)


def test_what_a_dying_node_left_behind_is_ended_too(machine: Machine) -> None:
    with pytest.raises(RemoraError, match="the node 'orphaning' did not start"):
        machine.up("a", "orphaning")
    assert not running(machine)


def test_a_home_that_cannot_be_written_is_a_clear_mistake(machine: Machine) -> None:
    machine.environ["REMORA_HOME"] = "/proc/none"
    with pytest.raises(InvalidInputError, match="for example set REMORA_HOME="):
        machine.up("a")
    machine.environ["REMORA_HOME"] = str(machine.folder / "home")


def test_a_node_that_is_never_alive_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ray, "START_SECONDS", 0.5)
    monkeypatch.setattr(machine, "alive", lambda address: {})
    with pytest.raises(RemoraError, match="the node 'a' did not start"):
        machine.up("a", "b")
    assert machine.saved() is None
    assert not running(machine)


def test_an_interrupt_stops_what_was_started(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(address: str) -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "alive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        machine.up("a")
    assert machine.saved() is None
    assert not running(machine)


def test_a_stubborn_node_is_ended_all_the_same(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ray, "_STOP_SECONDS", 0.3)
    cluster, _ = machine.up("stubborn")
    machine.down()
    assert living(cluster) == []
    assert not running(machine)


def test_children_of_a_node_that_was_killed_are_ended_too(machine: Machine) -> None:
    cluster, _ = machine.up("a")
    os.kill(cluster.nodes[0].session.leader.pid, signal.SIGKILL)
    while cluster.nodes[0].session.leader.is_alive():
        time.sleep(0.01)
    assert state.running_address(machine.environ) is None
    assert len(living(cluster)) == 1
    assert machine.down() == cluster
    assert living(cluster) == []


@pytest.mark.parametrize("change", ["a recycled pid", "another boot"])
def test_a_process_that_is_not_ours_is_left_alone(machine: Machine, change: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    try:
        now = process(other.pid)
        assert now is not None
        boot = boot_id() if change == "a recycled pid" else "another"
        leader = Process(now.pid, now.started - 1) if change == "a recycled pid" else now
        recorded = state.StartedNode("a", Session(leader, (Process(now.pid, 1),)), "")
        cluster = state.LocalCluster("127.0.0.1:1", str(machine.folder / "none"), boot, "", (recorded,))
        state.save(state.home(machine.environ), cluster)
        assert state.running_address(machine.environ) is None
        assert machine.down() is None
        assert now.is_alive()
    finally:
        other.kill()
        other.wait()


def test_a_process_is_the_same_after_somebody_has_set_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = process(os.getpid())
    assert before is not None
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: booted + 3600)
    assert before.is_alive()


def test_only_one_command_at_a_time(machine: Machine) -> None:
    with state.alone(state.home(machine.environ)), pytest.raises(InvalidInputError, match="is at work"):
        machine.up("a")


def test_a_state_that_is_not_ours_is_named(machine: Machine) -> None:
    folder = state.home(machine.environ)
    folder.mkdir()
    for text in ("{", "[]", '{"nodes": [1]}', json.dumps({"nodes": [], "address": "a"})):
        (folder / "up.json").write_text(text, encoding="utf-8")
        with pytest.raises(InvalidInputError, match=r"up\.json does not hold what 'remora up' wrote"):
            machine.up("a")
    assert state.auth_at("127.0.0.1:1", machine.environ) == ""
    (folder / "up.json").unlink()


def test_the_home_follows_the_environment() -> None:
    assert state.home({"REMORA_HOME": "/x", "XDG_STATE_HOME": "/y"}) == Path("/x")
    assert state.home({"XDG_STATE_HOME": "/y"}) == Path("/y/remora")
    assert state.home({}) == Path.home() / ".local/state/remora"


def test_nodes_inherit_no_address_and_users_settings_win() -> None:
    found = local_ray.node_environment({"RAY_ADDRESS": "h:1", "RAY_health_check_period_ms": "9", "A": "b"})
    assert "RAY_ADDRESS" not in found
    assert (found["RAY_health_check_period_ms"], found["A"]) == ("9", "b")
    assert local_ray.node_environment({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "x"})["RAY_AUTH_MODE"] == "disabled"
    assert local_ray.node_environment({"RAY_AUTH_TOKEN": "x"})["RAY_AUTH_MODE"] == "token"


def running(machine: Machine) -> bool:
    """Whether anything that this test's pretended nodes started is still there; a zombie has no command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(machine.folder) in path.read_bytes():
                return True
    return False
