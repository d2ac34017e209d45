"""Whom affinity names by a handle or an id."""

from __future__ import annotations

import pytest

from remora import actor_affinity, affinity
from remora.errors import InvalidStrategyError
from remora.wire.rewrite import Defaults, check_handles, rewrite


@pytest.mark.parametrize("who", ["a-name", "ab" * 15, "AB" * 16])
def test_affinity_to_a_string_that_is_no_actors_id_is_refused(who: str):
    found = rewrite({"scheduling_strategy": actor_affinity(affinity([who]))}, Defaults())
    with pytest.raises(InvalidStrategyError, match=r"that is no actor's id, .* for example affinity\(\[ray.get_actor\("):
        check_handles(found.placement.affinities)


def test_affinity_to_an_id_is_taken():
    found = rewrite({"scheduling_strategy": actor_affinity(affinity(["ab" * 16]))}, Defaults())
    check_handles(found.placement.affinities)
