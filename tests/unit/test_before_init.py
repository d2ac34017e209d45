"""What a program is told that is not connected: one sentence, and nothing is connected or started for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import ray

import remora
from remora.errors import ControllerAwayError, InvalidVirtualClusterError

LOOKS: dict[str, Callable[[], object]] = {
    "status": remora.status,
    "events": remora.events,
    "explain": lambda: remora.explain("anything"),
    "virtual_clusters": remora.virtual_clusters,
}


@pytest.fixture(autouse=True)
def nothing_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("it connected"))


@pytest.mark.parametrize("name", LOOKS)
def test_looking_before_init_says_so(name: str) -> None:
    with pytest.raises(ControllerAwayError, match=r"this process is not connected to Ray: call remora.init\(\) first"):
        LOOKS[name]()


def test_entering_a_virtual_cluster_before_init_says_so() -> None:
    with (
        pytest.raises(InvalidVirtualClusterError, match=r"this process is not attached: call remora.init\(\) before `with"),
        remora.VirtualCluster(),
    ):
        pytest.fail("it was entered")
