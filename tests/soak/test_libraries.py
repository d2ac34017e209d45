"""Ray Train, Tune and Data, unmodified, inside virtual clusters. ``make soak``: on a cluster of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from tests.live.conftest import eventually
from tests.live.test_seed_004 import slowly_doubled
from tests.live.test_virtual_clusters import inside, sampled, tree, used

import remora


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=2)
    remora.init(address=made.address, logging_level="ERROR", log_to_driver=False)
    yield made
    remora.detach()
    ray.shutdown()
    made.shutdown()


def test_ray_train_runs_inside(cluster: Any, tmp_path: Path) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop() -> None:
        from ray import train

        rank = train.get_context().get_world_rank()
        seen = {"size": train.get_context().get_world_size(), "node": ray.get_runtime_context().get_node_id()}
        (tmp_path / f"{rank}.json").write_text(json.dumps(seen))

    with inside(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}) as vc, sampled(vc) as seen:
        lies = {row["node_id"] for row in tree()[vc]["nodes"]}
        scaling, run = ScalingConfig(num_workers=2), RunConfig(storage_path=str(tmp_path / "runs"))
        assert DataParallelTrainer(loop, scaling_config=scaling, run_config=run).fit().error is None
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [each["size"] for each in told] == [2, 2]
    assert {each["node"] for each in told} <= lies
    assert max(seen) == 2


def test_ray_tune_runs_inside(cluster: Any, tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> dict[str, Any]:
        return {"score": config["x"] ** 2}

    with inside(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}) as vc, sampled(vc) as seen:
        tuner = tune.Tuner(
            trial,
            param_space={"x": tune.grid_search([1, 2, 3])},
            run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
        )
        scores = sorted(result.metrics["score"] for result in tuner.fit())
    assert scores == [1, 4, 9]
    assert 0 < max(seen) <= 2
    eventually(lambda: used(vc) == 0)


def test_ray_data_grows_a_cluster_that_has_nothing(cluster: Any) -> None:
    """It asks for more and looks every 20 seconds whether it got it."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    with inside(flexible_resource_max={"CPU": 3}) as vc, sampled(vc) as seen:
        rows = ray.data.range(120, override_num_blocks=120).map_batches(slowly_doubled).take_all()
    assert sum(row["id"] for row in rows) == 120 * 119
    assert 2 <= max(seen) <= 3
