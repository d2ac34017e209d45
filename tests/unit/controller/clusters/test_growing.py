"""Virtual clusters grow for what waits, up to their maximum, and give back what is idle, down to their minimum."""

from __future__ import annotations

from tests.unit.controller.worlds import ANY, World

from remora import FixedSizeNode, FixedSizeNodes
from remora.model.resources import Resources
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.tokens import ACTORS, class_token, share_token


def test_it_grows_on_demand_up_to_its_maximum_and_not_beyond(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 5})
    assert not world.tokens(vc)
    world.want(vc, 200)
    assert sum(world.tokens(vc).values()) == 5
    world.want(vc, 200)
    assert sum(world.tokens(vc).values()) == 5


def test_what_was_on_its_way_a_moment_ago_counts_with_what_is_now(world: World) -> None:
    """A process tells of its first task at once and of the next ones together, a little later. What looks idle by then is what
    the first one takes."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 5})
    world.want(vc, 1)
    assert sum(world.tokens(vc).values()) == 1
    world.time += 0.03
    world.want(vc, 2)
    assert sum(world.tokens(vc).values()) == 3
    world.time += 0.06
    world.want(vc, 1)
    assert sum(world.tokens(vc).values()) == 4


def test_one_after_the_other_finds_room_where_the_first_one_was(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 5})
    for _ in range(10):
        world.want(vc, 1)
        world.time += 0.2
    assert sum(world.tokens(vc).values()) == 1


def test_what_is_told_together_finds_room_beside_each_other(world: World) -> None:
    """Of two classes, and in two clusters."""
    vc, other = (world.create(job=job, flexible_resource_max={"CPU": 3}) for job in ("j1", "j2"))
    one = Resources.parse({"CPU": 1})
    actors = calls.Hint(ClassSpec((ANY,), cluster=vc, takers=ACTORS).encode(), {"CPU": 1}, 1)
    world.ask(calls.WantShares([world.hint(vc, 1, one), world.hint(other, 1, one), actors]))
    assert [sum(world.tokens(each).values()) for each in (vc, other)] == [2, 1]


def test_what_is_on_its_way_now_comes_before_what_was_so_a_moment_ago(world: World) -> None:
    world.port.join("n3", {"CPU": 2, "GPU": 1})
    world.later(0)
    vc = world.create(flexible_resource_max={"CPU": 2, "GPU": 1})
    world.want(vc, 100)
    world.want(vc, 1, Resources.parse({"CPU": 1, "GPU": 1}))
    assert world.tokens(vc, "GPU") == {"n3": 1}


def test_a_class_is_not_taken_from_where_its_cluster_is_about_to_grow(world: World) -> None:
    """That is costly, and growing waits for it."""
    vc = world.create(flexible_resource_max={"CPU": 8})
    world.want(vc, 1)
    (has,) = world.tokens(vc)
    class_id = ClassSpec((ANY,), cluster=vc).class_id
    for wait, want in ((0.1, {"n1", "n2"}), (0.5, {"n1", "n2"}), (1.0, {has})):
        world.later(wait)
        assert world.offered_on(class_token(class_id)) == want
    assert not world.fenced_classes(has)
    world.want(vc, 8)
    world.later(0.1)
    assert world.offered_on(class_token(class_id)) == {"n1", "n2"}


def test_memory_that_no_spec_names_comes_along_with_the_cpus(world: World) -> None:
    for node in ("n3", "n4"):
        world.port.join(node, {"CPU": 8, "memory": 8000})
    world.later(0)
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
    world.request(vc, 3)
    assert sum(world.tokens(vc).values()) == 3
    for node, free in list(world.tokens(vc).items()):
        world.run(vc, node, free)
    world.later(0.1)
    world.request(vc, 4)
    assert sum(world.tokens(vc).values()) == 4
    world.request(vc, 40)
    assert sum(world.tokens(vc).values()) == 6


def test_a_request_that_cannot_be_met_now_is_met_as_soon_as_it_can(world: World) -> None:
    held = [(node, {"CPU": 4}) for node in ("n1", "n2")]
    for node, amounts in held:
        world.port.take(node, amounts)
    world.later(0.1)
    vc = world.create(flexible_resource_max={"CPU": 6})
    world.request(vc, 3)
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


def test_a_closed_one_still_serves_work_that_comes_late(world: World) -> None:
    vc = world.create(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"CPU": 2})])])
    world.close(vc)
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
    world.close(outer)
    world.later(1)
    world.later(1)
    assert sum(world.tokens(inner).values()) >= 1
    world.port.give(node, held)
    for _ in range(4):
        world.later(1)
    assert world.sums() == {"n1": 0, "n2": 0}
    assert world.state(world.create(flexible_resource_min={"CPU": 8})) == "READY"


def test_a_closed_one_keeps_what_it_uses_and_gives_the_rest_back(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 4})
    node = next(iter(world.tokens(vc)))
    held = world.run(vc, node)
    world.later(0.1)
    world.job("j1", "ended")
    world.later(0.1)
    world.later(0.1)
    assert world.state(vc) == "CLOSED"
    assert sum(world.tokens(vc).values()) - sum(world.held(each, name) for each, name in _held(world)) == 1
    world.port.give(node, held)
    world.later(0.1)
    world.later(0.1)
    assert world.state(vc) == "GONE"
    assert not world.tokens(vc)
    assert not world.holds()


def _held(world: World) -> list[tuple[str, str]]:
    return [(node, token) for node, amounts in world.holds() for token in amounts]


def test_it_grows_elsewhere_where_others_have_filled_the_node_of_its_share(world: World) -> None:
    """Work in no virtual cluster is not ended, so what is idle of a share there is not to be had."""
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3})
    (has,) = world.tokens(vc)
    other = next(each for each in ("n1", "n2") if each != has)
    world.port.take(has, {"CPU": 4})
    world.later(0)
    world.want(vc)
    assert world.tokens(vc) == {has: 1, other: 1}
    world.port.give(has, {"CPU": 4})
    world.later(10)
    assert sum(world.tokens(vc).values()) - sum(world.held(each, share_token(vc, "CPU")) for each in ("n1", "n2")) == 1


def test_what_it_has_on_a_node_that_others_have_filled_is_waited_for_at_last(world: World) -> None:
    vc = world.create(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 1})
    (has,) = world.tokens(vc)
    for node in ("n1", "n2"):
        world.port.take(node, {"CPU": 4})
    world.later(0)
    world.want(vc)
    assert world.tokens(vc) == {has: 1}


def test_what_one_has_just_grown_for_is_not_given_back_with_what_one_inside_gives_back(world: World) -> None:
    outer = world.create(flexible_resource_max={"CPU": 4})
    inner = world.create(parent=outer, flexible_resource_min={"CPU": 1})
    world.want(inner)
    world.close(inner)
    spec = ClassSpec((ANY,), cluster=outer)
    world.want(outer)
    world.port.wait({"CPU": 1.0, share_token(outer, "CPU"): 1.0, class_token(spec.class_id): 0.0001})
    for _ in range(5):
        world.later(2)
        assert world.free(outer) >= 1
