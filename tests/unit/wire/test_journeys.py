"""Values that travel between clients, the store and the controller arrive as they were."""

from __future__ import annotations

from typing import Any

import pytest

from remora import Exists, InvalidStrategyError, actor_affinity, label_in, label_not_in, node_affinity
from remora.model.groups import GroupRequest
from remora.model.strategies import ACTOR
from remora.wire.asks import decode_ask, encode_ask
from remora.wire.classes import ClassSpec
from remora.wire.group_requests import decode_group, encode_group
from remora.wire.rewrite import Defaults, rewrite, rewrite_group
from remora.wire.tokens import class_of_token, class_token


def spec(**options: Any) -> ClassSpec:
    return rewrite(options, Defaults()).spec


PLAIN = spec()
TOLERANT = spec(tolerations={"gpu": Exists()})
IN_B = spec(label_selector={"zone": "b"})
EITHER = spec(scheduling_strategy=node_affinity([label_in("z", ["a"]), label_in("y", ["b"])], True))


@pytest.mark.parametrize("made", [PLAIN, TOLERANT, IN_B, EITHER])
def test_a_class_survives_its_journey(made: ClassSpec):
    again = ClassSpec.decode(made.encode())
    assert (again, again.class_id) == (made, made.class_id)
    assert class_of_token(class_token(made.class_id)) == made.class_id
    assert class_of_token("CPU") is None


def test_the_defaults_of_a_job_hold_unless_a_call_says_otherwise():
    defaults = Defaults.parse({"zone": "a"}, {"gpu": Exists()})
    assert rewrite({}, defaults).spec == spec(label_selector={"zone": "a"}, tolerations={"gpu": "exists()"})
    assert rewrite({"label_selector": {"zone": "b"}, "tolerations": {}}, defaults).spec == IN_B


LONELY = {"labels": {"type": "cat"}, "scheduling_strategy": actor_affinity(label_not_in("type", ["cat"], False))}
WITH_CAT = {"scheduling_strategy": actor_affinity(label_in("type", ["cat"], False))}
TOGETHER = {"scheduling_strategy": actor_affinity(label_in("who", ["A"], False), on_failover="together")}
SELECTIVE = {"label_selector": {"zone": "in(a)"}, "tolerations": {"k": "v"}}


@pytest.mark.parametrize("options", [LONELY, WITH_CAT, TOGETHER, SELECTIVE])
def test_what_is_asked_survives_its_journey(options: dict[str, Any]):
    asked = rewrite(options, Defaults()).ask(ACTOR, {"CPU": 1}, {"CPU": 1}, "tests", [])
    assert decode_ask(encode_ask(asked)) == asked


def group(bundles: Any, strategy: str | None = None, defaults: Defaults | None = None, **options: Any) -> GroupRequest:
    names = ("bundle_label_selector", "tolerations", "fallback_strategy")
    return rewrite_group(bundles, strategy, {name: options.get(name) for name in names}, defaults or Defaults())


def test_a_group_survives_its_journey():
    wanted = group(
        [{"CPU": 0.5}, {"GPU": 1}],
        strategy="SPREAD",
        tolerations={"k": Exists()},
        fallback_strategy=[{"bundles": [{"CPU": 1}]}],
    )
    assert decode_group(encode_group(wanted)) == wanted


def test_a_bad_fallback_of_a_group_is_refused():
    with pytest.raises(InvalidStrategyError, match="'bundles' and 'bundle_label_selector'"):
        group([{"CPU": 1}], fallback_strategy=[{"bundle": [{"CPU": 1}]}])


def test_bundles_tolerate_the_taints_of_the_rare_resources_that_they_ask_for():
    request = group([{"CPU": 1}, {"GPU": 1}], defaults=Defaults(rare=frozenset({"gpu"})))
    assert [bundle.nodes.tolerations.to_dict() for bundle in request.options[0]] == [
        {},
        {"rare_resource.ray.io/gpu": "exists()"},
    ]
