"""``remora run`` and ``remora job submit`` before anything is started: what they refuse, and what they tell the program."""

from __future__ import annotations

import json
import os
import shlex
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from remora.cli.jobs import _typed, wrapped
from remora.cli.main import app
from remora.live import api, program
from remora.live.clusters import job_cluster, scopes
from remora.live.clusters.entering import Opened
from remora.live.job_client import _said
from remora.live.link import link
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.calls import GetClusters
from remora.wire.run_env import HOOK, OPTIONS, PATH, RAY_HOOK, UV, RunOptions

SPEC = {"flexible_resource_min": {"CPU": 1.0}, "flexible_resource_max": {"CPU": 2.0}}

MISTAKES = {
    "not JSON": (["--virtual-cluster", '{"flexible'], "is not JSON"),
    "no such file": (["--virtual-cluster", "nowhere.json"], "neither JSON nor a file"),
    "an unknown field": (["--virtual-cluster", '{"cpus": 1}'], "has no field 'cpus'"),
    "a negative amount": (["--virtual-cluster", '{"flexible_resource_min": {"CPU": -1}}'], "flexible_resource_min"),
    "min above max": (
        ["--virtual-cluster", '{"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 1}}'],
        "the minimum is at most the maximum",
    ),
    "a priority of nothing": (["--priority", "3"], "give --virtual-cluster too"),
    "a timeout of nothing": (["--timeout", "3"], "give --virtual-cluster too"),
    "tolerations that are not JSON": (["--tolerations", "gpu_node"], "is not JSON"),
    "tolerations of nothing": (["--tolerations", '{"a": "!exists()"}'], "toleration"),
    "a list as selector": (["--label-selector", "[1]"], "is not a JSON object"),
    "a label without value": (["--labels", "team"], "is not key=value"),
}


@pytest.mark.parametrize("verb", [["run"], ["job", "submit"]], ids=["run", "submit"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_before_anything_starts(verb: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it was started"))
    words, message = MISTAKES[name]
    done = CliRunner().invoke(app, [*verb, *words, "--", "true"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "no-such-command"], "is not there"),
        (["--address", "ray://a:10001", "--", "true"], "one of Ray Client"),
        (["--address", "127.0.0.1:1", "--", "true"], "no Ray cluster answers at 127.0.0.1:1"),
        (["--address", "nonsense", "--", "true"], "is not HOST:PORT"),
    ],
)
def test_what_cannot_be_run_is_said_so(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["run", *words])
    assert done.exit_code == 2
    assert message in done.stderr


def test_the_program_gets_its_own_words_and_our_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *call: seen.append(call))
    monkeypatch.setenv("REMORA_HOME", str(tmp_path))
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        words = ["run", "--virtual-cluster", str(path), "--priority", "3", "--address", address, "echo", "--priority", "x"]
        done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"remora: Ray at {address} (--address)\n")
    ((program, command, environ),) = seen
    assert Path(program).name == "echo"
    assert command == ["echo", "--priority", "x"]
    assert (environ["RAY_ADDRESS"], environ[RAY_HOOK], environ[UV]) == (address, HOOK, "0")
    assert json.loads(environ[OPTIONS]) == {"virtual_cluster": SPEC, "priority": 3}


def test_a_hook_that_was_there_is_kept_and_called() -> None:
    once = RunOptions(priority=1, virtual_cluster=SPEC).environ({RAY_HOOK: "mine.hook", UV: "1"})
    twice = RunOptions(labels={"a": "b"}).environ(once)
    options = RunOptions.read(twice)
    assert options == RunOptions(priority=1, virtual_cluster=SPEC, labels={"a": "b"}, hook="mine.hook", uv="1")
    assert options.outside() == {OPTIONS: None, RAY_HOOK: "mine.hook", UV: "1", PATH: None}


def test_a_run_inside_another_replaces_its_virtual_cluster_and_all_about_it() -> None:
    outer = RunOptions(virtual_cluster=SPEC, priority=4, timeout=2.0, joined=("vc1", "01"), labels={"a": "b"})
    assert RunOptions(virtual_cluster={}).over(outer) == RunOptions(virtual_cluster={}, labels={"a": "b"})
    assert RunOptions().over(outer) == outer


def test_ray_init_finds_the_users_hook_behind_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import worker

    monkeypatch.setattr(worker, "_post_init_hooks", [])
    monkeypatch.setattr(job_cluster, "_job", job_cluster._Job())
    for name, value in RunOptions(labels={"a": "b"}).environ({RAY_HOOK: "json.dumps", UV: "0"}).items():
        monkeypatch.setenv(name, value)
    assert program.on_init({"a": 1}) == '{"a": 1}'
    assert program.on_init({"a": 1}) == '{"a": 1}'
    assert len(worker._post_init_hooks) == 1
    # Processes of a Ray that is started here do not find it.
    assert (os.environ.get(OPTIONS), os.environ[RAY_HOOK]) == (None, "json.dumps")
    assert job_cluster.given(labels=None, tolerations={"x": "y"}) == {"labels": {"a": "b"}, "tolerations": {"x": "y"}}


def test_a_command_typed_in_a_shell_that_was_run_so_is_not_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cluster, "_job", job_cluster._Job(RunOptions(virtual_cluster=SPEC)))
    monkeypatch.setattr(api, "init", lambda: pytest.fail("it was attached"))
    monkeypatch.setattr("ray.init", lambda *_, **__: program._attach())
    api.connect(None)


def test_a_program_that_was_started_by_another_shares_its_cluster_and_never_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cluster, "_job", job_cluster._Job(RunOptions(virtual_cluster=SPEC, joined=("vc1", "01"))))
    monkeypatch.setattr(job_cluster, "open_now", lambda *_: Opened("vc9", "question-9", "02"))
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "02"))
    rows = [{"cluster_id": "vc1", "job_id": "01"}]
    monkeypatch.setattr(link, "ask", lambda call: rows if call == GetClusters() else pytest.fail("it was closed"))
    for name in (OPTIONS, RAY_HOOK, UV):
        monkeypatch.setenv(name, "")
    job_cluster.enter(None, ())
    options = RunOptions.read(os.environ)
    assert options is not None
    assert (scopes.base, options.joined) == (["vc1"], ["vc1", "01"])
    job_cluster.enter(VirtualCluster(), ())
    assert scopes.base == ["vc9"]
    scopes.base.clear()


def test_a_job_is_wrapped_so_that_a_shell_reads_it_back() -> None:
    options = RunOptions(virtual_cluster=SPEC, priority=-1, labels={"a": "b c"})
    line = shlex.join(wrapped(["python3", "job.py", "--name", "it's"], options))
    assert shlex.split(line) == [
        *("python3", "-m", "remora", "run", f"--virtual-cluster={json.dumps(SPEC)}", "--priority=-1", '--labels={"a": "b c"}'),
        *("--", "python3", "job.py", "--name", "it's"),
    ]
    assert wrapped(["./program.sh"], RunOptions())[:4] == ["python", "-m", "remora", "run"]


def test_a_job_is_listed_as_it_was_typed() -> None:
    words = ["python3", "job.py", "--name", "it's"]
    assert _typed(shlex.join(wrapped(words, RunOptions(virtual_cluster=SPEC)))) == shlex.join(words)
    assert _typed("python job.py 'unclosed") == "python job.py 'unclosed"
    assert _typed("python -m other run -- x") == "python -m other run -- x"


def test_what_a_job_server_says_is_its_last_line() -> None:
    text = (
        "Request failed with status code 500: Traceback (most recent call last):\n  File x\nValueError: job a exists already\n."
    )
    assert _said(text) == "Request failed with status code 500: ValueError: job a exists already"
    assert _said("no traceback") == "no traceback"
