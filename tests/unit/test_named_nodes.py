"""What becomes of options that name a node: what Ray shall decide alone, and what waits for a token."""

from __future__ import annotations

from typing import Any

import pytest
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from remora.live.adapter import labels_now, unpatched
from remora.live.clusters import scopes
from remora.live.submit import library_fixes
from remora.live.submit.submitter import Submitter
from remora.live.submit.tickets import FREE, STOCK, Ticket
from remora.wire.keys import Overrides
from remora.wire.rewrite import Defaults

HEAD, WORKER, TAINTED, NOWHERE = ("a" * 56, "b" * 56, "c" * 56, "d" * 56)
NODES: list[dict[str, Any]] = [
    {"NodeID": HEAD, "Alive": True, "Resources": {"CPU": 1.0, "node:__internal_head__": 1.0}, "Labels": {"zone": "h"}},
    {"NodeID": WORKER, "Alive": True, "Resources": {"CPU": 2.0}, "Labels": {"zone": "w"}},
    {"NodeID": TAINTED, "Alive": True, "Resources": {"CPU": 2.0}, "Labels": {"taint.remora.io/k": "v"}},
    {"NodeID": NOWHERE, "Alive": False, "Resources": {}, "Labels": {}},
]
for _node in NODES:
    _node["Labels"]["ray.io/node-id"] = _node["NodeID"]


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpatched, "nodes", lambda: NODES)
    monkeypatch.setattr(labels_now, "overrides", lambda *_: {})
    monkeypatch.setattr(scopes, "peek", lambda: None)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopes, "peek", lambda: "vc1")
    monkeypatch.setattr(library_fixes, "is_next_to_us", lambda strategy: strategy.node_id == WORKER)


def at(node_id: str, **more: Any) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False, **more)


def ticketed(defaults: Defaults | None = None, **options: Any) -> tuple[Any, Any]:
    """Return what goes in the place of the selector, and the strategy."""
    found = Submitter(defaults or Defaults()).ticketed(options, is_actor=True)
    return found.get("label_selector"), found.get("scheduling_strategy")


RAYS: dict[str, dict[str, Any]] = {
    "no such node": {"scheduling_strategy": at(NOWHERE)},
    "too small": {"scheduling_strategy": at(WORKER), "num_cpus": 3},
    "too small for what its placement takes": {"scheduling_strategy": at(HEAD), "resources": {"accel": 1}},
    "tolerations help nothing": {"scheduling_strategy": at(NOWHERE), "tolerations": {"k": "exists()"}},
    "labels neither": {"scheduling_strategy": at(NOWHERE), "labels": {"type": "cat"}},
    "by its label": {"label_selector": {"ray.io/node-id": NOWHERE}},
    "by labels, all of them too small": {"label_selector": {"ray.io/node-id": f"in({HEAD}, {WORKER})"}, "num_cpus": 3},
    "at once or not at all": {"scheduling_strategy": at(WORKER, _fail_on_unavailable=True)},
}


@pytest.mark.parametrize("options", RAYS.values(), ids=RAYS)
def test_what_can_only_fail_is_rays_to_decide(options: dict[str, Any]) -> None:
    ticket, strategy = ticketed(**options)
    assert ticket is STOCK
    assert not strategy.soft


def test_what_must_start_at_once_fails_where_it_is_not_admitted() -> None:
    ticket, strategy = ticketed(scheduling_strategy=at(TAINTED, _fail_on_unavailable=True))
    assert (ticket, strategy.node_id) == (STOCK, "0" * 55 + "1")
    tolerated = at(TAINTED, _fail_on_unavailable=True)
    assert ticketed(scheduling_strategy=tolerated, tolerations={"k": "v"})[1].node_id == TAINTED


def test_anything_else_waits_for_its_token_with_a_hint() -> None:
    for options in ({"scheduling_strategy": at(WORKER)}, {"scheduling_strategy": at(TAINTED)}):
        ticket, strategy = ticketed(**options)
        assert isinstance(ticket, Ticket)
        assert ticket not in (STOCK, FREE)
        assert strategy.soft


def test_a_call_that_names_a_node_says_something_else_than_the_job() -> None:
    job = Defaults.parse(label_selector={"zone": "w"})
    for options in ({"scheduling_strategy": at(HEAD)}, {"resources": {"node:__internal_head__": 0.001}, "num_cpus": 0}):
        ticket, _ = ticketed(job, **options)
        assert [choice.selector.terms for choice in ticket.spec.choices] == [()]
    ticket, _ = ticketed(job, tolerations={"k": "v"})
    assert ticket.spec.choices[0].selector.to_dict() == {"zone": "w"}


def test_what_takes_nothing_runs_where_it_was_pinned_in_a_virtual_cluster(inside: None) -> None:
    for options in ({"scheduling_strategy": at(HEAD)}, {"label_selector": {"ray.io/node-id": HEAD}}):
        ticket, strategy = ticketed(num_cpus=0, **options)
        assert (ticket, strategy.node_id, strategy.soft) == (FREE, HEAD, False)
        assert ticketed(num_cpus=1, **options)[0] is not FREE
    assert ticketed(num_cpus=0, label_selector={"ray.io/node-id": TAINTED})[0] not in (FREE, STOCK)
    assert ticketed(num_cpus=0, scheduling_strategy=at(WORKER))[1].soft  # an actor beside its driver


def test_labels_and_taints_hold_as_they_are_now() -> None:
    said = Overrides(labels={"zone": None, "tier": "x"}, taints={"k": None, "l": "m"})
    assert labels_now.shown({"zone": "a", "taint.remora.io/k": "v"}, said) == {"tier": "x", "taint.remora.io/l": "m"}
    assert labels_now.shown({"zone": "a"}, None) == {"zone": "a"}
