"""``remora run``, ``queue`` and ``clusters`` as people type them, with programs that know nothing of Remora."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import World, eventually
from tests.live.typed import remora_command

from remora.live import api

# On five CPUs without a taint.
SMALL = {"flexible_resource_min": {"CPU": 1}, "flexible_resource_max": {"CPU": 1}}
LARGE = {"flexible_resource_min": {"CPU": 4}}
TOO_LARGE = {"flexible_resource_min": {"CPU": 2}}
"""Beside the large one."""

HOLD = """
    import sys, ray
    @ray.remote
    def one():
        return 1
    assert ray.get(one.remote()) == 1
    print("ready", flush=True)
    sys.stdin.read()
    """


@contextlib.contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """What a shell starts in its background does not, and would not teach it to its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Run:
    """A program under ``remora run``; its stdin is open until it is told to go on."""

    def __init__(self, world: World, folder: Path, code: str, *words: str) -> None:
        self.errors = folder / "stderr"
        program = [sys.executable, "-c", textwrap.dedent(code)]
        command = [sys.executable, "-m", "remora", "run", "--address", world.cluster.address, *words, "--", *program]
        with hearing_ctrl_c(), self.errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
            )
        self.pid = self._process.pid

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def wrote(self, text: str) -> bool:
        """In its output, which a person would look at."""
        assert self._process.poll() is None, self.errors.read_text()
        return text in self.errors.read_text()

    def end(self) -> tuple[int, str]:
        out, _ = self._process.communicate(timeout=60)
        return self._process.returncode, out

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def running(world: World, folder: Path, code: str, *words: str) -> Iterator[Run]:
    folder.mkdir(exist_ok=True)
    before = names()
    run = Run(world, folder, code, *words)
    try:
        yield run
    finally:
        run.kill()
        eventually(lambda: names() <= before)


def names() -> set[str]:
    return {row["cluster_id"] for row in api.virtual_clusters()}


def shown(world: World, *words: str) -> Any:
    done = remora_command(world, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_program_names_its_cluster_in_ray_init_itself(world: World, tmp_path: Path) -> None:
    code = """
        import ray
        one = {"CPU": 1}
        ray.init(virtual_cluster={"flexible_resource_min": one, "flexible_resource_max": one}, log_to_driver=False)
        print(ray.cluster_resources()["CPU"], ray.get_runtime_context().current_cluster().cluster_id())
    """
    with running(world, tmp_path / "plain", code) as run:
        status, out = run.end()
        assert (status, out.split()[0]) == (0, "1.0"), run.errors.read_text()
        assert out.split()[1] != "root"


@pytest.mark.core
def test_a_program_is_confined_and_its_exit_code_is_ours(world: World, tmp_path: Path) -> None:
    code = """
        import sys, time, ray
        @ray.remote
        def span(seconds):
            began = time.time()
            time.sleep(seconds)
            return began, time.time()
        spans = sorted(ray.get([span.remote(0.1) for _ in range(6)]))
        assert all(one[1] <= other[0] + 0.01 for one, other in zip(spans, spans[1:])), spans
        ray.shutdown()
        ray.init(logging_level="ERROR")
        print(len(spans), ray.get(span.remote(0.0))[0] > 0)
        sys.exit(7)
        """
    with running(world, tmp_path, code, "--virtual-cluster", json.dumps(SMALL)) as run:
        assert run.end() == (7, "6 True\n"), run.errors.read_text()


def test_who_waits_is_shown_and_ctrl_c_gives_the_place_back(world: World, tmp_path: Path) -> None:
    with running(world, tmp_path / "1", HOLD, "--virtual-cluster", json.dumps(LARGE)) as first:
        assert first.line() == "ready", first.errors.read_text()
        (large,) = shown(world, "clusters")
        assert (large["state"], large["min"], large["total"]["CPU"]) == ("READY", {"CPU": 4}, 4)
        words = ["--virtual-cluster", json.dumps(TOO_LARGE), "--priority", "5"]
        with running(world, tmp_path / "2", HOLD, *words) as second:
            eventually(lambda: second.wrote("position 1 in the queue"), timeout=30)
            (row,) = shown(world, "queue")
            assert (row["position"], row["priority"], row["min"]) == (1, 5, {"CPU": 2})
            assert row["reason"] in second.errors.read_text()
            assert row["since"]
            assert row["cluster_id"] in remora_command(world, "queue").stdout
            os.kill(second.pid, signal.SIGINT)
            assert second.end() == (130, "")
            assert "waits in no queue any more" in second.errors.read_text()
            assert "Traceback" not in second.errors.read_text()
            assert shown(world, "queue") == []
        table = remora_command(world, "clusters", "--nodes").stdout
        assert large["cluster_id"] in table
        assert "flexible" in table
        assert not any(node["outside"].get("CPU") for node in shown(world, "status")["nodes"])
        has = [node["virtual_clusters"].get("CPU", {"has": 0})["has"] for node in shown(world, "status")["nodes"]]
        assert sum(has) == 4
        assert "Others use" in remora_command(world, "status").stdout


@pytest.mark.deep
def test_what_can_never_be_is_one_line_and_a_timeout_leaves_the_queue(world: World, tmp_path: Path) -> None:
    with running(world, tmp_path / "1", HOLD, "--virtual-cluster", '{"flexible_resource_min": {"CPU": 99}}') as never:
        assert never.end() == (2, ""), never.errors.read_text()
        assert "99 CPU" in never.errors.read_text()
        assert "Traceback" not in never.errors.read_text()
    with running(world, tmp_path / "1", HOLD, "--virtual-cluster", json.dumps(LARGE)) as first:
        assert first.line() == "ready", first.errors.read_text()
        words = ["--virtual-cluster", json.dumps(TOO_LARGE), "--timeout", "0.5"]
        with running(world, tmp_path / "2", HOLD, *words) as late:
            assert late.end() == (1, ""), late.errors.read_text()
            assert "was not reserved within 0.5 s" in late.errors.read_text()
            assert "Traceback" not in late.errors.read_text()


@pytest.mark.deep
def test_a_program_that_names_its_own_cluster_has_the_last_word_and_its_children_share_it(world: World, tmp_path: Path) -> None:
    code = """
        import subprocess, sys, ray, remora
        ray.init(logging_level="ERROR")
        remora.init(virtual_cluster={"flexible_resource_max": {"CPU": 2}})
        code = "import ray, sys; ray.get(ray.remote(lambda: 1).remote()); print('ready', flush=True); sys.stdin.read()"
        sys.exit(subprocess.run([sys.executable, "-c", code]).returncode)
        """
    with running(world, tmp_path, code, "--virtual-cluster", json.dumps(LARGE)) as run:
        assert run.line() == "ready", run.errors.read_text()
        (row,) = [row for row in api.virtual_clusters() if row["state"] == "READY"]
        assert (row["min"], row["max"]["CPU"]) == ({}, 2)


@pytest.mark.parametrize("words", [["queue"], ["clusters"]])
def test_nothing_is_shown_where_nothing_is(world: World, words: list[str]) -> None:
    assert shown(world, *words) == []
    done = remora_command(world, *words)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"Ray at {world.cluster.address} (--address)")
    assert len(done.stdout.splitlines()) == 2
