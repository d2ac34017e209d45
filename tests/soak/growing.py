"""A cluster that grows, for the stories of a module, which all begin and end with no machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.autoscaling_ray import Autoscaling, autoscaling_cluster, eventually, kinds

import remora


def attached_cluster(tmp_path_factory: pytest.TempPathFactory, **options: object) -> Iterator[Autoscaling]:
    with autoscaling_cluster(tmp_path_factory.mktemp("autoscaler"), **options) as cluster:  # type: ignore[arg-type]
        remora.attach()
        yield cluster
        remora.detach()


def assert_empty() -> None:
    """Whatever was asked for is withdrawn, whatever was kept is let go, and nothing failed on the way."""
    eventually(lambda: not kinds(), 60)
    eventually(lambda: not any(row["asked"] for row in remora.status()["machines"]["types"]), 20)
    assert remora.status()["machines"]["kept"] == []
    assert remora.status()["set_aside"] == []
