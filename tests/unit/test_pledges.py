"""What a worker that waits leaves on its node, and what is found of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from remora.ray_seam.pledges import Pledges

HOLDER = """
import sys, time
from pathlib import Path
from remora.ray_seam.pledges import Pledges
with Pledges(Path(sys.argv[1])).given("w1"):
    print("given", flush=True)
    sys.stdin.readline()
print("over", flush=True)
sys.stdin.readline()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "given\n"
    return process


def test_one_that_lives_is_not_found(tmp_path: Path):
    pledges = Pledges(tmp_path / "pledges")
    with holder(tmp_path / "pledges") as process:
        assert pledges.broken() == []
        process.communicate("\n\n")


def test_one_that_was_killed_is_found_until_it_is_forgotten(tmp_path: Path):
    pledges = Pledges(tmp_path / "pledges")
    with holder(tmp_path / "pledges") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert pledges.broken() == ["w1"]
    assert pledges.broken() == ["w1"]
    pledges.forget(["w1"])
    assert pledges.broken() == []


def test_one_that_is_given_after_the_folder_was_seen_empty_is_found(tmp_path: Path):
    pledges = Pledges(tmp_path / "pledges")
    changed = (tmp_path / "pledges").stat().st_mtime_ns - 1_000_000_000
    os.utime(tmp_path / "pledges", ns=(changed, changed))  # long ago
    assert pledges.broken() == []
    with holder(tmp_path / "pledges") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert pledges.broken() == ["w1"]


def test_one_that_is_given_in_the_moment_in_which_the_folder_is_seen_empty_is_found(tmp_path: Path):
    """File systems tell the time coarsely."""
    pledges = Pledges(tmp_path / "pledges")
    changed = (tmp_path / "pledges").stat().st_mtime_ns
    assert pledges.broken() == []
    (tmp_path / "pledges" / "w1").touch()
    os.utime(tmp_path / "pledges", ns=(changed, changed))
    assert pledges.broken() == ["w1"]


def test_what_is_over_leaves_nothing(tmp_path: Path):
    pledges = Pledges(tmp_path / "pledges")
    with pledges.given("w1"):
        assert pledges.broken() == []
        assert (tmp_path / "pledges" / "w1").exists()
    assert not (tmp_path / "pledges" / "w1").exists()
