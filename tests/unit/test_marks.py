"""``remora taint`` and ``remora label`` as they are typed, and looking at a cluster without Remora; no Ray is started."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from remora.cli import connecting, marks
from remora.cli.main import app
from remora.live import api
from remora.live.link import link
from remora.machine.addresses import Target

TARGET = Target("10.0.0.1:6379", "from RAY_ADDRESS")


class Api:
    """What was asked of the cluster."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def find_node(self, *who: str | None) -> str:
        self.asked.append(who)
        return "4f2a" * 14

    def change_marks(self, node_id: str, *changes: Any, reason: str) -> None:
        self.asked.append((*changes, *([reason] if reason else [])))

    def preview_node(self, node_id: str, **marks: Any) -> dict[str, Any]:
        self.asked.append(marks)
        return {"text": "1 task would start"}

    def status(self) -> dict[str, Any]:
        return {"nodes": [{"node_id": "4f2a" * 14, "labels": {"zone": "a"}, "taints": {}}]}


@pytest.fixture
def api_(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(marks, "change", lambda address: (made, TARGET))
    return made


BY_WORD, BY_ID, BY_IP = (None, None, "4f2a"), ("4f2a", None, None), (None, "10.0.0.7", None)

TYPED: dict[str, tuple[list[str], list[Any]]] = {
    "as kubectl": (
        ["taint", "4f2a", "gpu_node=true", "memory-pressure-"],
        [BY_WORD, ("taints", {"gpu_node": "true"}, {"memory-pressure": None})],
    ),
    "with its value": (["taint", "4f2a", "k=v-"], [BY_WORD, ("taints", {}, {"k": "v"})]),
    "an option and words": (["taint", "--node-id", "4f2a", "k="], [BY_ID, ("taints", {"k": ""}, {})]),
    "as the proposal": (["taint", "--node-ip", "10.0.0.7", "--apend", '{"a": "b"}'], [BY_IP, ("taints", {"a": "b"}, {})]),
    "as a shell leaves it": (["taint", "--node-id", "4f2a", "--delete", "{a:b}"], [BY_ID, ("taints", {}, {"a": "b"})]),
    "pairs": (["taint", "4f2a", "--append", "a=b,c=d"], [BY_WORD, ("taints", {"a": "b", "c": "d"}, {})]),
    "a label": (["label", "4f2a", "zone=a", "tier-"], [BY_WORD, ("labels", {"zone": "a"}, {"tier": None})]),
    "a reason": (["label", "4f2a", "k=v", "--reason", "why not"], [BY_WORD, ("labels", {"k": "v"}, {}, "why not")]),
    "a label by option": (["label", "--node-id", "4f2a", "zone=a"], [BY_ID, ("labels", {"zone": "a"}, {})]),
    "a taint as a label": (
        ["label", "4f2a", "taint.remora.io/x=1"],
        [BY_WORD, ("labels", {"taint.remora.io/x": "1"}, {})],
    ),
}


@pytest.mark.parametrize("name", TYPED)
def test_changes_are_read_as_they_are_meant(api_: Api, name: str) -> None:
    words, want = TYPED[name]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, api_.asked) == (0, want), done.output
    assert done.stdout.splitlines() == [
        "Ray at 10.0.0.1:6379 (from RAY_ADDRESS)",
        "4f2a4f2a4f2a labels: zone=a",
        "4f2a4f2a4f2a taints: none",
    ]


def test_a_change_is_tried_out_in_the_same_words(api_: Api) -> None:
    done = CliRunner().invoke(app, ["taint", "4f2a", "k=v", "old-", "--dry-run"])
    assert (done.exit_code, api_.asked) == (0, [BY_WORD, {"taints": {"k": "v", "old": None}}])
    assert done.stdout.splitlines() == ["Ray at 10.0.0.1:6379 (from RAY_ADDRESS)", "1 task would start"]


def test_json_says_which_cluster_it_is(api_: Api) -> None:
    done = CliRunner().invoke(app, ["label", "4f2a", "zone=a", "--json"])
    assert json.loads(done.stdout) == {
        "node_id": "4f2a" * 14,
        "labels": {"zone": "a"},
        "taints": {},
        "ray": {"address": "10.0.0.1:6379", "from": "from RAY_ADDRESS"},
    }


MISTAKES = {
    "no node": (["taint", "gpu_node=true"], "name one node, before the changes"),
    "two nodes": (["taint", "--node-id", "a", "--node-ip", "b", "k=v"], "not both"),
    "nothing to do": (["taint", "4f2a"], "say what to change on '4f2a'; for example remora taint 4f2a gpu_node=true"),
    "an empty object": (["taint", "4f2a", "--append", "{}"], "--append '{}' names no taint"),
    "nothing to label": (["label", "4f2a"], "say what to change on '4f2a'; for example remora label 4f2a zone=a tier-"),
    "neither": (["label", "4f2a", "zone"], "'zone' is neither key=value nor key-; for example 'zone=a' or 'zone-'"),
    "an effect": (["taint", "4f2a", "k=v:NoSchedule"], "'k=v:NoSchedule' names an effect, as kubectl has them"),
    "both at once": (["taint", "4f2a", "k=v", "k-"], "'k' is to be set and to be taken away"),
    "twice": (["label", "4f2a", "k=v", "k=w"], "'k' is set twice, to 'v' and 'w'"),
    "a bad taint": (["taint", "4f2a", "-k=v"], "No such option"),
    "a bad key": (["taint", "4f2a", "k/=v"], "a taint is a label key"),
    "a bad value": (["label", "4f2a", "k=v w"], "contains ' '"),
    "a bad key to drop": (["label", "4f2a", "_-"], "bad name '_'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_and_nothing_is_asked_of_the_cluster(api_: Api, name: str) -> None:
    words, message = MISTAKES[name]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout, api_.asked) == (2, "", []), done.output
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "verb", [["status"], ["top", "--once"], ["explain", "x"], ["queue"], ["events"], ["clusters"], ["plan"]]
)
def test_looking_at_a_cluster_without_remora_says_so_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.setattr(connecting, "find_target", lambda address, environ: TARGET)
    monkeypatch.setattr(api, "connect", lambda address: None)
    monkeypatch.setattr(link, "find", lambda: None)
    monkeypatch.setattr(api, "start_controller", lambda: pytest.fail("it was started"))
    for words in (verb, [*verb, "--json"]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, done.stdout) == (3, ""), done.output
        assert "there is no Remora in the Ray at 10.0.0.1:6379 (from RAY_ADDRESS), and looking starts none" in done.stderr
