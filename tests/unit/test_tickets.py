"""Options become tickets: the same ones the same ticket, whatever else they say; no cluster is needed."""

from typing import Any

import pytest
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from remora.live.clusters import scopes
from remora.live.submit.submitter import Submitter
from remora.wire.calls import EnsureClass
from remora.wire.rewrite import Defaults


@pytest.fixture
def submitter() -> Submitter:
    return Submitter(Defaults())


def class_of(submitter: Submitter, **options: Any) -> str:
    return submitter.ticketed(options, is_actor=False)["label_selector"].class_id


def test_what_says_nothing_to_us_goes_through_untouched(submitter):
    options = {"num_cpus": 2, "name": "x"}
    assert submitter.ticketed(options, is_actor=False) is options
    assert options == {"num_cpus": 2, "name": "x"}


def test_the_same_options_are_one_class_in_any_spelling_and_again(submitter):
    first = class_of(submitter, label_selector={"zone": "a"})
    assert first == class_of(submitter, label_selector={"zone": "a"}) == class_of(submitter, label_selector={"zone": "in(a)"})
    assert first == class_of(submitter, node_labels={"zone": "a"})
    assert first != class_of(submitter, label_selector={"zone": "a"}, tolerations={"k": "exists()"})


def test_a_selector_that_was_changed_since_is_another_class(submitter):
    selector = {"zone": "a"}
    first = class_of(submitter, label_selector=selector)
    selector["zone"] = "b"
    assert class_of(submitter, label_selector=selector) not in (first, submitter.plain.class_id)


def test_ray_is_left_none_of_our_options_the_first_time_and_later(submitter):
    for _ in range(2):
        left = submitter.ticketed(
            {"num_cpus": 1, "tolerations": {"k": "exists()"}, "node_labels": {"zone": "a"}}, is_actor=False
        )
        assert left.keys() == {"num_cpus", "label_selector"}


class Heard:
    """The way to a controller that hears everything."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, call: Any) -> Any:
        self.told.append(call)
        return len(self.told)

    def until_heard(self, messages: list[Any], seconds: float) -> None:
        assert messages == [len(self.told)]
        self.told.append("heard")


def test_what_is_new_in_a_virtual_cluster_is_heard_of_before_it_is_submitted(submitter, monkeypatch):
    heard = Heard()
    monkeypatch.setattr("remora.live.submit.submitter.link", heard)
    monkeypatch.setattr(scopes, "current", lambda: "vc1")
    for resources in ({"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 2.0}):
        submitter.tokens(submitter.plain, resources)
    wanted = [each if each == "heard" else each.hints[0].resources for each in heard.told if not isinstance(each, EnsureClass)]
    assert wanted[:2] == [{"CPU": 1.0}, "heard"]
    assert wanted[-2:] == [{"CPU": 2.0}, "heard"]
    assert wanted.count("heard") == 2


class Shown(PlacementGroupSchedulingStrategy):
    def __repr__(self) -> str:
        return "a group"


def test_work_that_goes_into_a_group_keeps_its_strategy_the_first_time_and_later(submitter):
    strategy = Shown(PlacementGroup.empty())
    for _ in range(2):
        left = submitter.ticketed({"label_selector": {"zone": "a"}, "scheduling_strategy": strategy}, is_actor=False)
        assert left["scheduling_strategy"] is strategy
