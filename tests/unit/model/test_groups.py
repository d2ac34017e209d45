"""Placement groups as users write them."""

import pytest

from remora import Exists, In, InvalidInputError, InvalidStrategyError, LabelSelector, Tolerations
from remora.model.groups import parse_group
from remora.model.resources import Resources

GPU, CPU = Resources.parse({"GPU": 1}), Resources.parse({"CPU": 1})


def test_bundles_without_more_are_packed_and_go_anywhere():
    group = parse_group([{"GPU": 1}, {"CPU": 1}])
    assert group.strategy == "PACK"
    assert [bundle.resources for bundle in group.options[0]] == [GPU, CPU]
    assert all(bundle.nodes.selector == LabelSelector() for bundle in group.options[0])


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD", "strict_spread", "Pack"])
def test_the_strategy_is_named_in_any_case(strategy):
    assert parse_group([{"CPU": 1}], strategy).strategy == strategy.upper()


def test_the_same_labels_on_all_bundles_as_seed_000_writes_it():
    zone = {"ray.io/availability-zone": "us-west4-a"}
    group = parse_group([{"GPU": 1}, {"GPU": 1}], bundle_label_selector=[zone] * 2)
    assert [bundle.nodes.selector for bundle in group.options[0]] == [LabelSelector(zone)] * 2


def test_different_labels_on_different_bundles_as_seed_000_writes_it():
    spot, h100 = {"ray.io/market_type": "spot"}, {"ray.io/accelerator-type": "nvidia-h100"}
    group = parse_group([{"CPU": 1}] + [{"GPU": 1}] * 2, bundle_label_selector=[spot] + [h100] * 2)
    assert [bundle.nodes.selector for bundle in group.options[0]] == [LabelSelector(spot)] + [LabelSelector(h100)] * 2


def test_tolerations_hold_for_every_bundle_of_every_option():
    group = parse_group(
        [{"GPU": 1}], tolerations={"gpu_node": Exists()}, fallback_strategy=[{"bundles": [{"CPU": 1}, {"CPU": 2}]}]
    )
    bundles = [bundle for option in group.options for bundle in option]
    assert len(bundles) == 3
    assert {bundle.nodes.tolerations for bundle in bundles} == {Tolerations({"gpu_node": "exists()"})}


def test_fallbacks_of_other_sizes_as_seed_000_writes_it():
    group = parse_group(
        [{"GPU": 1}] * 2,
        bundle_label_selector=[{"ray.io/accelerator-type": "nvidia-h100"}] * 2,
        fallback_strategy=[
            {"bundles": [{"GPU": 1}] * 4, "bundle_label_selector": [{"ray.io/accelerator-type": "nvidia-a100"}] * 4},
            {"bundles": [{"GPU": 1}] * 8, "bundle_label_selector": [{"ray.io/accelerator-type": "nvidia_v100"}] * 8},
        ],
    )
    assert [len(option) for option in group.options] == [2, 4, 8]
    assert group.options[2][0].nodes.selector == LabelSelector({"ray.io/accelerator-type": In("nvidia_v100")})


def test_a_fallback_that_names_no_bundles_keeps_the_first_ones():
    group = parse_group([{"GPU": 1}], fallback_strategy=[{"bundle_label_selector": [{"zone": "b"}]}])
    assert group.options[1][0].resources == GPU
    assert group.options[1][0].nodes.selector == LabelSelector({"zone": "b"})


BAD = {
    "no bundles": ({"bundles": []}, "at least one bundle, not []"),
    "bundles are None": ({"bundles": None}, "at least one bundle"),
    "bundles are one mapping": ({"bundles": {"CPU": 1}}, "for example [{'CPU': 1}]"),
    "bundles are a string": ({"bundles": "CPU"}, "at least one bundle"),
    "a bundle asks for nothing": ({"bundles": [{"CPU": 1}, {}]}, "the bundle {} asks for nothing"),
    "a bundle asks for zero": ({"bundles": [{"CPU": 0}]}, "the bundle {'CPU': 0} asks for nothing; for example {'CPU': 1}"),
    "a bundle is no mapping": ({"bundles": [1]}, "a bundle must be a mapping"),
    "a bundle is None": ({"bundles": [None]}, "asks for nothing"),
    "a bundle is negative": ({"bundles": [{"CPU": -1}]}, "is negative"),
    "an unknown strategy": ({"strategy": "SPREADED"}, "'SPREADED' is not known: use PACK, SPREAD, STRICT_PACK, STRICT_SPREAD"),
    "a strategy that is no string": ({"strategy": 3}, "the placement group strategy 3 is not known"),
    "too few selectors": ({"bundles": [{"CPU": 1}] * 2, "bundle_label_selector": [{}]}, "one selector a bundle (2)"),
    "too many selectors": ({"bundle_label_selector": [{}, {}]}, "one selector a bundle (1)"),
    "one selector for all": ({"bundle_label_selector": {"zone": "a"}}, "for example [{'zone': 'a'}] * 1"),
    "a bad selector": ({"bundle_label_selector": [{"zone": "in()"}]}, "did you mean in(a, b)?"),
    "bad tolerations": ({"tolerations": ["gpu_node"]}, "tolerations must map"),
    "fallbacks are a mapping": ({"fallback_strategy": {}}, "fallback_strategy must be a list, not {}"),
    "fallbacks are a string": ({"fallback_strategy": "x"}, "fallback_strategy must be a list"),
    "a fallback of another field": ({"fallback_strategy": [{"label_selector": {}}]}, "'bundles' and 'bundle_label_selector'"),
    "an empty fallback": ({"fallback_strategy": [{}]}, "the fallback {} must be a mapping"),
    "a fallback that is no mapping": ({"fallback_strategy": [5]}, "the fallback 5 must be a mapping"),
    "a fallback with too few selectors": (
        {"fallback_strategy": [{"bundles": [{"CPU": 1}] * 2, "bundle_label_selector": [{}]}]},
        "one selector a bundle (2)",
    ),
}


@pytest.mark.parametrize(("options", "want"), list(BAD.values()), ids=list(BAD))
def test_a_bad_group_is_refused(options, want):
    with pytest.raises(InvalidInputError) as caught:
        parse_group(**{"bundles": [{"CPU": 1}], **options})
    assert want in str(caught.value)


def test_a_bad_group_is_a_strategy_error():
    with pytest.raises(InvalidStrategyError):
        parse_group([])
