"""Every old rule can still be put back, and is gone afterwards."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.world import bodies
from tests.world.clients import Submitter
from tests.world.life import play
from tests.world.old_rules import RULES, put_back
from tests.world.writing import write

from remora.controller import answering, assumed, commands, operating, recovery
from remora.controller.clusters import admission, growing, lending, registry, share_writer
from remora.controller.leases import failover, known_actors, lease_table, lease_tokens, leases, slots, undecided
from remora.controller.scaling import keeper, machines
from remora.controller.tokens import class_tokens, holds
from remora.kernel.placing import inside
from remora.kernel.state import cluster, shares

_PLACES: tuple[Any, ...] = (
    *(admission, assumed, bodies, class_tokens, cluster, commands, operating, failover, growing, holds, inside, lease_table),
    *(
        keeper,
        known_actors,
        lease_tokens,
        leases,
        lending,
        machines,
        recovery,
        registry,
        share_writer,
        shares,
        slots,
        undecided,
    ),
)


def members() -> dict[str, Any]:
    """Return everything that a rule may replace."""
    classes = [each for place in _PLACES for _, each in inspect.getmembers(place, inspect.isclass)]
    found = {f"{place.__name__}.{name}": each for place in _PLACES for name, each in vars(place).items() if callable(each)}
    for kind in (*classes, Submitter):
        found |= {
            f"{kind.__module__}.{kind.__qualname__}.{name}": each
            for name, each in vars(kind).items()
            if callable(each) or isinstance(each, property)
        }
    return found | {f"commands of {kind.__name__}": handler for kind, handler in answering.handlers.items()}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_an_old_rule_replaces_something_and_leaves_nothing(rule: str) -> None:
    before = members()
    with put_back(rule):
        during = members()
        play(write(11, 4), 11)  # whatever comes of it: the world itself does not fail
    changed = [name for name in before if during[name] is not before[name]]
    assert changed
    assert members() == before
