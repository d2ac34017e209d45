"""What the design stands on in stock Ray; a release that changes one of these fails here, by name.

The traps are in ``test_traps``, the figures in ``benchmarks/facts.py`` (``make benchfacts``): nothing here is timed. Not held
here: how much slower an actor starts with a ``worker_process_setup_hook`` (a time, and the reason why the layer travels with
functions instead), and what Ray's autoscaler makes of a token, which needs a cluster of its own (``tests/soak``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import ray
from ray import JobID, PlacementGroupID
from ray._private.state import total_resources_per_node
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import NodeStatus
from ray.core.generated.gcs_pb2 import ActorTableData
from ray.core.generated.pubsub_pb2 import ChannelType
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from tests.live.conftest import World, eventually, run_driver, waits

import remora
from remora.live import installed, names
from remora.live.adapter.feeds import subscriber
from remora.live.adapter.ray_port import RayPort
from remora.live.attach import install
from remora.live.host.group_host import Groups
from remora.protocol.steps import Found
from remora.wire.group_plans import GroupPlan
from remora.wire.rewrite import Defaults

pytestmark = pytest.mark.core


def gcs() -> Any:
    return ray._private.worker.global_worker.gcs_client


def resize(world: World, node: str, amounts: dict[str, float]) -> dict[str, float]:
    return dict(gcs().resize_raylet_resource_instances(world.ids[node], amounts))


def withdrawn(world: World, node: str, name: str) -> bool:
    return name not in resize(world, node, {name: 0})


def used(world: World, name: str) -> float:
    view = next(view for view in RayPort().observe().nodes if view.node_id == world.ids["a"])
    return round(view.total.get(name, 0.0) - view.available.get(name, 0.0), 4)


def make_holder(**options: Any) -> Any:
    """An actor that holds what it is given and says where it is."""

    class Holder:
        def place(self) -> tuple[str, int]:
            return str(ray.get_runtime_context().get_node_id()), os.getpid()

        def held(self) -> dict[str, float]:
            return dict(ray.get_runtime_context().get_assigned_resources())

    return ray.remote(Holder).options(**{"num_cpus": 0, **options}).remote()


def place(world: World, holder: Any) -> str:
    return world.name(ray.get(holder.place.remote(), timeout=90)[0])


def hold(world: World, resources: dict[str, float]) -> Any:
    """An actor on ``a``, which alone has these resources. No hard affinity: before Ray 2.58 the raylet of whoever asks places
    an actor, and fails one whose node got its resource a moment ago."""
    here = NodeAffinitySchedulingStrategy(world.ids["a"], soft=True)
    holder = make_holder(resources=resources, scheduling_strategy=here)
    assert place(world, holder) == "a"
    return holder


def in_table(holder: Any) -> Any:
    accessor = ray._private.state.state._connect_and_get_accessor()
    return ActorTableData.FromString(accessor.get_actor_info(holder._actor_id))


def is_in_state(holder: Any, state: str) -> bool:
    data = ray._private.state.state._connect_and_get_accessor().get_actor_info(holder._actor_id)  # None until it is known
    return bool(data) and bool(ActorTableData.FromString(data).state == ActorTableData.ActorState.Value(state))


# ------------------------------------------------------------------------------------------------------------- resizing


def test_a_resize_adds_and_takes_a_resource_of_a_live_node_and_returns_its_new_totals(stock: World) -> None:
    totals = resize(stock, "a", {"fact/new": 1000})
    assert (totals["fact/new"], totals["CPU"]) == (1000, 2)
    assert "fact/new" not in resize(stock, "a", {"fact/new": 0})


def test_a_thousand_names_go_in_one_call(stock: World) -> None:
    many = {f"fact/many/{number}": 1.0 for number in range(1000)}
    assert many.items() <= resize(stock, "b", many).items()
    assert not many.keys() & resize(stock, "b", dict.fromkeys(many, 0.0)).keys()


def test_a_task_that_waits_for_a_resource_starts_when_a_live_node_gets_it(stock: World) -> None:
    ref = ray.remote(num_cpus=0, resources={"fact/late": 0.0001})(lambda: 1).remote()
    assert waits(ref, 0.5)
    resize(stock, "b", {"fact/late": 1})
    assert ray.get(ref, timeout=90) == 1
    resize(stock, "b", {"fact/late": 0})


def test_an_actor_that_waits_for_a_resource_starts_where_it_appears_with_its_handle_given_before(stock: World) -> None:
    holder = make_holder(resources={"fact/lease": 1})
    ref = holder.place.remote()
    assert waits(ref, 0.5)
    resize(stock, "b", {"fact/lease": 1})
    assert stock.name(ray.get(ref, timeout=90)[0]) == "b"
    ray.kill(holder)
    resize(stock, "b", {"fact/lease": 0})


def test_a_total_shrinks_to_what_is_in_use_and_that_is_taken_again_when_it_comes_back(stock: World) -> None:
    resize(stock, "a", {"fact/clamp": 1000})
    first = hold(stock, {"fact/clamp": 0.5})
    assert round(resize(stock, "a", {"fact/clamp": 0})["fact/clamp"], 4) == 0.5
    second = make_holder(resources={"fact/clamp": 0.5})
    there = second.place.remote()
    assert waits(there, 0.5)
    ray.kill(first)
    assert stock.name(ray.get(there, timeout=90)[0]) == "a"
    ray.kill(second)
    eventually(lambda: withdrawn(stock, "a", "fact/clamp"))


def test_the_smallest_amount_counts_and_amounts_are_cut_not_rounded(stock: World) -> None:
    resize(stock, "a", {"fact/unit": 1, "fact/cut": 1})
    holders = [hold(stock, {"fact/unit": 0.0001}), hold(stock, {"fact/cut": 0.0003})]
    eventually(lambda: used(stock, "fact/unit") == 0.0001)
    eventually(lambda: used(stock, "fact/cut") > 0)
    assert used(stock, "fact/cut") == 0.0002  # 0.0003 * 10000 is a hair below 3
    for holder in holders:
        ray.kill(holder)
    resize(stock, "a", {"fact/unit": 0, "fact/cut": 0})


def test_what_is_queued_at_a_raylet_fails_when_no_node_has_any_of_its_resource_left(stock: World) -> None:
    RayPort().resize(stock.ids["a"], {"fact/gone": 1000})
    hog = make_holder(num_cpus=2, scheduling_strategy=NodeAffinitySchedulingStrategy(stock.ids["a"], soft=False))
    ray.get(hog.place.remote())
    queued = ray.remote(resources={"fact/gone": 0.0001})(lambda: 1).remote()
    eventually(lambda: any("fact/gone" in demand.shape for demand in RayPort().observe().demands))
    RayPort().resize(stock.ids["a"], {"fact/gone": 0})
    ray.kill(hog)
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="becoming infeasible"):
        ray.get(queued, timeout=60)


def test_unit_instance_resources_cannot_be_resized(stock: World) -> None:
    with pytest.raises(ValueError, match="GPU"):
        resize(stock, "a", {"GPU": 1})


def test_a_task_sees_the_tokens_that_it_holds(stock: World) -> None:
    resize(stock, "a", {"fact/class": 1000, "fact/share": 1})
    look = ray.remote(resources={"fact/class": 0.0001, "fact/share": 1})(lambda: dict(held()))

    def held() -> dict[str, float]:
        return dict(ray.get_runtime_context().get_assigned_resources())

    assert ray.get(look.remote(), timeout=90) == {"CPU": 1, "fact/class": 0.0001, "fact/share": 1}
    eventually(lambda: not {"fact/class", "fact/share"} & resize(stock, "a", {"fact/class": 0, "fact/share": 0}).keys())


# ---------------------------------------------------------------------------------------------------------- lease tokens


def test_a_soft_node_affinity_beside_a_token_is_followed(stock: World) -> None:
    for node in ("a", "b"):
        resize(stock, node, {"fact/hint": 1})
    everywhere = [make_holder(resources={"fact/hint": 1}) for _ in range(2)]  # by then every raylet has heard of both
    assert {place(stock, holder) for holder in everywhere} == {"a", "b"}
    for holder in everywhere:
        ray.kill(holder)
    for node in ("b", "a"):
        hint = NodeAffinitySchedulingStrategy(stock.ids[node], soft=True)
        holder = make_holder(resources={"fact/hint": 1}, scheduling_strategy=hint)
        assert place(stock, holder) == node
        ray.kill(holder)
    for node in ("a", "b"):
        eventually(partial(withdrawn, stock, node, "fact/hint"))


def test_a_soft_node_affinity_gives_way_to_the_token(stock: World) -> None:
    resize(stock, "b", {"fact/law": 1})
    hint = NodeAffinitySchedulingStrategy(stock.ids["a"], soft=True)
    holder = make_holder(resources={"fact/law": 1}, scheduling_strategy=hint)
    assert place(stock, holder) == "b"
    ray.kill(holder)
    eventually(lambda: withdrawn(stock, "b", "fact/law"))


def test_a_hard_node_affinity_fails_at_once_where_the_node_lacks_a_resource(stock: World) -> None:
    here = NodeAffinitySchedulingStrategy(stock.ids["a"], soft=False)
    ref = ray.remote(resources={"fact/none": 1})(lambda: 1).options(scheduling_strategy=here).remote()
    with pytest.raises(ray.exceptions.TaskUnschedulableError):
        ray.get(ref, timeout=90)


def test_gcs_knows_of_a_workers_death_before_its_raylet_gives_away_what_it_held(stock: World) -> None:
    def sit() -> Iterator[tuple[str, int]]:
        yield ray.get_runtime_context().get_worker_id(), os.getpid()
        time.sleep(600)

    there = NodeAffinitySchedulingStrategy(stock.ids["a"], soft=False)
    sitter = ray.remote(sit).options(num_cpus=0, max_retries=0, resources={"fact/killed": 1}, scheduling_strategy=there)
    for _ in range(3):
        resize(stock, "a", {"fact/killed": 1})
        said = sitter.remote()
        worker_id, pid = ray.get(next(said), timeout=90)
        assert withdrawn(stock, "a", "fact/killed") is False
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: withdrawn(stock, "a", "fact/killed"))
        assert RayPort().ended([worker_id]) == [worker_id]


def test_an_actor_whose_worker_dies_restarts_on_its_node_and_keeps_its_token(stock: World) -> None:
    resize(stock, "b", {"fact/kept": 1})
    holder = make_holder(resources={"fact/kept": 1}, max_restarts=-1, max_task_retries=-1)
    node, pid = ray.get(holder.place.remote(), timeout=90)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: in_table(holder).num_restarts == 1)
    again, new_pid = ray.get(holder.place.remote(), timeout=90)
    assert (stock.name(node), again, new_pid != pid) == ("b", node, True)
    assert ray.get(holder.held.remote()) == {"fact/kept": 1}
    ray.kill(holder)
    eventually(lambda: withdrawn(stock, "b", "fact/kept"))


@pytest.mark.deep
def test_an_actor_whose_node_dies_waits_and_restarts_where_its_token_is_written(stock: World) -> None:
    with stock.extra("mortal", num_cpus=1, labels={"zone": "mortal"}) as kill:
        resize(stock, "mortal", {"fact/moves": 1})
        hint = NodeAffinitySchedulingStrategy(stock.ids["mortal"], soft=True)
        options = {"max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": hint}
        holder = make_holder(resources={"fact/moves": 1}, **options)
        assert place(stock, holder) == "mortal"
        kill()
        eventually(lambda: is_in_state(holder, "RESTARTING"))
        asked = holder.place.remote()
        assert waits(asked)
        assert is_in_state(holder, "RESTARTING")
        resize(stock, "b", {"fact/moves": 1})
        assert stock.name(ray.get(asked, timeout=90)[0]) == "b"
        ray.kill(holder)
    eventually(lambda: withdrawn(stock, "b", "fact/moves"))


def test_a_killed_raylet_is_noticed_as_soon_as_the_health_check_is_set_to(world: World) -> None:
    config = ray._config
    assert (config.health_check_period_ms(), config.health_check_timeout_ms()) == (500, 500)
    assert config.health_check_failure_threshold() == 2


# ------------------------------------------------------------------------------------------------------ placement groups


def test_a_placement_group_is_ready_at_once_when_its_token_is_there(stock: World) -> None:
    resize(stock, "b", {"fact/group": 1})
    eventually(lambda: "fact/group" in total_resources_per_node()[stock.ids["b"]])  # the view that groups are placed by
    group = ray.util.placement_group([{"fact/group": 1}])
    assert group.wait(30)
    ray.util.remove_placement_group(group)
    eventually(lambda: withdrawn(stock, "b", "fact/group"))


def test_a_placement_group_says_when_it_was_refused_and_why(stock: World) -> None:
    """Long before ``wait`` gives up, which counts whole seconds."""

    def state(group: Any) -> str:
        return str(ray.util.placement_group_table(group)["stats"]["scheduling_state"])

    resize(stock, "a", {"fact/refused": 1})
    eventually(lambda: "fact/refused" in total_resources_per_node()[stock.ids["a"]])
    first = ray.util.placement_group([{"fact/refused": 1}])
    assert first.wait(60)
    second, third = (ray.util.placement_group([{name: 1}]) for name in ("fact/refused", "fact/nowhere"))
    eventually(lambda: state(second) == "NO_RESOURCES")
    eventually(lambda: state(third) == "INFEASIBLE")
    assert state(first) == "FINISHED"
    for group in (first, second, third):
        ray.util.remove_placement_group(group)
    eventually(lambda: withdrawn(stock, "a", "fact/refused"))


@pytest.mark.deep
def test_an_infeasible_placement_group_is_not_tried_again_after_a_resize(stock: World) -> None:
    group = ray.util.placement_group([{"fact/after": 1}])
    assert not group.wait(1)
    resize(stock, "b", {"fact/after": 1})
    eventually(lambda: any("fact/after" in view.total for view in RayPort().observe().nodes))
    assert not group.wait(3)
    ray.util.remove_placement_group(group)
    resize(stock, "b", {"fact/after": 0})


# ---------------------------------------------------------------------------------------------------------- what is seen


def test_one_call_says_every_nodes_totals_availability_labels_and_idle_time(stock: World) -> None:
    states = {node.node_id.hex(): node for node in get_cluster_resource_state(gcs()).node_states}
    node = states[stock.ids["gpu"]]
    assert (node.total_resources["CPU"], node.total_resources["accel"], node.labels["zone"]) == (1, 1, "g")
    assert node.labels["taint.remora.io/gpu_node"] == "true"
    assert node.status in (NodeStatus.RUNNING, NodeStatus.IDLE)
    eventually(lambda: idle_ms(stock) > 0, 150)  # what a test before this one has left there stays for 90 s
    resize(stock, "a", {"fact/busy": 1})
    holder = hold(stock, {"fact/busy": 1})
    eventually(lambda: idle_ms(stock) == 0)
    assert used(stock, "fact/busy") == 1
    ray.kill(holder)
    eventually(lambda: withdrawn(stock, "a", "fact/busy"))


def idle_ms(world: World) -> int:
    nodes = get_cluster_resource_state(gcs()).node_states
    return next(node.idle_duration_ms for node in nodes if node.node_id.hex() == world.ids["a"])


def test_what_is_in_use_is_told_sooner_than_the_autoscaler_hears_of_it(stock: World) -> None:
    """The report that nodes send ten times a second; what the autoscaler reads is asked for once a second."""

    def soon() -> float:
        reports = gcs().get_all_resource_usage(timeout=10).resource_usage_data.batch
        return next(each.resources_available.get("fact/soon", 0.0) for each in reports if each.node_id.hex() == stock.ids["a"])

    def late() -> float:
        states = get_cluster_resource_state(gcs()).node_states
        return next(each.available_resources.get("fact/soon", 0.0) for each in states if each.node_id.hex() == stock.ids["a"])

    def is_told_sooner() -> bool:
        holder = hold(stock, {"fact/soon": 1})
        eventually(lambda: soon() == late() == 99)
        ray.kill(holder)
        eventually(lambda: soon() == 100)
        return late() == 99

    resize(stock, "a", {"fact/soon": 100})
    assert any(is_told_sooner() for _ in range(10))
    eventually(lambda: withdrawn(stock, "a", "fact/soon"))


def test_what_waits_is_reported_by_shape(stock: World) -> None:
    refs = [ray.remote(resources={"fact/demand": 1})(lambda: 1).remote() for _ in range(2)]
    eventually(lambda: [d.count for d in RayPort().observe().demands if "fact/demand" in d.shape] == [2])
    for ref in refs:
        ray.cancel(ref)


def test_the_actor_table_keeps_resources_and_labels_also_while_an_actor_waits(stock: World) -> None:
    holder = make_holder(resources={"fact/table": 1}, _labels={"type": "cat"})
    eventually(lambda: is_in_state(holder, "PENDING_CREATION"))
    row = in_table(holder)
    assert (dict(row.required_resources), dict(row.labels)) == ({"fact/table": 1}, {"type": "cat"})
    ray.kill(holder)


def heard(channel: int, world: World, act: Callable[[], Any], matches: Callable[[Any], bool]) -> Any:
    """The first message of a channel that matches; from the subscription on none is lost, so it is read after the act."""

    async def listen() -> Any:
        feed = subscriber(channel, world.cluster.address)
        await feed.subscribe()
        act()
        while True:
            await feed._poll()
            while feed._queue:
                published = feed._queue.popleft()
                message = getattr(published, published.WhichOneof("inner_message"))
                if matches(message):
                    await feed.close()
                    return message

    return asyncio.run(asyncio.wait_for(listen(), timeout=60))


def test_a_feed_tells_of_actors_and_their_nodes_but_not_of_what_they_hold(stock: World) -> None:
    made: list[Any] = []
    message = heard(
        ChannelType.GCS_ACTOR_CHANNEL,
        stock,
        lambda: made.append(make_holder(num_cpus=0.01, name="fact-feed")),
        lambda actor: actor.name == "fact-feed" and actor.state == ActorTableData.ALIVE,
    )
    assert message.address.node_id.hex() in stock.ids.values()
    assert (dict(message.required_resources), dict(in_table(made[0]).required_resources)) == ({}, {"CPU": 0.01})
    ray.kill(made[0])


def test_a_feed_tells_of_jobs_that_end(stock: World) -> None:
    job: list[str] = []

    def run() -> None:
        code = 'ray.init(address, logging_level="ERROR"); print(ray.get_runtime_context().get_job_id())'
        job.append(run_driver(stock, code).communicate(timeout=120)[0].split()[-1])

    message = heard(ChannelType.GCS_JOB_CHANNEL, stock, run, lambda found: bool(found.is_dead))
    assert message.job_id.hex() == job[0]


@pytest.mark.deep
def test_a_feed_tells_of_nodes_that_join_with_their_labels(stock: World) -> None:
    def join() -> None:
        with stock.extra("joins", num_cpus=1, labels={"zone": "joins"}):
            pass

    found = heard(ChannelType.GCS_NODE_INFO_CHANNEL, stock, join, lambda node: node.labels.get("zone") == "joins")
    assert found.resources_total["CPU"] == 1


def test_a_feed_tells_of_workers_that_die(stock: World) -> None:
    holder = make_holder()
    _, pid = ray.get(holder.place.remote(), timeout=90)
    worker_id = in_table(holder).address.worker_id
    heard(
        ChannelType.GCS_WORKER_DELTA_CHANNEL,
        stock,
        lambda: os.kill(pid, signal.SIGKILL),
        lambda delta: bool(delta.worker_id == worker_id),
    )


# ------------------------------------------------------------------------------------------------ what a controller needs


@pytest.mark.deep
def test_a_detached_async_actor_outlives_the_driver_that_made_it(stock: World) -> None:
    code = """
        ray.init(address, logging_level="ERROR", namespace="fact")
        class Keeper:
            async def pid(self):
                import os
                return os.getpid()
        keeper = ray.remote(num_cpus=0, max_restarts=-1)(Keeper).options(name="fact-keeper", lifetime="detached").remote()
        print(ray.get(keeper.pid.remote()))
        """
    pid = int(run_driver(stock, code).communicate(timeout=120)[0].split()[-1])
    keeper = ray.get_actor("fact-keeper", namespace="fact")
    assert ray.get(keeper.pid.remote(), timeout=90) == pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: in_table(keeper).num_restarts == 1)
    ray.kill(keeper)


def test_internal_kv_keeps_apart_by_namespace_and_lists_by_prefix(stock: World) -> None:
    client = gcs()
    assert client.internal_kv_put(b"fact/1", b"one", True, b"fact") == 1
    assert client.internal_kv_put(b"fact/1", b"two", False, b"fact") == 0
    assert client.internal_kv_get(b"fact/1", b"fact") == b"one"
    assert client.internal_kv_get(b"fact/1", b"other") is None
    assert list(client.internal_kv_keys(b"fact/", b"fact")) == [b"fact/1"]
    assert client.internal_kv_del(b"fact/1", False, b"fact") == 1
    assert client.internal_kv_get(b"fact/1", b"fact") is None


@pytest.mark.parametrize("setting", ["0", "1"])
def test_one_variable_silences_the_complaints_about_requests_that_wait(setting: str, stock: World) -> None:
    code = """
        from ray._private.worker import filter_autoscaler_events
        ray.init(address, logging_level="ERROR")
        print(len(list(filter_autoscaler_events([":event_summary:No available node types can fulfill"]))))
        """
    said = run_driver(stock, code, RAY_SCHEDULER_EVENTS=setting).communicate(timeout=60)[0]
    assert (int(said) > 0) == (setting == "1")


def test_an_attached_driver_drops_the_complaints_about_tokens_and_keeps_the_rest(world: World) -> None:
    complaint = ":event_summary:No available node types can fulfill resource request {'remora/class/ab': 0.0001}"
    heard = list(ray._private.worker.filter_autoscaler_events([complaint, ":event_summary:Adding 1 node(s)"]))
    assert heard[-1] == "Adding 1 node(s)"
    assert not any("remora/" in line for line in heard)


# -------------------------------------------------------------------------------------------------------- private names


@pytest.mark.parametrize("name", names.TOUCHED, ids=lambda name: f"{name.module}.{name.path}")
def test_a_missing_name_is_named_and_nothing_is_touched(
    stock: World, name: names.Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "TOUCHED", (name._replace(path=f"{name.path}_gone"),))
    with pytest.raises(remora.IncompatibleRayError, match=f"{name.path}_gone is missing"):
        install.install(Defaults())
    assert installed.current() is None


def test_a_placement_group_can_have_an_id_of_ours_and_what_is_submitted_into_it_before_waits(stock: World, where: Any) -> None:
    """Decision 11: GCS takes the id that it is given, and keeps the questions about one that it does not know."""
    context = ray.get_runtime_context()
    group_id = PlacementGroupID.of(JobID.from_hex(context.get_job_id()))
    group = PlacementGroup(group_id, [{"CPU": 1.0}])
    inside = PlacementGroupSchedulingStrategy(group)
    task, ready = where.options(scheduling_strategy=inside).remote(), group.ready()
    assert not group.wait(0.3)
    assert not ray.wait([task, ready], timeout=0.3)[0]
    groups, plan = Groups(), GroupPlan(group_id.hex(), b"", context.get_job_id())
    assert groups.create(plan, [{"CPU": 1.0}]) == ""
    assert groups.create(plan, [{"CPU": 1.0}]) == ""  # the same one
    assert ray.get(ready, timeout=60) == group
    assert ray.get(task, timeout=60)
    ray.util.remove_placement_group(group)
    eventually(lambda: groups.find(group_id.hex()) is Found.HOPELESS)


def test_what_waits_in_a_group_that_is_removed_before_it_was_reserved_runs_when_it_is_created_again(
    stock: World, where: Any
) -> None:
    """But whoever waits for the group itself is told that it was removed."""
    context = ray.get_runtime_context()
    group_id = PlacementGroupID.of(JobID.from_hex(context.get_job_id()))
    group, groups = PlacementGroup(group_id, [{"CPU": 1.0}]), Groups()
    plan = GroupPlan(group_id.hex(), b"", context.get_job_id())
    task, ready = where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote(), group.ready()
    groups.create(plan, [{"CPU": 1.0, "fact/nowhere": 1.0}])
    eventually(lambda: groups.find(group_id.hex()) is Found.HOPELESS)
    groups.remove(group_id.hex())
    with pytest.raises(Exception, match="removed"):
        ray.get(ready, timeout=60)
    groups.create(plan, [{"CPU": 1.0}])
    assert ray.get(task, timeout=60)
    groups.remove(group_id.hex())
