"""What a worker that waits leaves on its node, and what is found of one that was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remora.live.worker.idle_markers import IdleMarkers

HOLDER = """
import sys, time
from pathlib import Path
from remora.live.worker.idle_markers import IdleMarkers
with IdleMarkers(Path(sys.argv[1])).held("w1"):
    print("held", flush=True)
    sys.stdin.readline()
print("over", flush=True)
sys.stdin.readline()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_that_lives_is_not_found(tmp_path: Path):
    markers = IdleMarkers(tmp_path / "markers")
    with holder(tmp_path / "markers") as process:
        assert markers.orphaned() == []
        process.communicate("\n\n")


def test_one_that_was_killed_is_found_until_it_is_forgotten(tmp_path: Path):
    markers = IdleMarkers(tmp_path / "markers")
    with holder(tmp_path / "markers") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert markers.orphaned() == ["w1"]
    assert markers.orphaned() == ["w1"]
    markers.forget(["w1"])
    assert markers.orphaned() == []


def test_one_that_is_given_after_the_folder_was_seen_empty_is_found(tmp_path: Path):
    markers = IdleMarkers(tmp_path / "markers")
    changed = (tmp_path / "markers").stat().st_mtime_ns - 1_000_000_000
    os.utime(tmp_path / "markers", ns=(changed, changed))  # long ago
    assert markers.orphaned() == []
    with holder(tmp_path / "markers") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert markers.orphaned() == ["w1"]


def test_one_that_is_given_in_the_moment_in_which_the_folder_is_seen_empty_is_found(tmp_path: Path):
    """File systems tell the time coarsely."""
    markers = IdleMarkers(tmp_path / "markers")
    changed = (tmp_path / "markers").stat().st_mtime_ns
    assert markers.orphaned() == []
    (tmp_path / "markers" / "w1").touch()
    os.utime(tmp_path / "markers", ns=(changed, changed))
    assert markers.orphaned() == ["w1"]


def test_nobody_ever_finds_one_that_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A neighbour that looks between the making of the file and its lock must not take its worker for dead."""
    neighbour = IdleMarkers(tmp_path / "markers")
    found: list[list[str]] = []
    real = fcntl.lockf

    def look_first(file: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            found.append(neighbour.orphaned())
        real(file, how)

    monkeypatch.setattr(fcntl, "lockf", look_first)
    with IdleMarkers(tmp_path / "markers").held("w1"):
        found.append([path.name for path in (tmp_path / "markers").iterdir()])
    assert found == [[], ["w1"]]


def test_two_that_look_at_once_both_find_the_dead_one(tmp_path: Path):
    (tmp_path / "markers").mkdir()
    (tmp_path / "markers" / "w1").touch()
    code = (
        f"import fcntl, os, sys; f = os.open({str(tmp_path / 'markers' / 'w1')!r}, os.O_RDONLY); fcntl.lockf(f, fcntl.LOCK_SH)"
    )
    script = [sys.executable, "-c", f"{code}; print('looks', flush=True); sys.stdin.readline()"]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as looking:
        assert looking.stdout is not None
        assert looking.stdout.readline() == "looks\n"
        assert IdleMarkers(tmp_path / "markers").orphaned() == ["w1"]
        looking.communicate("\n")


def test_given_twice_it_is_one_until_the_first_is_over(tmp_path: Path):
    """A process that closes any of its files loses all of its locks."""
    markers = IdleMarkers(tmp_path / "markers")
    with markers.held("w1"):
        with markers.held("w1"):
            pass
        assert (tmp_path / "markers" / "w1").exists()
        look = "import sys; from pathlib import Path; from remora.live.worker.idle_markers import IdleMarkers"
        code = f"{look}; print(IdleMarkers(Path(sys.argv[1])).orphaned())"
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "markers")], capture_output=True, text=True, check=True
        )
        assert done.stdout == "[]\n"


def test_what_is_over_leaves_nothing(tmp_path: Path):
    markers = IdleMarkers(tmp_path / "markers")
    with markers.held("w1"):
        assert markers.orphaned() == []
        assert (tmp_path / "markers" / "w1").exists()
    assert not (tmp_path / "markers" / "w1").exists()
