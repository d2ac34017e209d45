"""``remora top``, the time line of ``remora explain`` and completion, without a cluster."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import termios
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from remora.cli import top, why
from remora.cli.main import app
from remora.machine.addresses import Target

TARGET = Target("10.0.0.1:6379", "--address")
RAY = {"ray": {"address": "10.0.0.1:6379", "from": "--address"}}
NODE = {"name": "", "address": "10.0.0.1", "labels": {"zone": "a"}, "outside": {}, "virtual_clusters": {}}
NODES = [
    {**NODE, "node_id": "a" * 56, "head": True, "taints": {}, "total": {"CPU": 4.0}, "used": {"CPU": 1.0}},
    {**NODE, "node_id": "b" * 56, "head": False, "taints": {"gpu_node": "true"}, "total": {"CPU": 2.0, "GPU": 1.0}, "used": {}},
]
WAITS = {
    "kind": "task or actor",
    "count": 3,
    "resources": [{"CPU": 8.0}],
    "wants": "zone=b",
    "reason": "0/2 nodes fit: 2 do not match zone=b",
    "suggestions": ["drop zone=b"],
}
SHARE = {"parent": None, "min": {"CPU": 2.0}, "max": {"CPU": 4.0}, "state": "READY", "position": 0, "reason": "", "used": {}}
SHARES = [
    {**SHARE, "cluster_id": "vc1", "total": {"CPU": 2.0}, "used": {"CPU": 2.0}},
    {**SHARE, "cluster_id": "vc2", "total": {}, "state": "QUEUED", "position": 1, "reason": "2 CPU are not free"},
]


class Api:
    """A cluster that says what it is told to say."""

    def __init__(self, shares: list[dict[str, Any]], waiting: list[dict[str, Any]]) -> None:
        self._shares, self._waiting = shares, waiting

    def status(self) -> dict[str, Any]:
        return {"nodes": NODES, "waiting": self._waiting}

    def virtual_clusters(self) -> list[dict[str, Any]]:
        return self._shares

    def explain_all(self, what: str) -> list[dict[str, Any]]:
        found = {"kind": "actor", "name": what, "id": "a1", "state": "running", "reason": "it runs on n3", "wants": ""}
        return [{**found, "resources": [{"CPU": 1.0}], "refusals": [], "suggestions": []}]

    def events(self) -> list[dict[str, Any]]:
        told = [("node", "n2", "the node left"), ("lease", "a1", "decided n2 because it asks for zone=b")]
        told += [("lease", "a2", "runs on n1"), ("lease", "a1", "its node n2 left")]
        at = "2030-01-02T03:04:05.678+00:00"
        return [{"at": at, "kind": kind, "subject": subject, "text": text} for kind, subject, text in told]


def run(monkeypatch: pytest.MonkeyPatch, api: Api, *words: str) -> str:
    for module in (top, why):
        monkeypatch.setattr(module, "look_at", lambda address: (api, TARGET))
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_nodes_shares_and_what_waits_are_printed_once_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch):
    told = run(monkeypatch, Api(SHARES, [WAITS]), "top")
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "aaaaaaaaaaaa * CPU ██░░░░░░░░ 1 4" in lines
    assert "bbbbbbbbbbbb CPU ░░░░░░░░░░ 0 2 gpu_node" in lines
    assert "vc1 CPU ██████████ 2 2 4 READY" in lines
    assert "1 virtual cluster vc2 2 CPU are not free" in lines
    assert "0/2 nodes fit: 2 do not match" in told
    assert lines[0] == "Ray at 10.0.0.1:6379 (--address)"
    assert max(map(len, told.splitlines())) <= 80
    assert "\x1b" not in told


def test_a_cluster_where_nothing_waits_says_so(monkeypatch: pytest.MonkeyPatch):
    told = run(monkeypatch, Api([], []), "top", "--once")
    assert "Nothing waits." in told
    assert "Virtual clusters" not in told


def test_json_has_everything(monkeypatch: pytest.MonkeyPatch):
    found = json.loads(run(monkeypatch, Api(SHARES, [WAITS]), "top", "--json"))
    assert found == {"nodes": NODES, "waiting": [WAITS], "virtual_clusters": SHARES, **RAY}


def test_q_ends_it_and_the_terminal_is_as_it_was(monkeypatch: pytest.MonkeyPatch):
    controlling, terminal = os.openpty()
    before = termios.tcgetattr(terminal)
    with os.fdopen(terminal, "r") as stdin, os.fdopen(controlling, "w") as typed:
        monkeypatch.setattr(sys, "stdin", stdin)
        left = ["x", "q"]  # no line ends: a key counts at once

        class Typing(Api):
            def status(self) -> dict[str, Any]:
                typed.write(left.pop(0))
                typed.flush()
                return super().status()

        shown = io.StringIO()
        top._watch(Typing([], []), TARGET, Console(file=shown, force_terminal=True, width=80, height=40), 20.0)
        assert left == []
        assert "aaaaaaaaaaaa" in shown.getvalue()
        assert termios.tcgetattr(stdin.fileno()) == before


def test_explain_shows_the_time_line_of_that_actor_only(monkeypatch: pytest.MonkeyPatch):
    told = run(monkeypatch, Api([], []), "explain", "cat")
    assert told.splitlines()[-2:] == ["  03:04:05 decided n2 because it asks for zone=b", "  03:04:05 its node n2 left"]
    (row,) = json.loads(run(monkeypatch, Api([], []), "explain", "cat", "--json"))
    assert row["ray"] == RAY["ray"]
    assert [entry["text"] for entry in row["decisions"]] == ["decided n2 because it asks for zone=b", "its node n2 left"]


COMPLETED = {"remora to": "top", "remora simulate cats": "cats-and-dogs", "remora events --kind ta": "taint"}


@pytest.mark.parametrize("typed", COMPLETED)
def test_the_shell_completes(typed: str):
    environ = {**os.environ, "_REMORA_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    command = [sys.executable, "-m", "remora"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environ)
    assert COMPLETED[typed] in done.stdout.splitlines()
