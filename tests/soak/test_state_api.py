"""``ray.util.state`` inside a virtual cluster: with Ray's dashboard, so on a cluster of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group, state
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import remora
from remora import VirtualCluster

pytest.importorskip("aiohttp", reason="the state API needs the dashboard of ray[default]")

ONE = VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
BIG = b"x" * 200_000  # too big to travel inside of a message
LISTS = ("tasks", "actors", "placement_groups", "objects", "workers", "nodes", "jobs")


def eventually(check: Callable[[], Any], timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return answer


class _Keeper:
    def keep(self) -> bytes:
        return BIG


Keeper: Any = ray.remote(num_cpus=0)(_Keeper)


@ray.remote
def make(pause: float = 0.0) -> bytes:
    time.sleep(pause)
    return BIG


class Things:
    """One of each kind, made wherever this is made; what it makes is called by ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.task = make.options(name=f"{name}-task").remote()
        self.actor = Keeper.options(name=f"{name}-actor").remote()
        self.call = self.actor.keep.options(name=f"{name}-call").remote()
        self.group: PlacementGroup = placement_group([{"CPU": 1}], name=f"{name}-group")
        in_group = PlacementGroupSchedulingStrategy(self.group)
        self.in_group = make.options(name=f"{name}-in-group", scheduling_strategy=in_group).remote()
        ray.wait([self.task, self.call, self.in_group], num_returns=3, timeout=60)

    @property
    def objects(self) -> set[str]:
        return {self.task.hex(), self.call.hex(), self.in_group.hex()}

    @property
    def tasks(self) -> set[str]:
        created = f"{self.name}-actor:_Keeper.__init__"
        return {created, f"{self.name}-task", f"{self.name}-call", f"{self.name}-in-group"}


@pytest.fixture(scope="module")
def attached() -> Iterator[None]:
    head = {"num_cpus": 4, "include_dashboard": True, "dashboard_port": 0}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=4)
    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield
    remora.detach()
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def outside(attached: None) -> Things:
    return Things("outside")


@pytest.fixture(scope="module")
def inside(outside: Things) -> Iterator[Things]:
    two = VirtualCluster(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    with two:
        yield Things("inside")


def rows(table: str, **arguments: Any) -> list[dict[str, Any]]:
    return [vars(row) for row in getattr(state, f"list_{table}")(**arguments)]


def user_tasks() -> set[str]:
    return {row["name"] for row in rows("tasks") if "-" in row["name"]}


def test_only_tasks_of_the_cluster_are_listed(inside: Things) -> None:
    eventually(lambda: user_tasks() >= inside.tasks)
    assert user_tasks() == inside.tasks
    summary = state.summarize_tasks()["cluster"]
    assert summary["summary"]["inside-task"]["state_counts"] == {"FINISHED": 1}
    assert "outside-task" not in summary["summary"]
    assert len(rows("tasks", limit=1)) == 1
    assert [row["name"] for row in rows("tasks", filters=[("name", "=", "inside-task")])] == ["inside-task"]
    assert rows("tasks", filters=[("name", "=", "outside-task")]) == []


def test_only_actors_of_the_cluster_are_listed(inside: Things, outside: Things) -> None:
    assert [row["name"] for row in rows("actors")] == ["inside-actor"]
    assert state.get_actor(inside.actor._actor_id.hex()).name == "inside-actor"
    assert state.get_actor(outside.actor._actor_id.hex()) is None
    assert state.summarize_actors()["cluster"]["total_actors"] == 1


def test_only_placement_groups_of_the_cluster_are_listed(inside: Things, outside: Things) -> None:
    (row,) = rows("placement_groups", detail=True)
    assert row["name"] == "inside-group"
    assert [bundle["unit_resources"] for bundle in row["bundles"]] == [{"CPU": 1.0}]
    assert state.get_placement_group(outside.group.id.hex()) is None


def test_only_objects_of_the_cluster_are_listed(inside: Things, outside: Things) -> None:
    eventually(lambda: {row["object_id"] for row in rows("objects")} >= inside.objects)
    assert not {row["object_id"] for row in rows("objects")} & outside.objects
    assert state.get_objects(inside.task.hex())
    assert not state.get_objects(outside.task.hex())
    assert state.summarize_objects()["cluster"]["total_objects"] == len(rows("objects"))


def test_nodes_are_virtual(inside: Things) -> None:
    listed = rows("nodes")
    assert {row["node_id"] for row in listed} == {node["NodeID"] for node in ray.nodes()}
    assert sum(row["resources_total"]["CPU"] for row in listed) == 2
    assert {row["state"] for row in listed} == {"ALIVE"}
    first = listed[0]["node_id"]
    assert state.get_node(first).node_id == first
    assert rows("nodes", filters=[("node_id", "!=", first)]) == [row for row in listed if row["node_id"] != first]
    ours = ray.get_runtime_context().current_cluster().cluster_id()
    assert {row["labels"]["ray.io/vcluster_id"] for row in listed} <= {ours, "root"}


def test_workers_and_jobs_are_those_of_the_cluster(inside: Things, outside: Things) -> None:
    pids = {row["pid"] for row in rows("workers") if row["is_alive"]}
    actors = {row["name"]: row["pid"] for row in rows("actors")}
    assert actors["inside-actor"] in pids
    elsewhere = ray.get_runtime_context().current_cluster().parent_cluster().state()
    others = {row.pid for row in elsewhere.list_actors() if row.name == "outside-actor"}
    assert others
    assert not others & pids
    assert [row["job_id"] for row in rows("jobs")] == [ray.get_runtime_context().get_job_id()]


def test_what_is_in_a_cluster_inside_is_seen_from_outside_of_it_only(inside: Things) -> None:
    with ONE:
        nested = Keeper.options(name="nested-actor").remote()
        ray.get(nested.keep.remote(), timeout=60)
        assert [row["name"] for row in rows("actors")] == ["nested-actor"]
        assert rows("placement_groups") == []
    assert {row["name"] for row in rows("actors")} == {"inside-actor", "nested-actor"}
    ray.kill(nested)


def test_a_task_inside_sees_the_same(inside: Things) -> None:
    @ray.remote
    def names() -> tuple[bool, list[str]]:
        early = "ray.util.state.api" in sys.modules
        from ray.util.state import list_actors

        return early, [row.name for row in list_actors() if row.state == "ALIVE"]

    assert ray.get(names.remote(), timeout=60) == (False, ["inside-actor"])


def test_no_row_anywhere_shows_a_token(inside: Things) -> None:
    outer = ray.get_runtime_context().current_cluster().parent_cluster().state()
    for table in LISTS:
        for ask in (getattr(state, f"list_{table}"), getattr(outer, f"list_{table}")):
            shown = ask(detail=True)
            assert shown
            assert "remora/class" not in repr(shown)
            assert "remora/vc" not in repr(shown)


def test_outside_of_it_everything_is_listed(inside: Things, outside: Things) -> None:
    elsewhere = ray.get_runtime_context().current_cluster().parent_cluster().state()
    assert {row.name for row in elsewhere.list_actors()} >= {"inside-actor", "outside-actor"}
    assert {row.name for row in elsewhere.list_tasks()} >= inside.tasks | outside.tasks
    assert len(elsewhere.list_nodes()) == 2


def test_importing_the_layer_does_not_import_the_state_api() -> None:
    code = "import sys, remora.live.attach.install; print('ray.util.state.api' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
