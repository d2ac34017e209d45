"""What the OpenAPI promises is what is answered, whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS
from starlette.testclient import TestClient
from tests.served import MemoryBackend, settled

from remora.dashboard.app import api
from remora.dashboard.guarding import Rules
from remora.dashboard.hub import Hub
from remora.dashboard.repeating import Repeats
from remora.dashboard.routing import Dashboard
from remora.wire import calls


class Late:
    """A backend that is made when the first test begins: the tests are listed before, in every process."""

    made: MemoryBackend

    def ask(self, call: calls.Call) -> Any:
        return self.made.ask(call)

    def explain(self, id_or_name: str) -> list[dict[str, Any]]:
        return self.made.explain(id_or_name)

    def start(self) -> None:
        self.made.start()


_late = Late()
_app = api(Dashboard(_late, Rules(), Hub(_late, idle_seconds=60), Repeats()))
schema = schemathesis.openapi.from_asgi("/openapi.json", _app).exclude(path="/stream")  # it never ends


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    made = _late.made = MemoryBackend()
    made.port.join("aaaa1111", {"CPU": 4}, {"zone": "a"})
    made.port.join("bbbb2222", {"CPU": 4}, {"zone": "b"})
    settled(made)
    made.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 4})
    made.create("j2", flexible_resource_min={"CPU": 8})
    yield
    made.close()


@schema.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_every_answer_is_as_it_is_documented(case: schemathesis.Case) -> None:
    # That no amount is finer than Ray's unit is a rule that a schema cannot say.
    beyond = ["positive_data_acceptance"] if case.operation.label == "PATCH /clusters/{cluster_id}" else []
    skipped: list[Any] = list(CHECKS.get_by_names(["unsupported_method", *beyond]))
    case.call_and_validate(excluded_checks=skipped)


def test_the_two_calls_of_the_proposal_are_documented() -> None:
    with TestClient(_app, base_url="http://localhost") as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert {"post", "delete"} <= set(paths["/nodes/taints/{node_id}"])
    assert all(
        operation.get("summary") and operation.get("description") for path in paths.values() for operation in path.values()
    )
