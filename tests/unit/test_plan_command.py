"""``remora plan`` for tasks and virtual clusters that are not submitted yet, on types of a file; and what is misspelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from remora.cli.main import app

TYPES = """
node_types:
  web: {resources: {CPU: 4}, max_workers: 2}
  gpu: {resources: {CPU: 8, GPU: 2}, taints: {gpu_node: "true"}, max_workers: 2}
"""


@pytest.fixture
def types(tmp_path: Path) -> str:
    file = tmp_path / "types.yaml"
    file.write_text(TYPES, encoding="utf-8")
    return str(file)


def test_tasks_with_their_options(types: str) -> None:
    task = '{"resources": {"GPU": 1}, "tolerations": {"gpu_node": "exists()"}, "count": 3}'
    done = CliRunner().invoke(app, ["plan", "--node-types", types, "--task", task, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["add"] == {"gpu": 2}


def test_tasks_beside_a_virtual_cluster(types: str) -> None:
    spec, plain = '{"flexible_resource_min": {"CPU": 4}}', '{"resources": {"GPU": 1}}'
    done = CliRunner().invoke(app, ["plan", "--node-types", types, "--virtual-cluster", spec, "--task", plain, "--task", "{}"])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "2 machines to start: 2 web" in shown
    assert "untolerated taint gpu_node" in shown


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"num_gpus": 1}', "a task has no 'num_gpus' here: it has resources"),
        ('{"count": 0}', "count is 0: it is a whole number from 1"),
        ('{"count": true}', "count is True"),
        ('{"resources": {"CPU": -1}}', "-1"),
        ('{"tolerations": {"gpu_node": "perhaps()"}}', "perhaps()"),
        ('{"labels": {"a b": "c"}}', "a b"),
    ],
)
def test_a_task_that_is_misspelled_is_refused_with_what_is_right(types: str, task: str, said: str) -> None:
    done = CliRunner().invoke(app, ["plan", "--node-types", types, "--task", task])
    assert done.exit_code != 0
    assert said in " ".join(f"{done.output} {done.exception or ''}".split())
