"""The controller and an autoscaler in memory: what waits makes machines come, what was promised keeps them, nothing is asked
twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import FaultyPort, LeasedWorld, spec, wanted

from remora import actor_affinity, label_not_in
from remora.controller.context import Context
from remora.controller.effects import AskForMachines, Done, LookAtMachines, Nudge, ReadNodeTypes, Resize
from remora.controller.journal import Journal
from remora.controller.scaling import machines, scale
from remora.controller.scaling.keeper import NUDGED_SECONDS
from remora.errors import ControllerError, InvalidVirtualClusterError
from remora.kernel.provisioning import planning
from remora.kernel.provisioning.demands import Waiting
from remora.model.node_types import parse_node_types
from remora.model.requests import parse_request
from remora.port.contract import NodeView, Observation
from remora.port.memory_scaler import MemoryScaler
from remora.port.scaler import Failure, Request, Survey
from remora.wire import calls
from remora.wire.asks import Ask, encode_ask
from remora.wire.tokens import KEEP, TAKEN, class_token

TYPES: dict[str, Any] = {
    "node_types": {
        "web": {"resources": {"CPU": 2}, "labels": {"kind": "web"}, "max_workers": 3},
        "gpu": {"resources": {"CPU": 2, "GPU": 1}, "labels": {"kind": "gpu"}, "taints": {"gpu_node": "true"}, "max_workers": 2},
    },
    "max_workers": 6,
}
TOLERATES = {"tolerations": {"gpu_node": "exists()"}}


class LatePort(FaultyPort):
    """Of nodes that are gone reports still tell for a moment: ``hidden_views``."""

    hidden_views: tuple[NodeView, ...] = ()

    def observe(self) -> Observation:
        found = super().observe()
        return Observation((*found.nodes, *self.hidden_views), found.demands) if self.hidden_views else found


class ScalingWorld(LeasedWorld):
    """A head without CPUs, and nothing else until machines come."""

    port: LatePort

    def __init__(self, types: dict[str, Any] | None = None, *, has_types: bool = True) -> None:
        port = LatePort()
        self.scaler = MemoryScaler(port, parse_node_types(types or TYPES) if has_types else None)
        port.scaler = self.scaler
        super().__init__("head", cpus=0, port=port)

    def wait_for(self, count: int = 1, resources: dict[str, float] | None = None, **options: Any) -> None:
        """So many tasks of a class wait, as raylets report it."""
        of = spec(**options)
        self.ensure(of)
        self.port.wait({**(resources or {"CPU": 1.0}), class_token(of.class_id): TAKEN}, count)

    def settle(self) -> dict[str, int]:
        """Let a second pass. Return what is asked for by then."""
        self.pass_time(1.0, every=0.5)
        return {name: request.count for name, request in self.scaler.asked.items()}

    def come(self) -> list[str]:
        """Whatever is asked for comes."""
        self.scaler.start()
        joined = self.scaler.arrive()
        self.later(0.5)
        return joined

    def keeps(self) -> list[str]:
        return sorted(node for node, amounts in self.port.holds.values() if KEEP in amounts)


@pytest.fixture
def world() -> ScalingWorld:
    return ScalingWorld()


def cats(world: ScalingWorld, count: int) -> None:
    """Actors that keep apart from each other wait."""
    apart = actor_affinity(label_not_in("app", ["cat"], False))
    for _ in range(count):
        world.submit(wanted(labels={"app": "cat"}, scheduling_strategy=apart))


# What waits


def test_a_task_that_tolerates_a_taint_makes_a_machine_come_that_has_it(world: ScalingWorld) -> None:
    world.wait_for(1, {"CPU": 1.0, "GPU": 1.0}, **TOLERATES)
    assert world.settle() == {"gpu": 1}


def test_a_hundred_tasks_never_start_a_machine_whose_taint_they_do_not_tolerate(world: ScalingWorld) -> None:
    world.wait_for(100)
    assert world.settle() == {"web": 3}


def test_a_selector_is_met_by_types_that_have_its_labels(world: ScalingWorld) -> None:
    world.wait_for(1, label_selector={"kind": "web"})
    assert world.settle() == {"web": 1}
    world.port.stop_waiting()
    world.wait_for(1, label_selector={"kind": "none"})
    assert world.settle() == {}


def test_those_that_keep_apart_ask_for_all_their_machines_at_once(world: ScalingWorld) -> None:
    cats(world, 5)
    assert world.settle() == {"web": 3}
    assert world.scaler.asks == [{"web": 3}]


def test_what_no_node_could_ever_hold_waits_no_moment(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.later(0.01)
    assert {name: each.count for name, each in world.scaler.asked.items()} == {"web": 1}


def test_what_a_node_could_hold_is_given_a_moment(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.settle()
    (node,) = world.come()
    world.port.stop_waiting()
    world.port.take(node, {"CPU": 2.0})
    world.pass_time(machines.JOINED_SECONDS + 1)
    world.wait_for(1)
    world.later(0.1)
    assert not world.scaler.asked
    assert world.settle() == {"web": 1}


def test_unattached_work_is_left_to_ray(world: ScalingWorld) -> None:
    world.port.wait({"CPU": 1.0}, 10)
    assert world.settle() == {}


def test_the_same_is_not_asked_again_and_is_withdrawn_when_it_is_there(world: ScalingWorld) -> None:
    world.wait_for(4)
    assert world.settle() == {"web": 2}
    world.pass_time(5)
    assert world.scaler.asks == [{"web": 2}]
    first, second = world.come()
    world.port.stop_waiting()
    for node in (first, second):
        world.port.take(node, {"CPU": 2.0})
    assert world.settle() == {}


def test_what_is_still_reported_as_waiting_when_a_machine_has_taken_it_starts_no_other(world: ScalingWorld) -> None:
    world.wait_for(2)
    world.settle()
    (node,) = world.come()
    world.port.take(node, {"CPU": 2.0})
    world.pass_time(machines.JOINED_SECONDS - 1.5, every=0.5)
    assert not world.scaler.asked
    assert world.scaler.asks == [{"web": 1}, {}]
    world.pass_time(machines.JOINED_SECONDS)
    assert sum(each.count for each in world.scaler.asked.values()) == 1, "what waits for longer is no echo"


def test_half_of_what_was_asked_for_came(world: ScalingWorld) -> None:
    cats(world, 2)
    world.settle()
    world.scaler.start()
    world.scaler.arrive(1)
    world.pass_time(2, every=0.5)
    (request,) = world.scaler.asked.values()
    assert (request.count, request.known) == (1, {"web-1"})
    assert world.scaler.start() == {}, "the other one is on its way"


def test_what_is_coming_is_never_counted_beyond_the_maximum(world: ScalingWorld) -> None:
    """A machine that joined may be listed as coming for a moment longer: to ask for more than there may be gets nothing."""
    cats(world, 4)
    world.settle()
    world.scaler.start()
    world.scaler.arrive(1)
    world.scaler.coming.append("web")
    world.pass_time(10, every=0.5)
    assert world.scaler.asks[-1] == {"web": 2}
    assert max(sum(ask.values()) for ask in world.scaler.asks) == 3


def test_a_machine_that_joined_since_the_last_look_is_not_coming() -> None:
    types = parse_node_types({"node_types": {"web": {"resources": {"CPU": 2}}}, "max_workers": 3})
    owner = machines.Machines(Context(lambda: 1000.0, Journal()))
    owner.is_on = True
    owner.learned(Done(ReadNodeTypes(), types))
    owner.refresh()
    owner.looked(Done(LookAtMachines(), Survey(coming={"web": 2, "unknown": 3})))
    assert owner.coming == {"web": 2}
    views = {"n1": NodeView("n1", "", {}, {"CPU": 2.0}, {"CPU": 2.0}, node_type="web")}
    owner.see(views, frozenset())
    assert owner.coming == {"web": 1}
    owner.looked(Done(LookAtMachines(), Survey(coming={"web": 5})))
    assert owner.coming == {"web": 2}, "three is the most of all together"


# Virtual clusters and groups


def test_a_minimum_that_no_node_could_hold_is_queued_for_machines(world: ScalingWorld) -> None:
    nodes = [{"nodes": [{"resources": {"CPU": 2}}] * 2, "scheduling_policy": "STRICT_SPREAD"}]
    cluster = world.create(fixed_size_nodes=nodes)
    assert world.state(cluster) == "QUEUED"
    assert world.settle() == {"web": 2}
    world.come()
    assert world.state(cluster) == "READY"
    world.pass_time(3, every=0.5)
    assert world.keeps() == ["web-1", "web-2"]
    assert world.scaler.end_idle() == []
    world.close(cluster, unused=True)
    world.pass_time(5, every=0.5)
    assert world.keeps() == []
    assert sorted(world.scaler.end_idle()) == ["web-1", "web-2"]


def test_a_minimum_on_a_machine_that_is_just_being_ended_is_not_ready(world: ScalingWorld) -> None:
    """No report says so yet; the machine itself is asked."""
    world.wait_for(2)
    world.settle()
    (node,) = world.come()
    world.port.stop_waiting()
    world.pass_time(machines.JOINED_SECONDS + 1)
    view = world.view(node)
    world.port.leave(node)
    world.port.hidden_views = (view,)
    cluster = world.create(flexible_resource_min={"CPU": 2})
    assert world.look(cluster)["state"] == "QUEUED"
    world.port.hidden_views = ()
    assert world.settle() == {"web": 1}
    world.come()
    world.later(0.5)
    assert world.look(cluster)["state"] == "READY"


def test_a_minimum_beyond_all_types_is_refused_as_before(world: ScalingWorld) -> None:
    with pytest.raises(InvalidVirtualClusterError, match="can never fit"):
        world.create(flexible_resource_min={"CPU": 1000})


def test_a_gang_that_does_not_fit_as_a_whole_starts_nothing(world: ScalingWorld) -> None:
    for _ in range(3):
        found = world.offer(None, *[{"CPU": 1.0}] * 4, strategy="STRICT_SPREAD")
        assert found.option is None
        world.later(0.5)
    assert "needs 4 nodes of type web, more than may be started (type web is at its maximum of 3)" in found.reason
    assert found.suggestions == ["raise the maximum of type web above 3"]
    assert world.settle() == {}


def test_a_group_that_waits_in_gcs_says_what_was_asked_for(world: ScalingWorld) -> None:
    """There is a node that could hold it, and something else is on it."""
    world.port.join("n1", {"CPU": 2.0})
    world.later(0.5)
    world.port.take("n1", {"CPU": 2.0})
    of = spec()
    world.ensure(of)
    shape = {"CPU": 2.0, class_token(of.class_id): TAKEN}
    world.port.wait_as_group([shape], "PACK")
    assert world.settle() == {"web": 1}
    (reason,) = waiting(world)
    assert "1 node of type web was asked for" in reason


def test_a_gang_makes_all_its_machines_come(world: ScalingWorld) -> None:
    for _ in range(3):
        assert world.offer(None, *[{"CPU": 2.0}] * 2, strategy="STRICT_SPREAD").option is None
        world.later(0.5)
    assert world.scaler.asks == [{"web": 2}]
    world.come()
    assert world.offer(None, *[{"CPU": 2.0}] * 2, strategy="STRICT_SPREAD").option == 0
    assert world.settle() == {}


# Machines that do not come, or do not help


def test_a_type_that_failed_rests_and_is_tried_again(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.settle()
    world.scaler.failed.append(Failure("web", "no capacity", world.time))
    world.pass_time(4)
    assert not world.scaler.asked
    world.pass_time(machines.REST_SECONDS)
    assert world.settle() == {"web": 1}


def test_another_type_is_started_for_one_that_failed() -> None:
    types = {name: {"resources": {"CPU": cpus}, "labels": {"k": name}} for name, cpus in (("small", 2), ("large", 4))}
    world = ScalingWorld({"node_types": types})
    world.wait_for(1)
    assert world.settle() == {"small": 1}
    world.scaler.failed.append(Failure("small", "no capacity", world.time))
    world.pass_time(4)
    assert world.settle() == {"large": 1}


def test_a_machine_that_never_comes_is_not_asked_for_for_ever(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.settle()
    world.pass_time(machines.LATE_SECONDS + 5, every=5)
    assert not world.scaler.asked


def test_what_others_asked_for_first_is_had_before_ours_where_both_cannot_be(world: ScalingWorld) -> None:
    """Ray drops the whole constraint where a part of it cannot be had: ours must not be in the way of theirs."""
    world.scaler.others.append("three machines of type web")
    world.wait_for(1)
    assert world.settle() == {"web": 1}
    world.scaler.refused = True
    world.pass_time(machines.LOOK_SECONDS + 1)
    assert not world.scaler.asked
    (reason,) = waiting(world)
    assert "somebody else's request (request_resources) cannot be had, or not together with this" in reason
    (problem,) = world.status()["machines"]["problems"]
    assert problem in reason
    world.scaler.refused = False
    world.scaler.coming += ["web"] * 3  # what is begun for them counts when ours is made again
    world.pass_time(machines.YIELD_SECONDS + 3)
    assert world.settle() == {"web": 1}
    assert world.scaler.start() == {}, "one of theirs will do for us too"
    assert "request_resources" not in waiting(world)[0]


def test_what_cannot_be_had_because_of_others_is_asked_for_again_and_again_but_not_without_a_break(world: ScalingWorld) -> None:
    world.scaler.others.append("a thousand machines")
    world.scaler.refused = True
    world.wait_for(1)
    world.pass_time(10 * machines.YIELD_SECONDS)
    assert 5 <= sum(bool(ask) for ask in world.scaler.asks) <= 12


SMALL_AND_LARGE: dict[str, Any] = {
    "node_types": {name: {"resources": {"CPU": cpus}, "labels": {"k": name}} for name, cpus in (("small", 2), ("large", 4))}
}


def test_nobody_waits_for_machines_that_were_begun_of_a_type_that_fails() -> None:
    """An autoscaler that fails begins again at once, as long as it is asked: that is no machine on its way."""
    world = ScalingWorld(SMALL_AND_LARGE)
    world.scaler.out_of.add("small")
    world.wait_for(1)
    assert world.settle() == {"small": 1}
    world.scaler.start()
    world.scaler.failed.append(Failure("small", "no capacity", world.time))
    world.pass_time(4)
    assert world.settle() == {"large": 1}
    assert "type small cannot be had now (no capacity)" in waiting(world)[0]


def test_machines_that_were_granted_are_waited_for_though_others_of_their_type_failed() -> None:
    world = ScalingWorld(SMALL_AND_LARGE)
    world.wait_for(1)
    assert world.settle() == {"small": 1}
    world.scaler.start()
    world.scaler.failed.append(Failure("small", "no capacity", world.time))
    world.pass_time(4)
    assert world.settle() == {"small": 1}


def test_another_type_is_started_for_machines_that_are_begun_for_ever() -> None:
    world = ScalingWorld(SMALL_AND_LARGE)
    world.wait_for(1)
    assert world.settle() == {"small": 1}
    world.scaler.start()
    world.pass_time(machines.LATE_SECONDS + 10, every=2)
    assert world.settle() == {"large": 1}
    assert "and none came): others are started instead" in waiting(world)[0]


def test_what_fails_while_its_type_rests_says_nothing_new(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.settle()
    for _ in range(4):
        world.scaler.failed.append(Failure("web", "no capacity", world.time))
        world.pass_time(3)
    world.pass_time(machines.REST_SECONDS)
    assert world.settle() == {"web": 1}, "the first rest is over"


def test_machines_that_come_and_help_nobody_are_not_started_on_and_on(world: ScalingWorld) -> None:
    """More waits than they take, by the numbers, and nothing of it starts there."""
    world.wait_for(3)
    world.settle()
    for _ in range(4):
        world.come()
        for view in world.views():
            if view.node_type:
                world.port.take(view.node_id, {name: amount for name, amount in view.available.items() if name == "nothing"})
        world.pass_time(machines.TRIED_SECONDS + 5)
    assert world.scaler.made <= 2


def test_nodes_that_are_smaller_than_their_type_says_are_not_started_for_what_they_cannot_hold() -> None:
    world = ScalingWorld({"node_types": {"web": {"resources": {"CPU": 4}}}})
    world.port.join("small", {"CPU": 2.0}, {}, "web")
    world.wait_for(1, {"CPU": 4.0})
    assert world.settle() == {}


# Words


def waiting(world: ScalingWorld) -> list[str]:
    return [row["reason"] for row in world.status()["waiting"]]


def test_what_waits_says_what_was_asked_for_and_when(world: ScalingWorld) -> None:
    world.wait_for(1, {"CPU": 1.0, "GPU": 1.0}, **TOLERATES)
    world.settle()
    world.pass_time(11)
    (reason,) = waiting(world)
    assert "1 node of type gpu was asked for 12 s ago" in reason


def test_what_waits_says_why_no_machine_is_started(world: ScalingWorld) -> None:
    world.wait_for(1, {"CPU": 1.0, "GPU": 1.0})
    world.settle()
    (reason,) = waiting(world)
    assert "no type can hold it: gpu has the untolerated taint gpu_node=true" in reason


def test_a_limit_is_named(world: ScalingWorld) -> None:
    world.wait_for(8)
    world.settle()
    (row,) = world.status()["waiting"]
    assert "for 2 of 8 no node is started: type web is at its maximum of 3" in row["reason"]
    assert "raise the maximum of type web above 3" in row["suggestions"]


def test_an_actor_that_waits_says_so_too(world: ScalingWorld) -> None:
    cats(world, 1)
    world.settle()
    (work,) = [each for each in world.port.find(None) if each.kind == "actor"]
    assert "1 node of type web was asked for" in world.why(work)


def test_a_queued_virtual_cluster_says_so_too(world: ScalingWorld) -> None:
    cluster = world.create(flexible_resource_min={"CPU": 4})
    world.settle()
    assert "2 nodes of type web were asked for" in world.look(cluster)["reason"]


def test_the_status_shows_types_with_how_many_there_are_and_for_whom(world: ScalingWorld) -> None:
    world.wait_for(4, name="work")
    world.settle()
    found = world.status()["machines"]
    rows = {row["name"]: row for row in found["types"]}
    assert (rows["web"]["have"], rows["web"]["asked"], rows["web"]["max_workers"]) == (0, 2, 3)
    assert rows["web"]["for"] == "work of 1 CPU (everything)"
    assert rows["gpu"]["asked"] == 0
    assert found["max_workers"] == 6
    assert any("2 nodes of type web asked for, for work of 1 CPU" in text for text in world.events("web"))


def test_a_cluster_without_autoscaler_has_no_machines_in_its_status() -> None:
    assert "machines" not in LeasedWorld("n1").status()


# What is not submitted yet


def tasks(count: int, **options: Any) -> tuple[str, int]:
    return encode_ask(Ask(parse_request("task", **options))), count


def would_start(world: ScalingWorld, spec: str = "", *work: tuple[str, int], priority: int = 0) -> list[tuple[Any, str]]:
    found = world.ask(calls.PlanFor(spec, priority, list(work)))
    return [(each["starts"], each["words"]) for each in found["asked"]]


def test_what_is_not_submitted_yet_is_planned_for_beside_what_waits(world: ScalingWorld) -> None:
    world.wait_for(2)
    assert world.settle() == {"web": 1}
    asks = list(world.scaler.asks)
    assert would_start(world, '{"flexible_resource_min": {"CPU": 4}}') == [({"web": 2}, "2 nodes of type web to be started")]
    ((starts, words),) = would_start(world, "", tasks(3, resources={"GPU": 1}, **TOLERATES))
    assert starts == {"gpu": 2}
    assert "1 of 3 get none: type gpu is at its maximum of 2" in words
    assert world.settle() == {"web": 1}
    assert world.scaler.asks == asks, "nothing changes"


def test_what_would_have_room_or_could_never_says_so(world: ScalingWorld) -> None:
    world.port.join("n1", {"CPU": 4.0})
    world.later(0.5)
    assert would_start(world, '{"flexible_resource_min": {"CPU": 3}}') == [({}, "has room on the nodes that are there")]
    assert would_start(world, "", tasks(1, resources={"CPU": 4})) == [({}, "has room on the nodes that are there")]
    ((_, words),) = would_start(world, "", tasks(1, resources={"TPU": 1}))
    assert words == "no type has the resource TPU"


def test_what_would_have_a_priority_comes_before_the_queue(world: ScalingWorld) -> None:
    """Three machines are the most: for the one that is queued, or for the one that would be before it."""
    world.create(flexible_resource_min={"CPU": 6})
    assert world.settle() == {"web": 3}
    ((_, words),) = would_start(world, '{"flexible_resource_min": {"CPU": 6}}')
    assert "type web is at its maximum of 3" in words
    ((starts, _),) = would_start(world, '{"flexible_resource_min": {"CPU": 6}}', priority=1)
    assert starts == {"web": 3}


def test_without_node_types_nothing_can_be_said_of_what_is_not_submitted() -> None:
    world = LeasedWorld("n1")
    with pytest.raises(ControllerError, match=r"it has no autoscaler.*remora plan --node-types"):
        world.ask(calls.PlanFor("", 0, [tasks(1)]))


def test_the_status_says_where_the_types_come_from(world: ScalingWorld) -> None:
    world.scaler.types = replace(parse_node_types({**TYPES, "max_workers": 7}), source="the file types.yaml")
    world.pass_time(machines.TYPES_SECONDS + 1, every=5)
    assert world.status()["machines"]["source"] == "the file types.yaml"


# Life and death


def test_a_controller_that_is_killed_asks_for_nothing_twice(world: ScalingWorld) -> None:
    world.wait_for(4)
    world.settle()
    for _ in range(3):
        world.restart()
        world.pass_time(2, every=0.5)
    assert world.scaler.asks == [{"web": 2}]


@pytest.mark.parametrize("withdrawn", [True, False])
def test_a_controller_that_dies_when_a_machine_has_joined_starts_no_other_for_what_runs_there(
    world: ScalingWorld, withdrawn: bool
) -> None:
    """Its successor still hears of work that has started as of work that waits, as those who lived on do."""
    world.wait_for(1, {"CPU": 2.0})
    world.settle()
    world.scaler.start()
    (node,) = world.scaler.arrive()
    if withdrawn:
        world.later(0.5)
    world.port.take(node, {"CPU": 2.0})
    world.restart()
    world.pass_time(machines.JOINED_SECONDS - 0.5, every=0.25)
    world.port.stop_waiting()
    world.pass_time(3, every=0.5)
    assert [ask for ask in world.scaler.asks if ask] == [{"web": 1}]
    assert world.scaler.start() == {}
    world.wait_for(1, {"CPU": 2.0})
    assert world.settle() == {"web": 1}, "for what waits later"


def test_what_one_before_asked_for_is_withdrawn_when_nobody_needs_it(world: ScalingWorld) -> None:
    world.scaler.asked = {"gpu": Request(2)}
    world.restart()
    assert world.settle() == {"gpu": 2}, "who needs it has a moment to be heard"
    world.pass_time(machines.JOINED_SECONDS)
    assert world.settle() == {}


def test_what_one_before_asked_for_and_what_is_needed_now_are_together_no_more_than_there_may_be(world: ScalingWorld) -> None:
    world.scaler.types = parse_node_types({**TYPES, "max_workers": 2})
    world.scaler.asked = {"gpu": Request(2)}
    world.restart()
    world.wait_for(8)
    world.pass_time(machines.JOINED_SECONDS - 0.5, every=0.25)
    assert all(sum(ask.values()) <= 2 for ask in world.scaler.asks)
    world.pass_time(machines.JOINED_SECONDS, every=0.25)
    assert world.scaler.asks[-1] == {"web": 2}, "what one before asked for is not needed"


def test_machines_that_one_before_kept_are_let_go_when_nothing_is_promised_there(world: ScalingWorld) -> None:
    cluster = world.create(flexible_resource_min={"CPU": 2})
    world.settle()
    world.come()
    world.pass_time(3, every=0.5)
    assert world.keeps() == ["web-1"]
    world.kill()
    world.restart()
    world.pass_time(3, every=0.5)
    assert world.keeps() == ["web-1"]
    world.close(cluster, unused=True)
    world.restart()
    world.pass_time(5, every=0.5)
    assert world.keeps() == []


def test_a_constraint_that_was_lost_is_asked_for_again(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.settle()
    world.scaler.asked = {}
    world.pass_time(machines.LOOK_SECONDS + 1)
    assert world.scaler.asks == [{"web": 1}, {"web": 1}]


def test_a_controller_that_is_shut_down_asks_for_nothing(world: ScalingWorld) -> None:
    world.wait_for(1)
    world.settle()
    world.ask(calls.Withdraw())
    assert not world.scaler.asked


def test_without_an_autoscaler_nothing_is_asked_planned_or_kept() -> None:
    world = LeasedWorld("n1")
    world.port.wait({"CPU": 8.0, class_token(spec().class_id): TAKEN}, 100)
    world.ensure(spec())
    world.pass_time(5)
    assert not [effect for effect in world.host.performed if isinstance(effect, AskForMachines)]
    assert world.controller.scaling.machines.plan() == []
    with pytest.raises(InvalidVirtualClusterError, match="can never fit"):
        world.create(flexible_resource_min={"CPU": 1000})


def test_types_that_cannot_be_learned_change_nothing_and_are_named() -> None:
    world = ScalingWorld(has_types=False)
    world.host.allows_failures = True
    world.wait_for(5)
    assert world.settle() == {}
    assert "there are no types" in world.controller.scaling.machines.problem


def test_a_node_that_is_about_to_be_ended_gets_nothing_new(world: ScalingWorld) -> None:
    world.wait_for(2)
    world.settle()
    (node,) = world.come()
    world.port.stop_waiting()
    world.port.drain(node)
    world.pass_time(machines.JOINED_SECONDS + 1)
    cluster = world.create(flexible_resource_min={"CPU": 2})
    assert world.state(cluster) == "QUEUED"
    assert world.settle() == {"web": 1}


# What looks busy, and is not


def test_a_machine_that_only_a_held_share_keeps_busy_is_made_idle(world: ScalingWorld) -> None:
    cluster = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 4})
    world.settle()
    world.come()
    world.pass_time(4)
    world.scaler.coming = ["web"]
    (second,) = world.scaler.arrive()
    world.later(0.5)
    world.want(cluster, 4)
    world.pass_time(60)
    assert [node for node, amounts in world.holds() if KEEP not in amounts] == [second]
    nudges = [effect for effect in world.host.performed if isinstance(effect, Nudge)]
    assert {effect.node_id for effect in nudges} == {second}
    assert len(nudges) <= 60 / NUDGED_SECONDS + 1
    assert all(KEEP not in effect.amounts for effect in nudges)


def test_what_keeps_a_machine_is_never_resized_while_it_is_held(world: ScalingWorld) -> None:
    world.create(flexible_resource_min={"CPU": 2})
    world.settle()
    world.come()
    world.pass_time(3, every=0.5)
    assert world.keeps() == ["web-1"]
    known = len(world.host.performed)
    world.wait_for(1)
    world.label("web-1", zone="a")
    world.pass_time(200, every=5)
    writes = [each for each in world.host.performed[known:] if isinstance(each, (Resize, Nudge)) and KEEP in each.amounts]
    assert writes == []
    assert world.keeps() == ["web-1"]


# One bad thing stops nobody else


def test_a_group_whose_virtual_cluster_is_gone_keeps_nobody_from_machines(world: ScalingWorld) -> None:
    cluster_id = world.create(flexible_resource_max={"CPU": 2})
    assert world.offer(cluster_id, {"CPU": 2.0}).option is None
    world.close(cluster_id, unused=True)
    world.wait_for(1)
    assert world.settle() == {"web": 1}
    assert world.failures() == {}


def test_what_cannot_be_planned_is_set_aside_and_the_rest_is_planned(world: ScalingWorld, monkeypatch: Any) -> None:
    stock = planning.plan

    def plan(cluster: Any, waiting: Waiting, *more: Any) -> Any:
        if any(demand.request.resources.to_dict().get("GPU") for demand in waiting.work):
            raise ZeroDivisionError("a bug")
        return stock(cluster, waiting, *more)

    monkeypatch.setattr(scale, "plan", plan)
    world.host.allows_failures = True
    world.wait_for(1, {"CPU": 1.0, "GPU": 1.0}, **TOLERATES)
    world.wait_for(1)
    assert world.settle() == {"web": 1}
    assert ["a bug" in error for error in world.failures().values()] == [True]
