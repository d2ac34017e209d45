"""Equal options are parsed once, and what only looks equal is not taken for it."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

import pytest

from remora import DoesNotExist, Exists, In, NotIn, actor_affinity, label_in, label_not_in, task_affinity
from remora.errors import InvalidInputError, InvalidResourceError
from remora.model.labels import parse_workload_labels
from remora.model.memo import Memo, key_of
from remora.model.requests import parse_request
from remora.model.strategies import NodePin


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"resources": {"CPU": 1, "GPU": 0.5}},
        {"label_selector": {"zone": "in(a, b)", "tier": NotIn("spot")}},
        {"tolerations": {"gpu_node": Exists(), "gpu_type": In("A100", "H100")}},
        {"fallback_strategy": [{"label_selector": {"zone": "b"}}, {"label_selector": {}}]},
        {"scheduling_strategy": actor_affinity([label_in("type", ["cat"], True)], symmetric=False)},
        {"affinity": [task_affinity(label_not_in("type", ["cat"], False)), NodePin("n1", True)]},
        {"scheduling_strategy": "SPREAD", "namespace": "other", "virtual_cluster": "vc-1"},
    ],
)
def test_equal_options_are_the_same_request(options: dict[str, Any]):
    again = copy.deepcopy(options)
    assert parse_request("actor", **again) is parse_request("actor", **options)


def test_a_list_or_mapping_that_is_changed_afterwards_is_read_again():
    selector, resources = {"zone": "a"}, {"CPU": 1}
    fallbacks: list[Any] = [{"label_selector": {}}]
    before = parse_request(label_selector=selector, resources=resources, fallback_strategy=fallbacks)
    selector["zone"] = "b"
    resources["CPU"] = 2
    fallbacks.append({"label_selector": {"tier": "spot"}})
    after = parse_request(label_selector=selector, resources=resources, fallback_strategy=fallbacks)
    assert [choice.selector.to_dict() for choice in before.choices] == [{"zone": "a"}, {}]
    assert [choice.selector.to_dict() for choice in after.choices] == [{"zone": "b"}, {}, {"tier": "spot"}]
    assert (before.resources.to_dict(), after.resources.to_dict()) == ({"CPU": 1}, {"CPU": 2})


def test_an_operator_or_strategy_that_is_changed_afterwards_is_read_again():
    operator, strategy = In("a"), actor_affinity(label_in("type", ["cat"], False))
    before = parse_request(label_selector={"zone": operator}, scheduling_strategy=strategy)
    operator.values = ("b",)
    strategy.on_failover = "follow"
    after = parse_request(label_selector={"zone": operator}, scheduling_strategy=strategy)
    assert before.choices[0].selector.to_dict() == {"zone": "a"}
    assert after.choices[0].selector.to_dict() == {"zone": "b"}
    assert [each.affinities[0].on_failover for each in (before, after)] == ["stay", "follow"]


def test_what_compares_equal_and_is_no_amount_is_still_refused():
    parse_request(resources={"CPU": 1})
    with pytest.raises(InvalidResourceError, match="the amount True of CPU is not a number"):
        parse_request(resources={"CPU": True})
    parse_request(resources={"CPU": 0})
    with pytest.raises(InvalidResourceError, match="the amount False of CPU is not a number"):
        parse_request(resources={"CPU": False})


def test_an_error_is_raised_every_time():
    for _ in range(3):
        with pytest.raises(InvalidInputError, match="'zone a'"):
            parse_request(label_selector={"zone a": "b"})


def test_things_that_are_no_plain_values_are_parsed_every_time():
    class Named:
        """Compares equal to everything, and hashes."""

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    for odd in (MappingProxyType({"zone": "a"}), {"zone": {"a"}}, Named(), [Named()]):
        with pytest.raises(TypeError):
            hash(key_of(odd))
    first, second = (parse_request(label_selector=MappingProxyType({"zone": "a"})) for _ in range(2))
    assert first == second
    assert first is not second
    with pytest.raises(InvalidInputError):
        parse_request(scheduling_strategy=Named())


def test_the_types_of_containers_and_operators_tell_keys_apart():
    values = [["a"], ("a",), {"a": "a"}, "a", In("a"), NotIn("a"), Exists(), DoesNotExist(), None, 1, 1.0, True]
    assert len({key_of(value) for value in values}) == len(values)


def test_the_memory_is_bounded():
    parsed: list[str] = []

    def parse(text: str) -> str:
        parsed.append(text)
        return text

    memo = Memo(parse)
    for index in range(10_000):
        memo(f"a{index}")
    assert len(memo._known) <= 4_096
    assert memo("a9999") == "a9999"
    assert len(parsed) == 10_000


def test_labels_too():
    recall = Memo(parse_workload_labels)
    assert recall({"b": "1", "a": "2"}) is recall({"b": "1", "a": "2"}) == (("a", "2"), ("b", "1"))
