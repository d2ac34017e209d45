"""The commands about nodes, typed as a person types them, against the shared cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ray
from tests.live.conftest import World, eventually, waits
from tests.live.typed import remora_command


@pytest.mark.core
def test_a_taint_is_appended_and_deleted(world: World, where: Any) -> None:
    node = world.ids["b"][:12]
    assert remora_command(world, "taint", "--node-id", node, "--apend", '{"memory-pressure": "high"}').returncode == 0
    assert "b" not in world.names([where.remote(0.02) for _ in range(10)])
    done = remora_command(world, "taint", "--node-id", node, "--delete", '{"memory-pressure": "high"}', "--json")
    assert json.loads(done.stdout)["taints"] == {}, done.stderr
    assert world.names([where.options(label_selector={"zone": "b"}).remote()]) == ["b"]


def test_a_taint_is_set_and_taken_away_as_kubectl_does_it(world: World, where: Any) -> None:
    """By a word before the changes; what is not there, or has another value, is not taken away."""
    node = world.ids["b"][:12]
    done = remora_command(world, "taint", node, "pressure=high")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"Ray at {world.cluster.address} (--address)"), done.stderr
    assert "b" not in world.names([where.remote(0.02) for _ in range(10)])
    for word, message in (
        ("pressure=low-", "has the taint pressure=high, not pressure=low"),
        ("other-", "has no taint 'other'"),
    ):
        refused = remora_command(world, "taint", node, word)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
    assert remora_command(world, "taint", node, "pressure=high-").returncode == 0
    assert remora_command(world, "label", node, "taint.remora.io/pressure=high").returncode == 0
    assert "b" not in world.names([where.remote(0.02) for _ in range(10)])
    assert remora_command(world, "label", node, "taint.remora.io/pressure-").returncode == 0
    assert world.names([where.options(label_selector={"zone": "b"}).remote()]) == ["b"]


@pytest.mark.core
def test_status_shows_marks_and_why_something_waits(world: World, where: Any) -> None:
    ref = where.options(label_selector={"team": "red"}).remote()
    assert waits(ref, 0.5)
    done = remora_command(world, "label", "--node-id", world.ids["a"], "tier=spot", "team=blue")
    assert "tier=spot" in done.stdout, done.stderr
    # Ray reports what waits with a delay of its own.
    found = eventually(lambda: wanting(world, "team=red"), timeout=120)
    by_id = {node["node_id"]: node for node in found["nodes"]}
    assert by_id[world.ids["a"]]["labels"]["tier"] == "spot"
    assert by_id[world.ids["gpu"]]["taints"] == {"gpu_node": "true"}
    assert not any(name.startswith("remora/") for node in found["nodes"] for name in node["total"])
    (row,) = [row for row in found["waiting"] if row["wants"] == "team=red"]
    assert row["count"] == 1
    assert row["reason"] == "0/4 nodes fit: 4 do not match team=red"
    assert "drop team=red" in row["suggestions"]
    table = remora_command(world, "status").stdout
    assert "tier=spot" in table
    assert "gpu_node=true" in table
    assert remora_command(world, "label", "--node-id", world.ids["a"], "team=red", "tier-").returncode == 0
    assert world.names([ref]) == ["a"]
    assert remora_command(world, "label", "--node-id", world.ids["a"], "team-").returncode == 0


def wanting(world: World, wants: str) -> dict[str, Any] | None:
    """The status, once it shows something that waits for this."""
    found: dict[str, Any] = json.loads(remora_command(world, "status", "--json").stdout)
    return found if any(row["wants"] == wants for row in found["waiting"]) else None


MISTAKES = {
    "no node": (["taint", "--append", '{"k": "v"}'], "name one node"),
    "no such node": (["taint", "--node-id", "zz", "--append", '{"k": "v"}'], "no node has the id 'zz'"),
    "not JSON": (["taint", "--node-id", "a", "--append", '{"k": '], "is not JSON"),
    "a bad taint": (["taint", "--node-id", "a", "--append", '{"-k": "v"}'], "a taint is a label key"),
    "nothing to do": (["taint", "--node-id", "a"], "say what to change"),
    "a bad label": (["label", "--node-id", "a", "zone"], "neither key=value nor key-"),
    "a node of four": (["label", "--node-ip", "127.0.0.1", "x=y"], "the nodes are"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(world: World, name: str) -> None:
    words, message = MISTAKES[name]
    done = remora_command(world, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_no_cluster_is_said_so(world: World) -> None:
    done = remora_command(None, "status", "--address", "127.0.0.1:1")
    assert done.returncode == 2, done.stderr
    assert "no Ray cluster answers at 127.0.0.1:1" in done.stderr
    assert ray.is_initialized()
