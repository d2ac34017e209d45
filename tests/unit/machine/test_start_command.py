"""``remora start`` and the mistakes of ``up``, as they are typed; what would replace the process is only looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from remora.cli.main import app


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: found.append(words))
    monkeypatch.setenv("REMORA_METADATA", "off")
    monkeypatch.setenv("REMORA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", '{"ray.io/accelerator-type": "as on any machine"}')
    return found


def test_everything_that_is_not_ours_goes_on_as_it_stands(started: list[list[str]]) -> None:
    words = ["--head", "--port", "6380", "--num-cpus=2", "-v", "--resources", '{"a": 1}', "--block", "--dashboard-host=0.0.0.0"]
    result = CliRunner().invoke(app, ["start", *words[:4], "--labels", "zone=a", *words[4:], "--taints", '{"gpu_node":"true"}'])
    assert result.exit_code == 0, result.output
    (line,) = started
    at = line.index("start")
    assert line[at + 1] == "--labels=zone=a,taint.remora.io/gpu_node=true,ray.io/node-group=head"
    assert line[at + 2 :] == words


def test_both_spellings_of_rare_resources(started: list[list[str]]) -> None:
    for option in ("--rare-resource-isolation", "--rare_resource_isolation"):
        CliRunner().invoke(app, ["start", "--head", f"{option}=gpu,my_rare_resource"])
    want = "--labels=rare-resource.remora.io/gpu=true,rare-resource.remora.io/my_rare_resource=true,ray.io/node-group=head"
    assert [line[-2] for line in started] == [want, want]


def test_help_is_ours_and_names_ray_start(started: list[list[str]]) -> None:
    result = CliRunner().invoke(app, ["start", "--help"])
    assert "--taints" in result.output
    assert "ray start" in result.output
    assert started == []


MISTAKES = {
    "a bad label": (["start", "--head", "--labels", "zone"], "'zone' is not key=value"),
    "a bad taint": (["start", "--head", "--taints", "{gpu_node:true"], "is not JSON"),
    "no such file": (["start", "--labels-file", "/none.yaml"], "cannot be read"),
    "rare without a head": (["start", "--address=h:1", "--rare-resource-isolation=gpu"], "by its head"),
    "no such nodes": (["up", "--nodes", "/none.yaml"], "cannot be read"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2_and_nothing_is_started(name: str, started: list[list[str]]) -> None:
    words, message = MISTAKES[name]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout, started) == (2, "", [])
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_down_with_nothing_up_says_so(started: list[list[str]]) -> None:
    assert CliRunner().invoke(app, ["down"]).stdout == "nothing runs that 'remora up' started\n"
    result = CliRunner().invoke(app, ["down", "--json"])
    assert (result.exit_code, result.stdout) == (0, '{"stopped": []}\n')


def test_a_file_of_node_types_is_read_at_once_and_handed_to_the_controller(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REMORA_NODE_TYPES", "")
    version = "RAY_enable_autoscaler_v2"
    monkeypatch.setenv(version, "")
    monkeypatch.delenv(version)
    types = tmp_path / "types.yaml"
    types.write_text("node_types: {web: {resources: {CPU: 4}, max_workers: 10}}", encoding="utf-8")
    result = CliRunner().invoke(app, ["start", "--head", "--node-types", str(types)])
    assert result.exit_code == 0, result.output
    assert os.environ["REMORA_NODE_TYPES"] == str(types)
    assert os.environ.get(version) == "1", "requests are made in its words"
    assert len(started) == 1


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["--head"], "node_types: {web: {resources: {cpu: 4}}}", "it is spelled 'CPU'"),
        (["--head"], "node_types: {web: {resources: {CPU: 4}, taints: {'a b': x}}}", "a b"),
        (["--head"], "web", "node_types"),
        (["--address=h:1"], "node_types: {web: {resources: {CPU: 4}}}", "by its head"),
    ],
)
def test_a_file_of_node_types_that_is_wrong_starts_nothing(
    started: list[list[str]], tmp_path: Path, words: list[str], text: str, said: str
) -> None:
    types = tmp_path / "types.yaml"
    types.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["start", *words, "--node-types", str(types)])
    assert result.exit_code != 0
    assert said in " ".join(str(result.output + str(result.exception or "")).split())
    assert started == []
