"""What ``remora.init(spread=...)`` adds to the options of an actor, and when it adds nothing."""

import pytest

from remora import InvalidStrategyError, actor_affinity, label_in, spread
from remora.wire.rewrite import MADE_FROM, Defaults

OVER_ZONES = Defaults.parse(spread="zone")


@pytest.mark.parametrize("strategy", [None, "DEFAULT", "SPREAD"])
def test_an_actor_that_says_nothing_is_spread_among_its_class(strategy):
    options = OVER_ZONES.spread({"num_cpus": 1, "scheduling_strategy": strategy}, "Replica")
    assert options["affinity"] == [spread(over="zone")]
    assert options["labels"] == {MADE_FROM: "Replica"}


SAYS_SOMETHING = {
    "affinity": {"affinity": actor_affinity(label_in("a", ["b"]))},
    "a strategy": {"scheduling_strategy": actor_affinity(label_in("a", ["b"]))},
    "a strategy of Ray's": {"scheduling_strategy": object()},
}


@pytest.mark.parametrize("options", list(SAYS_SOMETHING.values()), ids=list(SAYS_SOMETHING))
def test_a_call_has_the_last_word(options):
    assert OVER_ZONES.spread(options, "Replica") is options


def test_in_a_placement_group_it_lies_where_its_bundle_lies():
    options = {"num_cpus": 1}
    assert OVER_ZONES.spread(options, "Replica", in_group=True) is options


def test_names_of_classes_become_label_values_and_stay_apart():
    labels = [OVER_ZONES.spread({}, f"ServeReplica:default:{name}")["labels"][MADE_FROM] for name in ("a", "b")]
    assert labels[0] != labels[1]
    assert all(label.startswith("ServeReplica_default_") for label in labels)


def test_its_own_labels_stay_and_labels_that_were_named_are_enough():
    assert OVER_ZONES.spread({"labels": {"a": "b"}}, "R")["labels"] == {"a": "b", MADE_FROM: "R"}
    named = Defaults.parse(spread=spread(over="zone", labels={"team": "x"}), labels={"team": "x"})
    assert named.spread({}, "R")["labels"] == {"team": "x"}


def test_one_that_spreads_itself_and_has_no_labels_is_counted_with_its_class():
    assert Defaults().spread({"scheduling_strategy": spread(over="zone")}, "R")["labels"] == {MADE_FROM: "R"}
    labelled = {"scheduling_strategy": spread(over="zone"), "labels": {"a": "b"}}
    assert Defaults().spread(labelled, "R") is labelled


def test_anything_else_is_refused():
    with pytest.raises(InvalidStrategyError, match="for example"):
        Defaults.parse(spread=3)
