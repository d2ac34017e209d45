"""A Ray of two nodes with two CPUs each, for one test, and a driver that is attached to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from tests.live.conftest import QUICK

import remora


@pytest.fixture
def cluster() -> Iterator[Any]:
    os.environ.update(QUICK)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    remora.init(address=made.address, logging_level="ERROR", log_to_driver=False)
    yield made
    remora.detach()
    ray.shutdown()
    made.shutdown()
