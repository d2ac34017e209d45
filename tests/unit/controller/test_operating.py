"""What operators ask for: look often, try a change without making it, change virtual clusters; and who did it is told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.leased import LONELY, LeasedWorld, spec, wanted
from tests.unit.controller.worlds import MortalPort, World

from remora.errors import ConflictError, InvalidInputError, UnknownNameError
from remora.wire import calls
from remora.wire.calls import By
from remora.wire.tokens import TAKEN, class_token, share_token

ALICE = By("alice", "the page", "10.0.0.9", "maintenance")


def events(world: World, since: int = 0) -> list[dict[str, Any]]:
    return list(world.ask(calls.GetEvents(since)))


def row(world: World, cluster_id: str) -> dict[str, Any]:
    return next(each for each in world.ask(calls.GetClusters()) if each["cluster_id"] == cluster_id)


def resize(world: World, cluster_id: str, ask: str = "", **most: float | None) -> dict[str, Any]:
    return dict(world.ask(calls.ResizeCluster(cluster_id, most, ask, ALICE)))


def settle(world: World) -> None:
    for _ in range(4):
        world.later(0.2)


def stands(world: World, cluster_id: str) -> float:
    """What its work may take, without what is held."""
    return sum(world.tokens(cluster_id).values()) - sum(
        amount for _, amounts in world.holds() for token, amount in amounts.items() if token == share_token(cluster_id, "CPU")
    )


# Who did it


def test_the_journal_says_who_did_what_from_where_and_why() -> None:
    world = World()
    world.ask(calls.TaintNode("n1", (("k", "v"),), [], by=ALICE))
    told = events(world)[-1]
    assert (told["kind"], told["subject"], told["text"]) == ("taint", "n1", "k=v")
    assert told["by"] == {"who": "alice", "through": "the page", "from": "10.0.0.9", "reason": "maintenance"}


def test_entries_are_numbered_and_a_controller_that_takes_over_gives_no_number_again() -> None:
    world = World()
    world.later(2)
    last = events(world)[-1]["number"]
    world.ask(calls.LabelNode("n1", (("zone", "a"),), []))
    (new,) = events(world, last)
    assert new["number"] > last
    world.restart()  # the last entry may not have been saved
    later = [each["number"] for each in events(world, new["number"])]
    assert later
    assert min(later) > new["number"]


def test_a_number_that_is_still_to_come_is_that_of_another_journal() -> None:
    world = World()
    assert events(world, 10**9) == events(world)


# Taints


def test_a_taint_with_another_value_than_was_named_is_not_taken_away() -> None:
    world = World()
    world.ask(calls.TaintNode("n1", (("k", "v"),), []))
    with pytest.raises(ConflictError, match=r"the node n1 has the taint k=v, not k=other; nothing was changed"):
        world.ask(calls.TaintNode("n1", (), ["k"], only_if=(("k", "other"),)))
    assert world.controller.cluster.nodes.get("n1").taints == {"k": "v"}
    world.ask(calls.TaintNode("n1", (), ["k"], only_if=(("k", "v"), ("never there", "x"))))
    assert world.controller.cluster.nodes.get("n1").taints == {}


# Preview


def waiting_for(world: LeasedWorld, count: int, **options: Any) -> str:
    """So many tasks of one class wait in Ray."""
    wanted = spec(**options)
    world.ask(calls.EnsureClass(wanted.encode()))
    world.port.wait({class_token(wanted.class_id): TAKEN, "CPU": 1}, count)
    world.host.round()
    return wanted.class_id


def test_a_preview_says_what_would_start_and_what_stays_and_changes_nothing() -> None:
    world = LeasedWorld("n1", "n2")
    world.ask(calls.TaintNode("n2", (("gpu_node", "true"),), []))
    plain = waiting_for(world, 0)
    world.port.take("n2", {"CPU": 4})  # of a job that is not attached, so that n2 has nothing free
    world.port.take("n1", {class_token(plain): 2 * TAKEN, "CPU": 2})
    world.port.take("n1", {"CPU": 2})
    world.port.stop_waiting()
    waiting_for(world, 3, label_selector={"zone": "a"})
    world.port.give("n2", {"CPU": 4})
    world.host.round()
    before = (world.port.writes, world.controller.cluster.nodes.version)
    found = world.ask(calls.PreviewNode("n2", labels=(("zone", "a"),), drop_taints=["gpu_node"]))
    assert found["text"] == "3 waiting tasks would start"
    assert [(each["kind"], each["count"]) for each in found["starts"]] == [("task", 3)]
    found = world.ask(calls.PreviewNode("n1", taints=(("k", "v"),)))
    assert found["text"] == "nothing that waits would start; 2 running stay"
    assert (world.port.writes, world.controller.cluster.nodes.version) == before
    assert world.controller.cluster.nodes.get("n2").taints == {"gpu_node": "true"}


def test_a_preview_counts_only_what_finds_room() -> None:
    world = LeasedWorld("n1")
    waiting_for(world, 10, label_selector={"zone": "a"})
    assert world.ask(calls.PreviewNode("n1", labels=(("zone", "a"),)))["text"] == "4 waiting tasks would start"


def test_a_preview_says_what_would_have_no_node_left() -> None:
    world = LeasedWorld("n1")
    world.port.take("n1", {"CPU": 4})
    waiting_for(world, 2)
    found = world.ask(calls.PreviewNode("n1", taints=(("k", "v"),)))
    assert "2 waiting would have no node left that could run them" in found["text"]


def test_a_preview_knows_actors_with_affinity() -> None:
    world = LeasedWorld("n1", "n2")
    world.ask(calls.TaintNode("n2", (("k", "v"),), []))
    for _ in range(3):
        world.place(wanted(**LONELY))
    found = world.ask(calls.PreviewNode("n2", drop_taints=["k"]))
    assert found["text"] == "1 waiting actor would start"  # two cats would not be alone there


def test_a_preview_knows_what_waits_in_the_queue() -> None:
    world = World()
    world.port.take("n2", {"CPU": 4})
    queued = world.create(flexible_resource_min={"CPU": 6})
    world.ask(calls.TaintNode("n2", (("k", "v"),), []))
    world.port.give("n2", {"CPU": 4})
    world.host.round()
    found = world.ask(calls.PreviewNode("n2", drop_taints=["k"]))
    assert [(each["kind"], each["what"]) for each in found["starts"]] == [("virtual cluster", queued)]
    assert world.state(queued) == "QUEUED"


def test_a_preview_of_a_node_that_is_not_there_says_so() -> None:
    with pytest.raises(UnknownNameError, match="there is no node 'n9'"):
        World().ask(calls.PreviewNode("n9"))


# Looking


def test_the_overview_has_everything_and_events_since_a_number() -> None:
    world = LeasedWorld("n1", "n2")
    cluster_id = world.create(flexible_resource_min={"CPU": 1})
    waiting_for(world, 3, label_selector={"zone": "a"})
    found = world.ask(calls.GetOverview())
    assert [each["node_id"] for each in found["nodes"]] == ["n1", "n2"]
    assert [each["cluster_id"] for each in found["virtual_clusters"]][1:] == [cluster_id]
    assert [(each["count"], each["reason"][:14]) for each in found["waiting"]] == [(3, "0/2 nodes fit:")]
    assert found["number"] == found["events"][-1]["number"]
    assert world.ask(calls.GetOverview(found["number"]))["events"] == []


def test_rows_of_the_overview_follow_what_changes() -> None:
    world = LeasedWorld("n1", "n2")
    world.ask(calls.GetOverview())
    world.ask(calls.LabelNode("n1", (("zone", "a"),), []))
    world.port.take("n2", {"CPU": 3})
    world.host.round()
    one, two = world.ask(calls.GetOverview())["nodes"]
    assert (one["labels"]["zone"], two["used"]["CPU"]) == ("a", 3)


def test_leases_with_the_same_request_are_one_kind_in_the_overview() -> None:
    world = LeasedWorld("n1")
    world.ask(calls.TaintNode("n1", (("k", "v"),), []))
    for _ in range(5):
        slot = world.place(wanted(**LONELY))[0]
        world.port.wait({f"remora/lease/{slot}": 1, "CPU": 1})
    world.host.round()
    (kind,) = world.ask(calls.GetOverview())["waiting"]
    assert kind["count"] == 5
    assert "k=v" in kind["reason"]


def test_a_node_in_depth_tells_its_tokens_in_words() -> None:
    world = LeasedWorld("n1")
    cluster_id = world.create(flexible_resource_min={"CPU": 2})
    class_id = waiting_for(world, 0, label_selector={"zone": "a"})
    world.ask(calls.LabelNode("n1", (("zone", "a"),), []))
    world.port.take("n1", {class_token(class_id): TAKEN, "CPU": 1})
    world.host.round()
    found = world.ask(calls.GetNode("n1"))
    texts = {each["text"] for each in found["tokens"]}
    assert "work that asks for zone=a may run here, and 1 of it does" in texts
    assert f"{cluster_id} may use 2 CPU here, and uses 0" in texts
    assert [(each["kind"], each["what"], each["count"]) for each in found["running"]] == [("task", "zone=a", 1)]


# The maximum of a virtual cluster


def test_a_maximum_is_raised_and_what_waits_grows_into_it() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_max={"CPU": 1})
    world.want(cluster_id, 4)
    settle(world)
    assert stands(world, cluster_id) == 1
    answer = resize(world, cluster_id, CPU=3)
    assert answer["max"] == {"CPU": 3}
    world.want(cluster_id, 4)
    settle(world)
    assert stands(world, cluster_id) == 3
    told = [each for each in events(world) if each["text"] == "its maximum is now 3 CPU"]
    assert told[0]["by"]["who"] == "alice"


def test_a_lower_maximum_takes_what_is_idle_at_once() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_max={"CPU": 6})
    world.want(cluster_id, 6)
    settle(world)
    assert stands(world, cluster_id) == 6
    assert resize(world, cluster_id, CPU=2)["max"] == {"CPU": 2}
    settle(world)
    assert stands(world, cluster_id) == 2
    assert row(world, cluster_id)["lowering"] == {}


def test_a_lower_maximum_bites_on_a_busy_cluster_as_its_work_ends() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_max={"CPU": 6})
    world.want(cluster_id, 6)
    settle(world)
    held = [
        (node, world.run(cluster_id, node)) for node, amount in world.tokens(cluster_id).items() for _ in range(int(amount))
    ]
    settle(world)
    resize(world, cluster_id, CPU=2)
    settle(world)
    now = row(world, cluster_id)
    assert (now["used"], now["max"], now["lowering"]) == ({"CPU": 6}, {"CPU": 6}, {"CPU": 2})
    assert any(cluster_id in world.fence(node) for node in ("n1", "n2"))
    for count, (node, tokens) in enumerate(held[:4]):
        world.port.give(node, tokens)
        world.want(cluster_id, 6)
        settle(world)
        assert stands(world, cluster_id) == 5 - count
    assert row(world, cluster_id)["lowering"] == {}
    assert not any(world.fence(node) for node in ("n1", "n2"))
    assert any(each["text"] == "has come down to its maximum" for each in events(world))


def test_nothing_new_starts_in_a_cluster_that_comes_down() -> None:
    world = World(nodes=("n1",))
    cluster_id = world.create(flexible_resource_max={"CPU": 3})
    world.want(cluster_id, 3)
    settle(world)
    held = [world.run(cluster_id, "n1") for _ in range(3)]
    settle(world)
    resize(world, cluster_id, CPU=1)
    settle(world)
    world.port.give("n1", held[0])
    assert world.enter("w1", cluster_id, "n1") is None
    settle(world)
    assert stands(world, cluster_id) == 2


def test_others_grow_while_one_comes_down() -> None:
    world = World()
    big = world.create(flexible_resource_max={"CPU": 4})
    world.want(big, 4)
    settle(world)
    for node, amount in world.tokens(big).items():
        for _ in range(int(amount)):
            world.run(big, node)
    settle(world)
    resize(world, big, CPU=1)
    other = world.create(job="j2")
    world.want(other, 4)
    settle(world)
    assert stands(world, other) == 4


def test_a_cluster_that_comes_down_is_remembered_as_that() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_max={"CPU": 4})
    world.want(cluster_id, 4)
    settle(world)
    held = [
        (node, world.run(cluster_id, node)) for node, amount in world.tokens(cluster_id).items() for _ in range(int(amount))
    ]
    settle(world)
    resize(world, cluster_id, CPU=1)
    world.restart()
    settle(world)
    assert row(world, cluster_id)["lowering"] == {"CPU": 1}
    for node, tokens in held:
        world.port.give(node, tokens)
        settle(world)
    assert stands(world, cluster_id) <= 1
    assert row(world, cluster_id)["max"] == {"CPU": 1}


def test_children_give_back_what_they_borrowed_when_their_parent_comes_down() -> None:
    world = World()
    parent = world.create(flexible_resource_max={"CPU": 6})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 1})
    world.want(child, 6)
    settle(world)
    assert stands(world, child) == 6
    held = [(node, world.run(child, node)) for node, amount in world.tokens(child).items() for _ in range(int(amount))]
    settle(world)
    resize(world, parent, CPU=2)
    settle(world)
    for node, tokens in held:
        world.port.give(node, tokens)
        world.want(child, 6)
        settle(world)
    assert stands(world, child) == 2
    assert row(world, parent)["lowering"] == {}


def test_a_maximum_may_be_taken_away_and_others_stay() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_max={"CPU": 1, "GPU": 0})
    assert resize(world, cluster_id, CPU=None)["max"] == {"GPU": 0} or row(world, cluster_id)["max"] == {}
    assert row(world, cluster_id)["spec"] == {"flexible_resource_max": {"GPU": 0}}
    world.want(cluster_id, 5)
    settle(world)
    assert stands(world, cluster_id) == 5


def test_a_maximum_below_what_is_promised_is_refused_and_nothing_changes() -> None:
    world = World()
    parent = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 6})
    with pytest.raises(InvalidInputError, match="minimum is at most the maximum"):
        resize(world, parent, CPU=1)
    world.create(parent=parent, flexible_resource_min={"CPU": 3})
    with pytest.raises(ConflictError, match="below what is reserved in vc1, 3 CPU for vc2"):
        resize(world, parent, CPU=2)
    with pytest.raises(InvalidInputError, match="-1"):
        resize(world, parent, CPU=-1)
    with pytest.raises(UnknownNameError, match="no virtual cluster 'vc9'"):
        resize(world, "vc9", CPU=1)
    assert row(world, parent)["max"] == {"CPU": 6}


@pytest.mark.parametrize("after", range(8))
def test_a_change_that_is_asked_twice_is_made_once_whenever_the_controller_dies(after: int) -> None:
    world = World(port=MortalPort())
    cluster_id = world.create(flexible_resource_max={"CPU": 4})
    call = calls.ResizeCluster(cluster_id, {"CPU": 2}, "once")
    answer, _ = world.ask_and_kill(call, after)
    assert answer["max"] == {"CPU": 2}
    resize(world, cluster_id, CPU=3)
    world.ask(call)  # it arrives once more
    assert row(world, cluster_id)["max"] == {"CPU": 3}


# The queue


def queue(world: World) -> list[str]:
    world.ask(calls.GetStatus())
    rows = sorted((each["position"], each["cluster_id"]) for each in world.ask(calls.GetClusters()) if each["position"])
    return [cluster_id for _, cluster_id in rows]


def full(world: World) -> tuple[str, str, str]:
    """One that has everything, and two that wait for it."""
    return (
        world.create(flexible_resource_min={"CPU": 8}),
        world.create(job="j2", flexible_resource_min={"CPU": 4}),
        world.create(job="j3", flexible_resource_min={"CPU": 4}),
    )


def test_a_higher_priority_goes_ahead_in_the_queue_and_is_remembered() -> None:
    world = World()
    has, first, second = full(world)
    assert queue(world) == [first, second]
    answer = world.ask(calls.SetPriority(second, 10, "once", ALICE))
    assert (answer["priority"], answer["position"]) == (10, 1)
    assert queue(world) == [second, first]
    world.restart()
    assert queue(world) == [second, first]
    world.ask(calls.SetPriority(first, 20))
    world.ask(calls.SetPriority(second, 30, "once"))  # it arrives once more
    assert queue(world) == [first, second]
    world.close(has)
    settle(world)
    assert queue(world) == []


def test_the_priority_of_one_that_does_not_wait_is_not_changed() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_min={"CPU": 1})
    with pytest.raises(ConflictError, match="does not wait any more, it is READY"):
        world.ask(calls.SetPriority(cluster_id, 3))
    with pytest.raises(ConflictError, match="does not wait any more"):
        world.ask(calls.EndCluster(cluster_id, True))
    assert world.state(cluster_id) == "READY"


def test_one_that_is_withdrawn_leaves_the_queue_and_its_owner_hears_by_whom() -> None:
    world = World()
    _, first, second = full(world)
    assert world.ask(calls.EndCluster(first, True, "once", ALICE))["state"] == "CLOSED"
    assert queue(world) == [second]
    with pytest.raises(ConflictError, match=f"'{first}' was withdrawn from the queue by alice: maintenance"):
        world.look(first)
    assert world.ask(calls.EndCluster(first, True, "once"))["state"] == "CLOSED"  # it arrives once more


def test_one_that_is_closed_gives_back_what_it_does_not_use() -> None:
    world = World()
    has, first, _ = full(world)
    held = world.run(has, "n1")
    settle(world)
    world.ask(calls.EndCluster(has, False, "x", ALICE))
    for _ in range(8):
        world.later(1)
    assert world.state(first) == "READY"
    world.port.give("n1", held)
    with pytest.raises(ConflictError, match="is closed"):
        resize(world, has, CPU=3)
    assert any(each["by"]["reason"] == "maintenance" for each in events(world) if "by" in each)


def test_the_share_of_a_placement_group_is_no_cluster_of_its_own() -> None:
    world = World()
    cluster_id = world.create(flexible_resource_min={"CPU": 4})
    share = world.offer(cluster_id, {"CPU": 1}).share_id
    assert share
    for call in (calls.EndCluster(share, False), calls.ResizeCluster(share, {"CPU": 1}), calls.SetPriority(share, 1)):
        with pytest.raises(ConflictError, match="share of a placement group"):
            world.ask(call)
