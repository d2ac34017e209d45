"""What the controller wants done, in the order that its decisions demand: read from its plans, each performed and answered
before the next is made."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.controller.worlds import ANY, ONE, World

from remora import FixedSizeNode, FixedSizeNodes
from remora.controller.effects import Effect, Hold, Put, Resize
from remora.model.resources import Resources
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.tokens import class_token, share_token

PLAIN = ClassSpec((ANY,))


def plans(world: World) -> list[list[Effect]]:
    """Return every plan until there is nothing left to do; all effects of one are answered before the next."""
    found: list[list[Effect]] = []
    while effects := world.controller.plan():
        found.append(effects)
        for effect in effects:
            world.controller.done(world.host.perform(effect))
        assert len(found) < 50
    return found


def raised(plan: list[Effect], token: str, least: float = 1) -> set[str]:
    """Return the nodes on which a plan sets a token to at least so much."""
    return {each.node_id for each in plan if isinstance(each, Resize) and each.amounts.get(token, -1) >= least}


def puts(plan: list[Effect], prefix: str) -> list[str]:
    return [each.key for each in plan if isinstance(each, Put) and each.key.startswith(prefix)]


def test_a_cluster_that_was_offered_to_work_is_saved_before_its_token_is_raised(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 3})
    world.want(vc, 1)
    world.host.begin(calls.WantShares([world.hint(vc, 3, ONE)]))
    saving, raising, *_ = plans(world)
    assert puts(saving, f"vc/{vc}")
    assert not raised(saving, share_token(vc, "CPU"))
    assert raised(raising, share_token(vc, "CPU"))


def test_while_it_is_being_saved_its_token_is_not_raised_however_often_it_is_asked(world: World) -> None:
    vc = world.create(flexible_resource_max={"CPU": 3})
    world.want(vc, 1)
    world.host.begin(calls.WantShares([world.hint(vc, 3, ONE)]))
    (save,) = (each for each in world.controller.plan() if isinstance(each, Put) and each.key == f"vc/{vc}")
    for _ in range(3):
        world.controller.round()
        assert not raised(world.controller.plan(), share_token(vc, "CPU"))
    world.controller.done(world.host.perform(save))
    assert raised(world.controller.plan(), share_token(vc, "CPU"))


def test_of_a_cluster_that_nobody_can_use_yet_nobody_has_to_know_first(world: World) -> None:
    """It is made with one round trip: saved while its tokens are written."""
    world.job("j1")
    pending = world.host.begin(world.creation(flexible_resource_min={"CPU": 6}))
    both, *rest = plans(world)
    assert puts(both, "vc/")
    assert raised(both, share_token("vc1", "CPU")) == {"n1", "n2"}
    assert not any(isinstance(each, Resize) for plan in rest for each in plan)
    reply = pending.poll()
    assert reply is not None
    assert reply.result()["state"] == "READY"


def test_a_class_is_fenced_and_that_is_confirmed_before_it_is_held_and_held_before_it_is_lowered(world: World) -> None:
    world.ask(calls.EnsureClass(PLAIN.encode()))
    token = class_token(PLAIN.class_id)
    world.host.begin(calls.TaintNode("n1", (("k", "v"),), []))
    found = plans(world)
    fenced = next(index for index, plan in enumerate(found) if puts(plan, "fence/n1"))
    noted = next(index for index, plan in enumerate(found) if puts(plan, "hold/n1"))
    held = next(index for index, plan in enumerate(found) if any(isinstance(each, Hold) for each in plan))
    lowered = [index for index, plan in enumerate(found) for each in plan if isinstance(each, Resize) and token in each.amounts]
    assert fenced < noted < held < min(lowered)
    assert world.view("n1").available[token] == 0


def test_nothing_is_held_while_the_fence_is_not_confirmed(world: World) -> None:
    world.ask(calls.EnsureClass(PLAIN.encode()))
    world.host.begin(calls.TaintNode("n1", (("k", "v"),), []))
    (fence,) = (each for each in world.controller.plan() if isinstance(each, Put) and each.key.startswith("fence/"))
    for _ in range(3):
        world.controller.round()
        plan = world.controller.plan()
        assert not any(isinstance(each, (Hold, Resize)) or puts([each], "hold/") for each in plan)
    world.controller.done(world.host.perform(fence))
    assert puts(world.controller.plan(), "hold/n1")


def test_tokens_are_lowered_and_that_is_answered_before_others_are_raised(world: World) -> None:
    parent = world.create(flexible_resource_min={"CPU": 8})
    world.host.begin(world.creation(parent, flexible_resource_min={"CPU": 8}))
    found = plans(world)
    outer, inner = share_token(parent, "CPU"), share_token("vc2", "CPU")
    lowered = {
        node: next(
            index
            for index, plan in enumerate(found)
            for each in plan
            if isinstance(each, Resize) and each.node_id == node and each.amounts.get(outer) == 0
        )
        for node in ("n1", "n2")
    }
    for index, plan in enumerate(found):
        for node in raised(plan, inner):
            assert lowered[node] < index
    assert world.tokens("vc2") == {"n1": 4, "n2": 4}


def test_what_is_lowered_on_one_node_is_answered_before_it_is_raised_on_another(world: World) -> None:
    """The maximum of a cluster holds over all nodes, at every moment: its idle share moves to where its work is."""
    vc = world.create(flexible_resource_max={"CPU": 4})
    world.want(vc, 1, Resources.parse({"CPU": 4}))
    (before,) = world.tokens(vc)
    (after,) = {"n1", "n2"} - {before}
    world.port.take(before, {"CPU": 4})  # by work outside
    world.later(0.1)
    choice = replace(ANY, node_id=after)
    spec = ClassSpec((choice,), cluster=vc)
    world.host.begin(calls.WantShares([calls.Hint(spec.encode(), {"CPU": 4}, 1)]))
    token = share_token(vc, "CPU")
    for _ in range(10):
        world.controller.report(world.port.observe())
        for plan in plans(world):
            assert not (raised(plan, token, 4) & {after}) or world.free(vc) == 4
        stood = {view.node_id: view.total.get(token, 0.0) - world.held(view.node_id, token) for view in world.views()}
        assert sum(stood.values()) <= 4
        world.time += 0.2
        world.controller.round()
    assert stood == {before: 0, after: 4}


def test_writes_to_different_nodes_are_planned_together() -> None:
    nodes = tuple(f"n{number}" for number in range(20))
    world = World(nodes=nodes)
    world.host.begin(calls.EnsureClass(PLAIN.encode()))
    (plan, *_) = (plan for plan in plans(world) if any(isinstance(each, Resize) for each in plan))
    assert raised(plan, class_token(PLAIN.class_id)) == set(nodes)
    spread = FixedSizeNodes([FixedSizeNode({"CPU": 1})] * 20, "STRICT_SPREAD")
    world.job("j1")
    world.host.begin(world.creation(fixed_size_nodes=[spread]))
    (plan, *_) = plans(world)
    assert raised(plan, share_token("vc1", "CPU")) == set(nodes)


def test_to_a_node_that_is_being_written_to_nothing_else_is_written(world: World) -> None:
    world.host.begin(calls.EnsureClass(PLAIN.encode()))
    first = world.controller.plan()
    while not any(isinstance(each, Resize) for each in first):
        for effect in first:
            world.controller.done(world.host.perform(effect))
        first = world.controller.plan()
    other = ClassSpec((ANY,), demand=ONE, cluster=None, takers="actors")
    world.host.begin(calls.EnsureClass(other.encode()))
    for _ in range(3):
        meanwhile = world.controller.plan()
        assert not any(isinstance(each, Resize) for each in meanwhile)
        for effect in meanwhile:
            world.controller.done(world.host.perform(effect))
    for effect in first:
        world.controller.done(world.host.perform(effect))
    assert raised([each for plan in plans(world) for each in plan], class_token(other.class_id)) == {"n1", "n2"}
