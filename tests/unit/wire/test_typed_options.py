"""``remora.options``: what is right comes back as it was given, what is wrong is refused where it is written."""

import pytest

import remora
from remora import In, InvalidInputError, InvalidSelectorError, InvalidStrategyError, InvalidTaintError, options

RIGHT = [
    {},
    {"num_cpus": 1, "num_gpus": 0.5, "resources": {"disk": 1}},
    {"label_selector": {"zone": In("a", "b")}, "tolerations": {"gpu_node": "exists()"}, "labels": {"type": "cat"}},
    {"scheduling_strategy": "SPREAD"},
    {"scheduling_strategy": remora.actor_affinity(remora.label_in("type", ["cat"], False))},
    {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]},
    {"label_selector": None, "tolerations": None, "labels": None},
    {"_labels": {"a": "b"}},  # a private one of Ray's is Ray's
]


@pytest.mark.parametrize("given", RIGHT)
def test_what_is_right_comes_back_as_it_was_given(given):
    assert options(**given) == given


WRONG = [
    ({"toleration": {}}, InvalidInputError, "no option 'toleration': did you mean 'tolerations'?"),
    ({"label_selectors": {}}, InvalidInputError, "did you mean 'label_selector'?"),
    ({"num_cpu": 1}, InvalidInputError, "did you mean 'num_cpus'?"),
    ({"xyzzy": 1}, InvalidInputError, "there is no option 'xyzzy', for example num_cpus=1"),
    ({"label_selector": {"zone": "in(a"}}, InvalidSelectorError, "in\\(a"),
    ({"tolerations": {"": "a"}}, InvalidInputError, "''"),
    ({"labels": {"type": "a b"}}, InvalidInputError, "a b"),
    ({"affinity": 5}, InvalidStrategyError, "5"),
    ({"fallback_strategy": [{"zone": "a"}]}, InvalidInputError, "zone"),
]


@pytest.mark.parametrize(("given", "error", "says"), WRONG)
def test_what_is_wrong_is_refused_here(given, error, says):
    with pytest.raises(error, match=says):
        options(**given)


def test_a_taint_error_is_an_input_error():
    assert issubclass(InvalidTaintError, InvalidInputError)
