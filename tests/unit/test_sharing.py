"""Virtual clusters in the controller, over the in-memory cluster."""

from dataclasses import replace
from typing import Any

import pytest

from remora import FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.controller.core import Controller, GroupOffer
from remora.controller.why import why_waiting
from remora.errors import InvalidVirtualClusterError
from remora.model.requests import NodeClass
from remora.model.resources import EMPTY, Resources
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.seam.memory import MemoryPort
from remora.seam.port import ENDED, GROUP, JOB, RUNNING, WORKER, Work
from remora.wire.classes import ClassSpec
from remora.wire.fences import fence_key, read_fence
from remora.wire.options import Defaults, rewrite_group
from remora.wire.tokens import class_token, share_of_token, share_token

ANY = NodeClass(LabelSelector(), Tolerations())
ONE = Resources.parse({"CPU": 1})


class World:
    """Two nodes of four CPUs, a clock that is moved by hand, and work that takes and gives tokens as Ray's would."""

    def __init__(self, cpus: int = 4) -> None:
        self.port = MemoryPort()
        self.time = 1000.0
        for name in ("n1", "n2"):
            self.port.join(name, {"CPU": cpus})
        self.controller = Controller(self.port, lambda: self.time)
        self.controller.round()

    def create(self, parent: str | None = None, job: str = "j1", priority: int = 0, **spec: Any) -> str:
        self.job(job)
        made = self.controller.sharing.create(VirtualCluster(**spec), parent, job, priority, Tolerations(), 5.0)
        return str(made["cluster_id"])

    def job(self, job: str, state: str = RUNNING) -> None:
        self.port.submit(Work(JOB, job, "", job, state, "", ()))

    def tokens(self, cluster_id: str, name: str = "CPU") -> dict[str, float]:
        token = share_token(cluster_id, name)
        return {view.node_id: view.total[token] for view in self.port.observe().nodes if view.total.get(token)}

    def free(self, cluster_id: str) -> float:
        token = share_token(cluster_id, "CPU")
        return sum(view.available.get(token, 0.0) for view in self.port.observe().nodes)

    def fence(self, node_id: str) -> set[str]:
        """Of which clusters nothing starts on a node without leave."""
        return set(read_fence(self.port.get(fence_key(node_id))).full)

    def state(self, cluster_id: str) -> str:
        return str(self.controller.sharing.look(cluster_id)["state"])

    def run(self, cluster_id: str, node_id: str, cpus: float = 1) -> dict[str, float]:
        held = {share_token(cluster_id, "CPU"): cpus, "CPU": cpus}
        self.port.take(node_id, held)
        return held

    def want(self, cluster_id: str, count: int = 1, demand: Resources = ONE) -> None:
        self.controller.want([(ClassSpec((ANY,), cluster=cluster_id), demand, count)])

    def offer(self, cluster_id: str, *bundles: dict[str, float], strategy: str = "PACK", ask: str = "ask") -> GroupOffer:
        """What is offered to a placement group."""
        request = rewrite_group(list(bundles or ({"CPU": 1},)), strategy, {}, Defaults())
        return self.controller.offer_group(replace(request, cluster=cluster_id), "j1", ask)

    def reserve(self, offer: GroupOffer, group_id: str, cpus: float = 1) -> list[tuple[str, dict[str, float]]]:
        """As GCS would, for a group whose bundles are all of one size; what it holds."""
        held = [
            (node, {token: cpus, "CPU": cpus}) for token, (node, *_) in offer.nodes.items() if share_of_token(token) is not None
        ]
        for node, amounts in held:
            self.port.take(node, amounts)
        self.port.submit(Work(GROUP, group_id, "", "j1", RUNNING, "", tuple(amounts for _, amounts in held)))
        return held

    def remove_group(self, group_id: str, held: list[tuple[str, dict[str, float]]]) -> None:
        for node, amounts in held:
            self.port.give(node, amounts)
        self.port.submit(Work(GROUP, group_id, "", "j1", ENDED, "", ()))

    def later(self, seconds: float) -> None:
        self.time += seconds
        self.controller.round()

    def sums(self) -> dict[str, float]:
        """All shares of each node together."""
        return {
            view.node_id: sum(
                amount - self.controller.steering.held(view.node_id, name)
                for name, amount in view.total.items()
                if name.startswith("remora/vc/")
            )
            for view in self.port.observe().nodes
        }


@pytest.fixture
def world() -> World:
    return World()


def test_the_minimum_is_reserved_at_once(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 6}, flexible_resource_max={"CPU": 7})
    assert world.state(vc) == "READY"
    assert sum(world.tokens(vc).values()) == 6


def test_a_second_minimum_waits_in_the_queue_and_follows(world: World) -> None:
    first = world.create(flexible_resource_min={"CPU": 6})
    second = world.create(job="j2", flexible_resource_min={"CPU": 6})
    assert world.state(second) == "QUEUED"
    assert world.controller.sharing.look(second)["position"] == 1
    assert "CPU" in world.controller.sharing.look(second)["reason"]
    world.job("j1", ENDED)
    world.controller.inbox.append(Work(JOB, "j1", "", "j1", ENDED, "", ()))
    world.later(0.1)
    world.later(0.1)
    assert first not in world.controller.sharing.clusters.records
    assert world.state(second) == "READY"
    assert sum(world.tokens(second).values()) == 6
    assert not world.tokens(first)


def test_what_can_never_fit_is_refused_and_leaves_nothing(world: World) -> None:
    with pytest.raises(InvalidVirtualClusterError, match="can never fit"):
        world.create(flexible_resource_min={"CPU": 9})
    assert not world.controller.sharing.clusters.records
    assert not world.port.keys("vc/")


def test_it_grows_on_demand_up_to_its_maximum_and_not_beyond(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 5})
    assert not world.tokens(vc)
    world.want(vc, 200)
    assert sum(world.tokens(vc).values()) == 5
    world.want(vc, 200)
    assert sum(world.tokens(vc).values()) == 5


def test_a_class_is_not_taken_from_where_its_cluster_is_about_to_grow(world: World) -> None:
    """That is costly, and growing waits for it."""
    vc = world.create(flexible_resource_max={"CPU": 8})
    world.want(vc, 1)
    (has,) = world.tokens(vc)
    token = class_token(ClassSpec((ANY,), cluster=vc).class_id)
    for wait, want in ((0.1, {"n1", "n2"}), (0.5, {"n1", "n2"}), (1.0, {has})):
        world.later(wait)
        assert {view.node_id for view in world.port.observe().nodes if view.available.get(token)} == want
    assert not world.controller.steering.fences.get(has)
    world.want(vc, 8)
    world.later(0.1)
    assert {view.node_id for view in world.port.observe().nodes if view.available.get(token)} == {"n1", "n2"}


def test_memory_that_no_spec_names_comes_along_with_the_cpus() -> None:
    world = World()
    for node in ("n3", "n4"):
        world.port.join(node, {"CPU": 8, "memory": 8000})
    world.controller.round()
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 6}), FixedSizeNode({"CPU": 5})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes])
    assert not world.tokens(vc, "memory")
    world.want(vc, 1, Resources.parse({"CPU": 1, "memory": 8}))
    assert sorted(world.tokens(vc, "memory").values()) == [5000, 6000]
    named = world.create(job="j2", flexible_resource_max={"CPU": 2, "memory": 500})
    world.want(named, 1, Resources.parse({"CPU": 1, "memory": 8}))
    assert sum(world.tokens(named, "memory").values()) == 8


def test_a_request_is_for_a_size_and_what_runs_counts(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 6})
    spec = ClassSpec((ANY,), cluster=vc)
    world.controller.sharing.request(vc, [(spec, ONE, 3)])
    assert sum(world.tokens(vc).values()) == 3
    for node, free in list(world.tokens(vc).items()):
        world.run(vc, node, free)
    world.later(0.1)
    world.controller.sharing.request(vc, [(spec, ONE, 4)])
    assert sum(world.tokens(vc).values()) == 4
    world.controller.sharing.request(vc, [(spec, ONE, 40)])
    assert sum(world.tokens(vc).values()) == 6


def test_a_request_that_cannot_be_met_now_is_met_as_soon_as_it_can(world: World) -> None:
    held = [(node, {"CPU": 4}) for node in ("n1", "n2")]
    for node, amounts in held:
        world.port.take(node, amounts)
    world.later(0.1)
    vc = world.create(flexible_resource_max={"CPU": 6})
    world.controller.sharing.request(vc, [(ClassSpec((ANY,), cluster=vc), ONE, 3)])
    world.later(2)
    assert not world.tokens(vc)
    world.port.give(*held[0])
    world.later(1)
    assert sum(world.tokens(vc).values()) == 3
    world.later(40)
    world.later(6)
    assert world.free(vc) == 0


def test_what_is_idle_goes_back_after_a_while_but_not_the_minimum(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 5})
    world.want(vc, 5)
    world.later(4)
    assert world.free(vc) == 5
    world.later(2)
    assert world.free(vc) == 1


def test_what_was_never_offered_to_work_is_taken_back_and_not_held(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 3})
    assert (world.free(parent), world.free(child)) == (1, 3)
    assert not world.port.holds
    world.want(parent)
    world.controller.round()
    world.create(parent=parent, flexible_resource_min={"CPU": 1})
    assert world.port.holds  # from now on something may be queued for it


def test_what_a_controller_before_us_gave_may_have_been_offered(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 4})
    world.controller = Controller(world.port, lambda: world.time)
    world.controller.round()
    world.create(parent=parent, flexible_resource_min={"CPU": 3})
    assert world.port.holds


def test_a_share_that_shrinks_leaves_its_total_so_that_queued_work_stays_feasible(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    world.want(vc, 1, Resources.parse({"CPU": 4}))
    world.later(6)
    world.later(6)
    assert max(world.tokens(vc).values()) == 4
    assert world.free(vc) == 0
    world.want(vc, 1, Resources.parse({"CPU": 4}))
    assert world.free(vc) == 4
    world.later(6)
    assert world.free(vc) == 0


def test_siblings_never_have_more_than_the_node(world: World) -> None:
    first, second = world.create(), world.create(job="j2")
    world.want(first, 100)
    world.want(second, 100)
    assert world.sums() == {"n1": 4, "n2": 4}
    assert not world.tokens(second)


def test_a_nested_one_is_carved_from_its_parent(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 4}, flexible_resource_max={"CPU": 4})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 3})
    world.controller.round()
    assert world.free(parent) == 1
    assert world.free(child) == 3
    world.want(child, 10)
    assert (world.free(parent), world.free(child)) == (0, 4)
    grandchild = world.create(parent=child, flexible_resource_min={"CPU": 4})
    assert world.state(grandchild) == "READY"
    world.controller.round()  # what was just given can be held when it is reported
    assert (world.free(child), world.free(grandchild)) == (0, 4)
    with pytest.raises(InvalidVirtualClusterError, match="can never fit"):
        world.create(parent=parent, flexible_resource_min={"CPU": 5})


def test_a_worker_that_waits_gives_its_share_back_and_takes_it_again(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    world.later(0.1)
    assert world.free(vc) == 0
    world.controller.sharing.wait("w1", vc, node, ONE)
    assert world.free(vc) == 1
    world.controller.sharing.come_back("w1", vc, node, ONE)
    assert world.controller.sharing.answer("w1") == "go"
    assert world.free(vc) == 0
    assert not world.controller.steering.full.get(node)


def test_one_that_comes_back_while_others_use_its_share_goes_on_once_everybody_knows(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    sharing = world.controller.sharing
    sharing.wait("w1", vc, node, ONE)
    inner = world.run(vc, node)
    sharing.come_back("w1", vc, node, ONE)
    assert world.fence(node) == {vc}
    world.later(0.1)
    world.later(0.1)
    assert sharing.answer("w1") is None
    world.later(0.2)
    assert sharing.answer("w1") == "go"
    assert world.fence(node) == {vc}
    world.port.give(node, inner)
    world.later(0.1)
    assert world.tokens(vc) == {node: 1}
    assert not world.fence(node)


def test_one_that_comes_back_goes_on_as_soon_as_there_is_room(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    sharing = world.controller.sharing
    sharing.wait("w1", vc, node, ONE)
    inner = world.run(vc, node)
    sharing.come_back("w1", vc, node, ONE)
    world.port.give(node, inner)
    world.later(0.1)
    assert sharing.answer("w1") == "go"
    assert not world.fence(node)


def test_what_comes_back_to_a_child_holds_up_its_siblings_where_their_parent_is_used_up(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 2})
    one, other = (world.create(parent, flexible_resource_min={"CPU": 1}) for _ in range(2))
    (node,) = world.tokens(one)
    world.run(one, node)
    world.controller.sharing.wait("w1", one, node, ONE)
    world.run(one, node)
    world.controller.sharing.come_back("w1", one, node, ONE)
    assert all(other in world.fence(each) for each in world.tokens(other))


def test_what_a_worker_said_before_it_ended_is_not_heard_after(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    (node,) = world.tokens(vc)
    sharing = world.controller.sharing
    sharing.worker_ended("w1")
    sharing.wait("w1", vc, node, ONE)
    assert sum(world.tokens(vc).values()) == 1
    for _ in range(62):
        world.later(1)
    sharing.wait("w1", vc, node, ONE)  # nobody has this id any more; it is not remembered for ever
    assert sum(world.tokens(vc).values()) == 2


def test_what_is_taken_back_from_one_that_was_killed_while_it_waited_is_not_given_twice(world: World) -> None:
    """Its death is told by its raylet, and by the token that is free; the second may be heard of first."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    (node,) = world.tokens(vc)
    held = world.run(vc, node)
    sharing = world.controller.sharing
    sharing.wait("w1", vc, node, ONE)
    world.run(vc, node)
    sharing.wait("w2", vc, node, ONE)
    world.run(vc, node)
    world.port.submit(Work(WORKER, "w1", "", "", ENDED, "", ()))
    world.port.give(node, held)
    sharing.come_back("w2", vc, node, ONE)
    world.later(0.1)
    assert sharing.answer("w2") is None  # the third runs


def test_who_stands_in_line_for_long_is_not_let_in_for_that(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    come_back(world, vc, node)
    sharing = world.controller.sharing
    for _ in range(30):
        sharing.enter("w2", vc, node, ONE)
        world.later(1)
        assert sharing.answer("w2") is None
    world.later(30)  # it was not heard of any more
    assert sharing.answer("w2") is None


def test_a_closed_one_lets_in_who_stands_in_line(world: World) -> None:
    """What is made for them is not taken back as idle."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    sharing = world.controller.sharing
    sharing.close(vc, unused=False)
    sharing.enter("w1", vc, node, ONE)
    for _ in range(3):
        world.later(1)
    assert sharing.answer("w1") == "go"


def test_who_stands_where_its_cluster_has_no_share_any_more_is_sent_on(world: World) -> None:
    greedy = world.create()
    world.want(greedy, 100)
    held = [(node, world.run(greedy, node)) for node in ("n1", "n2") for _ in range(4)]
    world.later(0.1)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 4})
    world.later(0.1)
    sharing = world.controller.sharing
    assert greedy in world.fence("n1")
    for number, (where, tokens) in enumerate(held):
        if where == "n1":  # one ends, and the next in the raylet's queue takes its token
            sharing.enter(f"w{number}", greedy, "n1", ONE)
            world.port.give("n1", {"CPU": tokens["CPU"]})
    bound = next(iter(sharing.returned.line())).worker_id
    sharing.enter(bound, greedy, "n1", ONE, may_go=False)
    for _ in range(4):
        world.later(1)
    assert world.state(waiting) == "READY"
    told = {each.worker_id: sharing.answer(each.worker_id) for each in sharing.returned.line()}
    assert told.pop(bound) is None
    assert set(told.values()) == {"elsewhere"}
    assert world.sums()["n1"] == 4 + 4  # what they hold is theirs until they are done, and nobody else's


def test_while_a_cluster_is_full_starters_stand_in_line(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    outer = come_back(world, vc, node)
    returned = world.controller.sharing.returned
    world.controller.sharing.enter("w2", vc, node, ONE)
    world.later(0.1)
    assert returned.waits("w2")
    world.port.give(node, outer)
    world.later(0.1)
    assert not returned.waits("w2")
    assert world.tokens(vc) == {node: 1}


def come_back(world: World, vc: str, node: str) -> dict[str, float]:
    """One of the cluster's workers waits, another uses its share, and the first comes back: one more than the share runs."""
    world.run(vc, node)
    world.controller.sharing.wait("w1", vc, node, ONE)
    inner = world.run(vc, node)
    world.controller.sharing.come_back("w1", vc, node, ONE)
    world.later(0.5)
    world.later(0.1)
    assert world.controller.sharing.answer("w1") == "go"
    return inner


def test_nothing_starts_in_a_placement_group_and_none_is_created_until_what_came_back_is_repaid(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    inner = come_back(world, vc, node)
    sharing = world.controller.sharing
    sharing.enter("in a group", vc, node, EMPTY, may_go=False)
    world.later(0.1)
    assert sharing.answer("in a group") is None
    assert "came back" in world.offer(vc).why.reason
    world.port.give(node, inner)
    world.later(0.1)
    world.later(0.1)
    assert sharing.answer("in a group") == "go"
    assert "came back" not in world.offer(vc).why.reason


def test_what_is_used_too_much_on_one_node_is_not_started_on_another(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes])
    inner = come_back(world, vc, "n1")
    assert [world.fence(node) for node in ("n1", "n2")] == [{vc}, {vc}]
    world.run(vc, "n2")
    world.controller.sharing.enter("w2", vc, "n2", ONE)
    world.later(0.1)
    assert world.controller.sharing.returned.waits("w2")
    world.port.give("n1", inner)
    world.later(0.1)
    assert not world.controller.sharing.returned.waits("w2")
    assert [world.fence(node) for node in ("n1", "n2")] == [set(), set()]


def test_below_its_maximum_a_cluster_grows_for_what_it_uses_too_much_elsewhere(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes], flexible_resource_max={"CPU": 1})
    come_back(world, vc, "n1")
    world.controller.sharing.enter("w2", vc, "n2", ONE)
    world.run(vc, "n2")
    world.later(0.1)
    world.later(0.1)
    assert not world.controller.sharing.returned.waits("w2")


def test_the_share_of_a_worker_that_dies_while_it_waits_is_lent_no_longer(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    held = world.run(vc, node)
    world.controller.sharing.wait("w1", vc, node, ONE)
    assert world.free(vc) == 1
    world.port.give(node, held)
    world.port.watch(world.controller.inbox.append)
    world.port.submit(Work(WORKER, "w1", "", "", ENDED, "", ()))
    world.controller.hear()
    assert world.tokens(vc) == {node: 1}


def test_work_that_is_gone_without_a_word_is_forgotten(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.controller.sharing.wait("w1", vc, node, ONE)
    assert world.free(vc) == 2
    world.later(7)
    assert world.free(vc) == 1


def test_fixed_nodes_spread_strictly(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    vc = world.create(fixed_size_nodes=[nodes])
    assert world.tokens(vc) == {"n1": 1, "n2": 1}
    world.want(vc, 10)
    assert world.tokens(vc) == {"n1": 1, "n2": 1}


def test_a_closed_one_keeps_what_it_uses_and_gives_the_rest_back(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 4})
    node = next(iter(world.tokens(vc)))
    held = world.run(vc, node)
    world.later(0.1)
    world.controller.inbox.append(Work(JOB, "j1", "", "j1", ENDED, "", ()))
    world.later(0.1)
    world.later(0.1)
    assert world.controller.sharing.clusters.records[vc].state == "CLOSED"
    world.port.give(node, held)
    world.later(0.1)
    world.later(0.1)
    assert vc not in world.controller.sharing.clusters.records
    assert not world.tokens(vc)
    assert not world.port.holds


def test_borrowed_shares_are_called_back_for_a_minimum(world: World) -> None:
    greedy = world.create()
    world.want(greedy, 100)
    held = [(node, world.run(greedy, node)) for node in ("n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2")]
    world.later(0.1)
    waiting = world.create(job="j2", flexible_resource_min={"CPU": 2})
    assert world.state(waiting) == "QUEUED"
    world.later(0.1)
    full = [node for node, names in world.controller.steering.full.items() if greedy in names]
    assert full
    for node, tokens in held[:2]:
        world.port.give(node, tokens)
    world.later(0.1)
    world.later(0.1)
    assert world.state(waiting) == "READY"
    assert sum(world.tokens(waiting).values()) == 2
    assert world.sums() == {"n1": 4, "n2": 4}


def test_work_outside_is_asked_to_wait_for_a_minimum_too(world: World) -> None:
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 4})
    world.later(0.1)
    waiting = world.create(flexible_resource_min={"CPU": 3})
    world.later(0.1)
    assert world.state(waiting) == "QUEUED"
    assert any("root" in names for names in world.controller.steering.full.values())


def test_work_outside_that_stood_in_line_starts_when_no_cluster_has_anything_there_any_more(world: World) -> None:
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 4})
    world.later(0.1)
    waiting = world.create(flexible_resource_min={"CPU": 3})
    world.later(0.1)
    (node, *_) = (each for each in ("n1", "n2") if "root" in world.fence(each))
    world.port.give(node, {"CPU": 1})
    sharing = world.controller.sharing
    sharing.enter("w1", "root", node, ONE)
    world.later(0.1)
    assert sharing.answer("w1") is None
    sharing.close(waiting, unused=True)
    world.later(0.1)
    assert sharing.answer("w1") == "go"


def test_leave_is_not_lost_when_it_is_asked_for_again(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    node = next(iter(world.tokens(vc)))
    world.run(vc, node)
    sharing = world.controller.sharing
    sharing.wait("w1", vc, node, ONE)
    sharing.come_back("w1", vc, node, ONE)
    sharing.come_back("w1", vc, node, ONE, again=True)
    assert sharing.answer("w1") == "go"
    assert not sharing.returned.waits("w1")  # it uses its share


def test_a_new_controller_finds_everything_again(world: World) -> None:
    nodes = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    fixed = world.create(fixed_size_nodes=[nodes])
    parent = world.create(flexible_resource_min={"CPU": 3}, flexible_resource_max={"CPU": 4})
    child = world.create(parent=parent, flexible_resource_min={"CPU": 2})
    queued = world.create(flexible_resource_min={"CPU": 8})
    world.controller.round()
    before = {vc: world.tokens(vc) for vc in (fixed, parent, child)}
    world.controller = Controller(world.port, lambda: world.time)
    writes = world.port.writes
    world.controller.round()
    assert {vc: world.tokens(vc) for vc in (fixed, parent, child)} == before
    assert world.port.writes == writes
    assert world.state(queued) == "QUEUED"
    world.want(child, 9)
    world.later(0.1)
    assert sum(world.tokens(child).values()) == 4
    assert sum(world.sums().values()) == 6
    assert max(world.sums().values()) <= 4


def test_a_new_controller_believes_nodes_rather_than_their_reports(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 2})
    world.want(vc, 1)
    (node,) = world.tokens(vc)
    (other,) = {"n1", "n2"} - {node}
    old = world.port.observe()
    world.port.resize(other, {share_token(vc, "CPU"): 1.0})  # the last that it did
    world.port.observe = lambda: old  # type: ignore[method-assign]
    world.controller = Controller(world.port, lambda: world.time)
    world.controller.round()
    world.want(vc, 5)
    del world.port.observe
    assert sum(world.sums().values()) == 2


def test_a_hold_that_was_only_about_to_be_made_holds_nothing(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 4})
    world.want(vc, 4)
    world.later(6)
    assert world.port.holds
    for name in list(world.port.holds):
        world.port.let_go(name)  # its controller died before it had it
    world.controller = Controller(world.port, lambda: world.time)
    assert all(world.controller.steering.held(node, share_token(vc, "CPU")) == 0 for node in world.tokens(vc))
    assert not world.port.keys("hold/")


def test_what_is_held_is_not_let_go_while_work_of_a_closed_one_waits(world: World) -> None:
    """It would start at once, whatever runs elsewhere."""
    vc = world.create(flexible_resource_max={"CPU": 2})
    world.want(vc, 2)
    world.later(6)
    assert world.port.holds
    world.controller.sharing.close(vc, unused=False)
    for _ in range(5):
        world.later(1)
        world.controller.sharing.clusters.records[vc].busy_at = world.time  # something waits
        world.later(0.6)
        assert world.port.holds
    world.later(4)
    world.later(4)
    assert not world.port.holds
    assert not world.tokens(vc)


def test_a_lost_node_is_made_good_elsewhere(world: World) -> None:
    vc = world.create(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 2})])])
    (node,) = world.tokens(vc)
    world.port.leave(node)
    world.later(0.1)
    (other,) = world.tokens(vc)
    assert other != node


def test_a_closed_one_still_serves_work_that_comes_late(world: World) -> None:
    vc = world.create(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 2})])])
    world.controller.sharing.close(vc, unused=False)
    world.later(1)
    world.later(1)
    assert not world.tokens(vc)
    world.want(vc, 2)
    assert sum(world.tokens(vc).values()) == 2


def test_a_closed_one_waits_for_its_children(world: World) -> None:
    outer = world.create(flexible_resource_min={"CPU": 3}, flexible_resource_max={"CPU": 3})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 2})
    (node, *_) = world.tokens(inner)
    held = world.run(inner, node)
    world.later(0.1)
    world.controller.sharing.close(outer, unused=False)
    world.later(1)
    world.later(1)
    assert sum(world.tokens(inner).values()) >= 1
    world.port.give(node, held)
    for _ in range(4):
        world.later(1)
    assert world.sums() == {"n1": 0, "n2": 0}
    assert world.state(world.create(flexible_resource_min={"CPU": 8})) == "READY"


def test_what_waits_in_a_full_cluster_is_told_why(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 1})
    spec = ClassSpec((ANY,), cluster=vc)
    world.controller.ensure(spec)
    world.want(vc)
    (node,) = world.tokens(vc)
    world.run(vc, node)
    world.later(0.1)
    why = why_waiting(world.controller, ({"CPU": 1.0, class_token(spec.class_id): 0.0001, share_token(vc, "CPU"): 1.0},))
    assert vc in why["reason"]
    assert why["busy"]
