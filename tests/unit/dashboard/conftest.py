from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from tests.served import MemoryBackend, settled

from remora.dashboard.app import build


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    """Two nodes of four CPUs, and the real controller."""
    made = MemoryBackend()
    made.port.join("aaaa1111", {"CPU": 4}, {"zone": "a"})
    made.port.join("bbbb2222", {"CPU": 4}, {"zone": "b"})
    settled(made)
    yield made
    made.close()


@pytest.fixture
def client(backend: MemoryBackend) -> Iterator[TestClient]:
    with TestClient(build(backend), base_url="http://localhost:8270") as made:
        yield made
