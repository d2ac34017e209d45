"""The first placement group outside of virtual clusters: it is offered when its tokens stand on the nodes, and not before.

GCS looks once: a group that finds no token is infeasible, and waits until a node joins.
"""

from __future__ import annotations

import pytest
from tests.unit.controller.worlds import World

from remora.controller.effects import Resize
from remora.port.contract import GROUP, WAITING, Work
from remora.wire import calls


def stands(world: World, nodes: dict[str, list[str]]) -> bool:
    return all(world.view(node).available.get(token, 0.0) >= 1 for token, where in nodes.items() for node in where)


@pytest.mark.parametrize("first", ["on a fresh controller", "right after a node joined", "after a restart"])
def test_an_offer_is_answered_when_its_tokens_stand(first: str) -> None:
    world = World()
    world.job("j1")
    if first == "right after a node joined":
        world.offer(None, {"CPU": 1}, ask="before")
        world.port.join("n3", {"CPU": 4})
    if first == "after a restart":
        world.restart()
    pending = world.host.begin(world.offering(None, {"CPU": 1}, {"CPU": 1}, strategy="SPREAD"))
    assert pending.poll() is None
    written = []
    for _ in range(20):
        effects = world.controller.plan()
        for effect in effects:
            reply = pending.poll()
            assert reply is None, "it was answered while writes were planned"
            written += [effect] if isinstance(effect, Resize) else []
            world.controller.done(world.host.perform(effect))
        if not effects:
            break
    reply = pending.poll()
    assert reply is not None
    answer = reply.result()
    (token,) = answer["nodes"]
    assert set(answer["nodes"][token]) == {view.node_id for view in world.views()}
    assert stands(world, answer["nodes"])
    assert {each.node_id for each in written} == ({"n3"} if first == "right after a node joined" else {"n1", "n2"})


def test_a_node_that_does_not_answer_holds_an_offer_up_but_not_for_ever() -> None:
    world = World()
    world.job("j1")
    resize = world.port.resize

    def fails(node_id: str, amounts: dict[str, float]) -> dict[str, float]:
        if node_id == "n2":
            raise OSError("the raylet does not answer")
        return dict(resize(node_id, amounts))

    world.port.resize = fails  # type: ignore[assignment, method-assign]
    world.host.allows_failures = True
    assert world.ask(world.offering(None, {"CPU": 1})) is None
    world.port.resize = resize  # type: ignore[method-assign]
    for _ in range(5):
        world.later(1)
    answer = world.ask(world.offering(None, {"CPU": 1}))
    assert answer["option"] == 0
    assert stands(world, answer["nodes"])


def test_a_node_that_leaves_is_not_waited_for() -> None:
    world = World()
    world.job("j1")
    pending = world.host.begin(world.offering(None, {"CPU": 1}))
    world.port.leave("n2")
    world.host.pump()
    world.later(0.1)
    reply = pending.poll()
    assert reply is not None
    assert reply.result()["option"] == 0


def test_what_is_offered_and_idle_is_offered_again_at_once(world: World) -> None:
    first = world.offer(None, {"CPU": 1}, ask="one")
    writes = world.port.writes
    assert world.offer(None, {"CPU": 1}, ask="two").nodes == first.nodes
    assert world.port.writes == writes


def test_the_reason_of_a_group_that_waits_in_gcs_though_it_fits_is_that_it_is_about_to_start(world: World) -> None:
    """Not that there is no room for all of it together."""
    offer = world.offer(None, {"CPU": 1}, {"CPU": 1})
    (token,) = offer.nodes
    shapes = ({"CPU": 1.0, token: 0.0001}, {"CPU": 1.0, token: 0.0001})
    world.port.submit(Work(GROUP, "group", "", "j1", WAITING, "PENDING", shapes, strategy="PACK"))
    (row,) = world.ask(calls.Explain("group"))
    assert row["reason"].endswith("Ray is about to reserve it")
    assert not row["suggestions"]


def test_the_reason_of_a_group_that_lost_its_node_is_that_ray_tries_it_when_one_joins(world: World) -> None:
    """GCS found that it fits nowhere, and tokens that come later do not make it look again."""
    offer = world.offer(None, {"CPU": 1})
    (token,) = offer.nodes
    lost = Work(GROUP, "group", "", "j1", WAITING, "RESCHEDULING", ({"CPU": 1.0, token: 0.0001},), strategy="PACK")
    world.port.submit(lost)
    (row,) = world.ask(calls.Explain("group"))
    assert "lost a node" in row["reason"]
    assert not row["fits"]
