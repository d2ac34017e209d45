"""Ray's libraries, unmodified, outside of virtual clusters and inside, beside a node with a taint. ``make soak``: on a cluster
of their own.

Where everything was is what Ray's own tables say of every actor and task of this program.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from tests.live.conftest import QUICK, eventually
from tests.live.test_seed_004 import slowly_doubled
from tests.live.test_virtual_clusters import inside, sampled, tree, used

import remora
from remora.live.adapter import messages, unpatched
from remora.live.adapter.ray_port import RayPort
from remora.live.link import CONTROLLER
from remora.wire.tokens import is_hold

Told = tuple[str, str, tuple[str, ...]]
PLACES = ("outside", "inside")
CPUS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    os.environ.update(QUICK)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for arguments in ({}, {}, {"labels": {"taint.remora.io/kept": "out"}}):
        made.add_node(num_cpus=2, **arguments)
    remora.init(address=made.address, logging_level="ERROR", log_to_driver=False, namespace="libraries")
    yield made
    remora.detach()
    ray.shutdown()
    made.shutdown()


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, cluster: Any) -> Iterator[set[str]]:
    """Where the test is: in no virtual cluster, or in one of three CPUs. Afterwards nothing of it was anywhere else."""
    before = {work_id for work_id, _, _ in _all_told()}
    tainted = {node["NodeID"] for node in unpatched.nodes() if "taint.remora.io/kept" in node["Labels"]}
    nodes = {node["NodeID"] for node in unpatched.nodes() if node["Alive"]} - tainted
    with contextlib.ExitStack() as stack:
        if request.param == "inside":
            vc = stack.enter_context(inside(flexible_resource_min={"CPU": CPUS}, flexible_resource_max={"CPU": CPUS}))
            nodes = {row["node_id"] for row in tree()[vc]["nodes"]}
        yield nodes
        ran = [(name, where) for work_id, name, where in _all_told() if work_id not in before]
    assert ran
    strayed = [(name, node_id[:12]) for name, where in ran for node_id in where if node_id not in nodes]
    assert strayed == []


def _all_told() -> list[Told]:
    """The same, once nothing new is told: processes tell of their tasks about once a second."""
    known: list[Told] = _everything()
    before: list[Told] | None = None
    while known != before:
        time.sleep(2.5)
        known, before = _everything(), known
    return known


def _everything() -> list[Told]:
    """Every actor and task of this program that ever ran, and where it was."""
    job_id, lookup = ray.get_runtime_context().get_job_id(), RayPort()._lookup()
    accessor = ray._private.state.state._connect_and_get_accessor()
    works = [messages.actor(data) for data in accessor.get_actor_table(ray.JobID.from_hex(job_id), None)]
    works += [task.work for task in lookup.tasks_of(job_id)]
    own = (CONTROLLER, "ControllerActor")
    return [
        (work.work_id, work.name, work.node_ids) for work in works if not is_hold(work.name) and not work.name.startswith(own)
    ]


def _doubled(number: int) -> int:
    return 2 * number


def _doubled_batch(batch: Any) -> Any:
    return {"id": batch["id"] * 2}


def test_queue_and_actor_pool(place: set[str]) -> None:
    from ray.util import ActorPool
    from ray.util.queue import Queue

    class Doubler:
        def double(self, queue: Any, number: int) -> int:
            queue.put(number)
            return 2 * number

    queue = Queue()
    pool = ActorPool([ray.remote(num_cpus=0.5)(Doubler).remote() for _ in range(2)])
    assert sorted(pool.map_unordered(lambda actor, number: actor.double.remote(queue, number), range(10))) == [*range(0, 20, 2)]
    assert sorted(queue.get() for _ in range(10)) == [*range(10)]
    queue.shutdown()


def test_multiprocessing(place: set[str]) -> None:
    from ray.util.multiprocessing import Pool

    with Pool(processes=2) as pool:
        assert pool.map(_doubled, range(20)) == [*range(0, 40, 2)]
        assert sorted(pool.imap_unordered(_doubled, range(4))) == [0, 2, 4, 6]
    pool.join()


def test_joblib(place: set[str]) -> None:
    joblib = pytest.importorskip("joblib", reason="make soak installs it: pip install joblib")
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_backend("ray", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(_doubled)(number) for number in range(20))
    assert found == [*range(0, 40, 2)]


def test_dask(place: set[str]) -> None:
    dask = pytest.importorskip("dask", reason="make soak installs it: pip install dask")
    from ray.util.dask import ray_dask_get

    doubled = [dask.delayed(_doubled)(number) for number in range(10)]
    assert dask.delayed(sum)(doubled).compute(scheduler=ray_dask_get) == 90


def test_data(place: set[str]) -> None:
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.range(60, override_num_blocks=12).map_batches(_doubled_batch).take_all()
    assert sum(row["id"] for row in rows) == 60 * 59


def test_data_grows_a_cluster_that_has_nothing(cluster: Any) -> None:
    """It asks for more and looks every 20 seconds whether it got it."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    with inside(flexible_resource_max={"CPU": 3}) as vc, sampled(vc) as seen:
        rows = ray.data.range(120, override_num_blocks=120).map_batches(slowly_doubled).take_all()
    assert sum(row["id"] for row in rows) == 120 * 119
    assert 2 <= max(seen) <= 3


def test_tune(place: set[str], tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> dict[str, Any]:
        return {"score": config["x"] ** 2}

    space, run = {"x": tune.grid_search([1, 2, 3])}, tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    found = tune.Tuner(trial, param_space=space, run_config=run).fit()
    assert sorted(result.metrics["score"] for result in found) == [1, 4, 9]


def test_tune_uses_its_share_and_gives_it_back(cluster: Any, tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> dict[str, Any]:
        return {"score": config["x"] ** 2}

    with inside(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2}) as vc, sampled(vc) as seen:
        space, run = {"x": tune.grid_search([1, 2, 3])}, tune.RunConfig(storage_path=str(tmp_path), verbose=0)
        tune.Tuner(trial, param_space=space, run_config=run).fit()
    assert 0 < max(seen) <= 2
    eventually(lambda: used(vc) == 0)


def test_train(place: set[str], tmp_path: Path) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop() -> None:
        from ray import train

        rank = train.get_context().get_world_rank()
        seen = {"size": train.get_context().get_world_size(), "node": ray.get_runtime_context().get_node_id()}
        (tmp_path / f"{rank}.json").write_text(json.dumps(seen))

    scaling, run = ScalingConfig(num_workers=2), RunConfig(storage_path=str(tmp_path / "runs"))
    assert DataParallelTrainer(loop, scaling_config=scaling, run_config=run).fit().error is None
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [each["size"] for each in told] == [2, 2]
    assert {each["node"] for each in told} <= place


def test_serve(place: set[str]) -> None:
    """Two replicas, more of them when there is more to do, another version, HTTP; all of it in its place."""
    serve = pytest.importorskip("ray.serve", reason="make soak installs it: pip install 'ray[serve]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"

    class Hello:
        def __init__(self, word: str) -> None:
            self.word = word

        async def __call__(self, request: Any) -> dict[str, Any]:
            import asyncio

            await asyncio.sleep(float(request.query_params.get("seconds", "0")))
            return {"word": self.word, "node": ray.get_runtime_context().get_node_id(), "pid": os.getpid()}

    def ask(query: str = "") -> dict[str, Any]:
        with urllib.request.urlopen(url + query, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def pids(query: str = "") -> set[int]:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, [query] * 16))
        assert {answer["node"] for answer in answers} <= place
        return {answer["pid"] for answer in answers}

    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        fixed = serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.5})(Hello)
        serve.run(fixed.bind("hello"))
        assert ask()["word"] == "hello"
        assert eventually(lambda: len(pids("?seconds=0.1")) == 2)

        serve.run(fixed.bind("again"))
        assert eventually(lambda: ask()["word"] == "again")

        scaling = {"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 1, "upscale_delay_s": 0.5}
        elastic = serve.deployment(autoscaling_config=scaling, ray_actor_options={"num_cpus": 0.5})(Hello)
        serve.run(elastic.bind("elastic"))
        assert eventually(lambda: ask()["word"] == "elastic")
        assert eventually(lambda: len(pids("?seconds=0.5")) > 1, 120)
    finally:
        serve.shutdown()
