"""The REST API over the real controller: the seed's two calls as they stand there, and everything beside them."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient
from tests.served import MemoryBackend, settled

from remora.dashboard.repeating import Repeats
from remora.wire import calls


def delete(client: TestClient, path: str, body: Any, **headers: str) -> Response:
    return client.request("DELETE", path, json=body, headers=headers)


def problem(response: Response, status: int) -> dict[str, Any]:
    """Return the body of an error; it is one as RFC 9457 has them."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["title"]
    assert body["rule"]
    return body


def taints(backend: MemoryBackend, node_id: str) -> dict[str, str]:
    return dict(backend.ask(calls.GetNode(node_id))["taints"])


# The seed


def test_taints_are_appended_and_deleted_as_the_proposal_has_it(client: TestClient, backend: MemoryBackend) -> None:
    answer = client.post("/nodes/taints/aaaa1111", json={"gpu_node": "true"})
    assert (answer.status_code, answer.json()["taints"]) == (200, {"gpu_node": "true"})
    assert taints(backend, "aaaa1111") == {"gpu_node": "true"}
    answer = delete(client, "/nodes/taints/aaaa1111", {"gpu_node": "true"})
    assert (answer.status_code, answer.json()["taints"]) == (200, {})


def test_a_node_may_be_named_by_the_beginning_of_its_id(client: TestClient, backend: MemoryBackend) -> None:
    assert client.post("/nodes/taints/bbbb", json={"k": "v"}).json()["node_id"] == "bbbb2222"


def test_a_node_that_is_not_there_is_not_found(client: TestClient) -> None:
    for answer in (
        client.post("/nodes/taints/cccc", json={"k": "v"}),
        client.get("/nodes/cccc"),
        client.get("/nodes/labels/cccc"),
        client.post("/nodes/preview/cccc", json={"taints": {"k": "v"}}),
    ):
        assert "cccc" in problem(answer, 404)["detail"]


@pytest.mark.parametrize("body", [{"a b": "x"}, {"k": "v v"}, {}, [], "x", {"k": 1}, {"k": None}, {"x" * 200: "v"}])
def test_bad_taints_are_refused_and_nothing_is_done(client: TestClient, backend: MemoryBackend, body: Any) -> None:
    said = problem(client.post("/nodes/taints/aaaa1111", json=body), 422)
    assert said["example"]
    assert taints(backend, "aaaa1111") == {}


def test_one_bad_taint_among_good_ones_leaves_nothing_half_done(client: TestClient, backend: MemoryBackend) -> None:
    problem(client.post("/nodes/taints/aaaa1111", json={"good": "v", "bad key": "v"}), 422)
    assert taints(backend, "aaaa1111") == {}


def test_a_taint_with_another_value_is_a_conflict(client: TestClient, backend: MemoryBackend) -> None:
    client.post("/nodes/taints/aaaa1111", json={"k": "v", "other": "x"})
    said = problem(delete(client, "/nodes/taints/aaaa1111", {"k": "w", "other": "x"}), 409)
    assert "k=v, not k=w" in said["detail"]
    assert taints(backend, "aaaa1111") == {"k": "v", "other": "x"}
    assert delete(client, "/nodes/taints/aaaa1111", {"k": ""}).json()["taints"] == {"other": "x"}


# Nodes and labels


def test_nodes_are_those_of_the_status(client: TestClient, backend: MemoryBackend) -> None:
    rows = client.get("/nodes").json()
    assert rows == json.loads(json.dumps(backend.ask(calls.GetStatus())["nodes"]))
    assert [row["node_id"] for row in rows] == ["aaaa1111", "bbbb2222"]
    assert client.get("/nodes/aaaa").json()["running"] == []


def test_labels_are_read_set_and_dropped(client: TestClient) -> None:
    assert client.get("/nodes/labels/aaaa").json()["labels"] == {"zone": "a"}
    assert client.post("/nodes/labels/aaaa", json={"tier": "1", "zone": None}).json()["labels"] == {"tier": "1"}
    assert delete(client, "/nodes/labels/aaaa", {"tier": "1"}).json()["labels"] == {}
    assert "set by Ray" in problem(client.post("/nodes/labels/aaaa", json={"ray.io/x": "1"}), 422)["detail"]


def test_a_preview_changes_nothing(client: TestClient, backend: MemoryBackend) -> None:
    backend.wait(3, label_selector={"gold": "1"})
    settled(backend)
    answer = client.post("/nodes/preview/aaaa", json={"labels": {"gold": "1"}})
    assert answer.json()["text"] == "3 waiting tasks would start"
    assert client.get("/nodes/labels/aaaa").json()["labels"] == {"zone": "a"}


# Who did it


def test_the_journal_says_who_did_what_from_where_and_why(client: TestClient) -> None:
    client.post("/nodes/taints/aaaa", json={"k": "v"}, params={"reason": "new disk"}, headers={"X-Remora-User": "alice"})
    told = client.get("/events", params={"kind": "taint"}).json()[-1]
    assert told["by"] == {"who": "alice", "through": "REST", "from": "testclient", "reason": "new disk"}
    assert client.get("/events", params={"since": told["number"]}).json() == []
    assert client.get("/events", params={"subject": "aaaa1111", "kind": "taint"}).json() == [told]
    problem(client.post("/nodes/taints/aaaa", json={"k": "v"}, params={"reason": "x" * 501}), 422)


def test_a_reason_is_one_line(client: TestClient) -> None:
    client.post("/nodes/taints/aaaa", json={"k": "v"}, params={"reason": "one\x1b[31m\ntwo"})
    assert client.get("/events").json()[-1]["by"]["reason"] == "one [31m two"


# Virtual clusters and the queue


def test_a_virtual_cluster_is_looked_at_resized_and_closed(client: TestClient, backend: MemoryBackend) -> None:
    cluster_id = backend.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 2})
    assert [row["cluster_id"] for row in client.get("/clusters").json()] == [cluster_id]
    assert client.get(f"/clusters/{cluster_id}").json()["max"] == {"CPU": 2}
    assert client.patch(f"/clusters/{cluster_id}", json={"max": {"CPU": 4}}).json()["max"] == {"CPU": 4}
    assert "minimum" in problem(client.patch(f"/clusters/{cluster_id}", json={"max": {"CPU": 0}}), 422)["detail"]
    problem(client.patch(f"/clusters/{cluster_id}", json={"max": {}}), 422)
    problem(client.patch(f"/clusters/{cluster_id}", json={"max": {"CPU": -1}}), 422)
    problem(client.patch("/clusters/vc9", json={"max": {"CPU": 1}}), 404)
    problem(client.get("/clusters/vc9"), 404)
    assert client.delete(f"/clusters/{cluster_id}").json()["state"] == "CLOSED"
    settled(backend)
    problem(client.patch(f"/clusters/{cluster_id}", json={"max": {"CPU": 1}}), 409)


def test_the_queue_is_looked_at_reordered_and_left(client: TestClient, backend: MemoryBackend) -> None:
    has = backend.create(flexible_resource_min={"CPU": 8})
    first = backend.create("j2", flexible_resource_min={"CPU": 4})
    second = backend.create("j3", flexible_resource_min={"CPU": 4})
    assert [row["cluster_id"] for row in client.get("/queue").json()] == [first, second]
    assert client.get(f"/queue/{second}").json()["position"] == 2
    assert client.patch(f"/queue/{second}", json={"priority": 7}).json()["position"] == 1
    problem(client.patch(f"/queue/{second}", json={"priority": "high"}), 422)
    problem(client.patch(f"/queue/{has}", json={"priority": 7}), 409)
    problem(client.get(f"/queue/{has}"), 409)
    problem(client.delete(f"/queue/{has}"), 409)
    assert client.delete(f"/queue/{second}", params={"reason": "not now"}).status_code == 200
    assert [row["cluster_id"] for row in client.get("/queue").json()] == [first]
    problem(client.delete("/queue/vc9"), 404)


# What waits


def test_what_waits_says_why(client: TestClient, backend: MemoryBackend) -> None:
    backend.wait(3, label_selector={"gold": "1"})
    (row,) = client.get("/waiting").json()
    assert (row["count"], row["reason"]) == (3, "0/2 nodes fit: 2 do not match gold=1")
    backend.actor("f00d", "cat", node_ids=("aaaa1111",))
    assert client.get("/explain/cat").json()[0]["reason"] == "it runs on aaaa1111"
    problem(client.get("/explain/nobody"), 404)


# Sent twice


def test_a_change_with_one_key_is_made_once(client: TestClient) -> None:
    key = {"Idempotency-Key": "k1"}
    one = client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=key)
    delete(client, "/nodes/taints/aaaa", {"k": "v"})
    two = client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=key)
    assert (two.json(), two.headers["Idempotency-Replayed"]) == (one.json(), "true")
    assert client.get("/nodes/taints/aaaa").json()["taints"] == {}
    assert "another change" in problem(client.post("/nodes/taints/aaaa", json={"k": "w"}, headers=key), 422)["detail"]


def test_a_key_holds_also_when_the_server_was_restarted_meanwhile(client: TestClient) -> None:
    key = {"Idempotency-Key": "k1"}
    client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=key)
    delete(client, "/nodes/taints/aaaa", {"k": "v"})
    client.app._app.state.dashboard.repeats = Repeats()  # type: ignore[attr-defined]
    client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=key)
    assert client.get("/nodes/taints/aaaa").json()["taints"] == {}


def test_what_failed_may_be_tried_again_with_the_same_key(client: TestClient, backend: MemoryBackend) -> None:
    key = {"Idempotency-Key": "k1"}
    backend.away = True
    said = problem(client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=key), 503)
    assert "no controller" in said["detail"]
    backend.away = False
    assert client.post("/nodes/taints/aaaa", json={"k": "v"}, headers=key).json()["taints"] == {"k": "v"}


def test_while_a_change_is_being_made_its_key_is_taken() -> None:
    repeats, begun, go = Repeats(), threading.Event(), threading.Event()

    def work(_: str) -> Any:
        begun.set()
        go.wait(10)
        from starlette.responses import Response as Made

        return Made(b"{}", media_type="application/json")

    thread = threading.Thread(target=lambda: repeats.once("k", "x", work))
    thread.start()
    begun.wait(10)
    assert repeats.once("k", "x", work).status_code == 409
    go.set()
    thread.join(10)
    assert repeats.once("k", "x", work).headers["Idempotency-Replayed"] == "true"


def test_keys_are_forgotten_before_there_are_too_many() -> None:
    from starlette.responses import Response as Made

    repeats = Repeats()
    for number in range(1100):
        repeats.once(f"k{number}", "x", lambda _: Made(b"{}"))
    assert len(repeats._known) <= 1000


# Errors


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("PUT", "/nodes", 405), ("POST", "/clusters", 405)]
)
def test_what_is_not_there_is_a_problem_too(client: TestClient, method: str, path: str, status: int) -> None:
    problem(client.request(method, path), status)


def test_what_is_no_json_is_a_problem(client: TestClient) -> None:
    headers = {"Content-Type": "application/json"}
    problem(client.post("/nodes/taints/aaaa", content=b"{", headers=headers), 422)
    problem(client.post("/nodes/taints/aaaa", content=b"\xff\xfe", headers=headers), 422)
