"""Placement groups outside of virtual clusters: which option is offered, and that its tokens stand before it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.leased import JOB_ID, FaultyPort, LeasedWorld, spec

from remora.wire import calls
from remora.wire.group_requests import encode_group
from remora.wire.rewrite import Defaults, rewrite_group
from remora.wire.tokens import GROUPS, class_token

PLAIN, IN_B = spec(), spec(label_selector={"zone": "b"})


@pytest.fixture
def world() -> LeasedWorld:
    port = FaultyPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b"})
    return LeasedWorld(port=port)


def offer(world: LeasedWorld, bundles: list[dict[str, float]], **options: Any) -> dict[str, Any]:
    names = ("bundle_label_selector", "tolerations", "fallback_strategy")
    request = rewrite_group(bundles, None, {name: options.get(name) for name in names}, Defaults())
    found: dict[str, Any] = world.ask(calls.OfferGroup(calls.new_ask(), encode_group(request), JOB_ID))
    return found


def test_the_first_option_that_could_ever_fit_is_offered_with_its_tokens(world: LeasedWorld):
    bundles: list[dict[str, float]] = [{"CPU": 1}] * 2
    options: dict[str, Any] = {
        "bundle_label_selector": [{"zone": "c"}] * 2,
        "fallback_strategy": [
            {"bundles": [{"CPU": 2}] * 3, "bundle_label_selector": [{"zone": "b"}] * 3},
            {"bundles": [{"CPU": 1}]},
        ],
    }
    found = offer(world, bundles, **options)
    anywhere, in_b = replace(PLAIN, takers=GROUPS), replace(IN_B, takers=GROUPS)
    assert (found["option"], found["nodes"]) == (2, {class_token(anywhere.class_id): ["n1", "n2"]})
    assert world.offers(anywhere) == {"n1", "n2"}
    world.port.join("n3", {"CPU": 2}, {"zone": "b"})
    assert offer(world, bundles, **options)["option"] == 1
    assert world.offers(in_b) == {"n2", "n3"}


def test_a_group_that_fits_nowhere_is_not_offered_and_says_why(world: LeasedWorld):
    found = offer(world, [{"CPU": 1}], bundle_label_selector=[{"zone": "c"}])
    assert (found["option"], found["nodes"]) == (None, {})
    assert found["reason"] == "1 bundle fits nowhere (of 1): 0/2 nodes fit: 2 do not match zone=c"
    assert "add a node with 1 CPU and the label zone=c" in found["suggestions"]
