"""Strategies: every spelling of the seeds 001 and 003, typed as there, with Python's False."""

from types import SimpleNamespace
from typing import Any

import pytest

from remora import (
    ActorAffinity,
    ActorAffinitySchedulingStrategy,
    Exists,
    In,
    InvalidStrategyError,
    LabelMatchExpression,
    LabelMatchOperator,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    TaskAffinitySchedulingStrategy,
    actor_affinity,
    affinity,
    anti_affinity,
    label_does_not_exist,
    label_exist,
    label_exists,
    label_in,
    label_not_in,
    node_affinity,
    task_affinity,
)
from remora.model.strategies import ACTOR, NODE, TASK, Affinity, NodePin, parse_strategies

LOCATION = label_in("location", ["dc_1"], False)
ANY_LOCATION = label_exists("location", False)

ACTOR_SPELLINGS = {
    "seed 001, option 1": actor_affinity(label_in("location", ["dc_1"], False)),
    "seed 001, option 1, in a list": actor_affinity([label_in("location", ["dc_1"], False)]),
    "seed 001, option 2": ActorAffinity([("location", LabelMatchOperator.IN, ["dc_1"], False)]),
    "seed 001, option 2, one tuple": ActorAffinity(("location", LabelMatchOperator.IN, ["dc_1"], False)),
    "seed 001, option 3": ActorAffinitySchedulingStrategy(
        [LabelMatchExpression("location", LabelMatchOperator.IN, ["dc_1"], False)]
    ),
    "seed 001, option 3, by keyword": ActorAffinitySchedulingStrategy(match_expressions=[LOCATION]),
    "seed 001, option 4": ActorAffinity("location in [dc_1]"),
    "seed 001, is_or_semantics with one expression": ActorAffinitySchedulingStrategy([LOCATION], is_or_semantics=True),
    "seed 003, LabelMatchExpression by keyword": ActorAffinitySchedulingStrategy(
        [LabelMatchExpression(key="location", match_operator="IN", values=["dc_1"], is_soft=False)]
    ),
    "a mapping": actor_affinity({"location": In("dc_1")}),
    "a mapping of strings": actor_affinity({"location": "dc_1"}),
    "twice the same": actor_affinity([LOCATION, LOCATION]),
}


@pytest.mark.parametrize("strategy", list(ACTOR_SPELLINGS.values()), ids=list(ACTOR_SPELLINGS))
def test_every_spelling_of_one_actor_affinity_is_one(strategy):
    want = Affinity(ACTOR, (LOCATION,))
    assert strategy.canonical() == want
    assert strategy == actor_affinity(LOCATION)
    assert hash(strategy) == hash(actor_affinity(LOCATION))
    assert parse_strategies(strategy).affinities == (want,)
    assert parse_strategies("DEFAULT", strategy).affinities == (want,)


TWO_EXPRESSIONS = {
    "option 1": actor_affinity([label_in("location", ["dc_1"], False), label_exists("location", False)]),
    "option 1 in another order": actor_affinity([label_exists("location", False), label_in("location", ["dc_1"], False)]),
    "option 2": ActorAffinity([("location", LabelMatchOperator.IN, ["dc_1"], False), ("location", LabelMatchOperator.Exist)]),
    "option 3": ActorAffinitySchedulingStrategy(
        [
            LabelMatchExpression("location", LabelMatchOperator.IN, ["dc_1"], False),
            LabelMatchExpression("location", LabelMatchOperator.EXISTS, None, False),
        ]
    ),
    "option 4": ActorAffinity("location in [dc_1] and location exists"),
}


@pytest.mark.parametrize("strategy", list(TWO_EXPRESSIONS.values()), ids=list(TWO_EXPRESSIONS))
def test_every_spelling_of_two_expressions_is_one(strategy):
    assert strategy.canonical() == Affinity(ACTOR, tuple(sorted((LOCATION, ANY_LOCATION))))


@pytest.mark.parametrize(
    "strategy",
    [
        node_affinity(label_exist("location", False)),
        node_affinity(label_exists("location", False)),
        NodeAffinitySchedulingStrategy([label_exists("location", False)]),
        NodeAffinitySchedulingStrategy(match_expressions=[label_exists("location", False)]),
        NodeAffinitySchedulingStrategy([("location", LabelMatchOperator.Exist)]),
        node_affinity("location exists"),
        node_affinity({"location": Exists()}),
        NodeLabelSchedulingStrategy({"location": Exists()}),
        NodeLabelSchedulingStrategy(hard={"location": Exists()}),
    ],
    ids=[
        "label_exist, the typo of option 1",
        "label_exists",
        "option 3",
        "option 3 by keyword",
        "option 2",
        "option 4",
        "mapping",
        "Ray's",
        "Ray's by keyword",
    ],
)
def test_every_spelling_of_a_node_affinity_is_a_hard_term_on_nodes(strategy):
    assert parse_strategies(strategy).node_terms == (ANY_LOCATION,)
    assert parse_strategies(None, strategy).node_terms == (ANY_LOCATION,)


@pytest.mark.parametrize(
    "strategy",
    [
        task_affinity(label_in("location", ["dc_1"], False)),
        TaskAffinitySchedulingStrategy([LOCATION]),
        task_affinity("location = dc_1"),
    ],
    ids=["task_affinity", "TaskAffinitySchedulingStrategy", "query"],
)
def test_task_affinity_asks_about_tasks(strategy):
    assert strategy.canonical() == Affinity(TASK, (LOCATION,))
    assert strategy != actor_affinity(LOCATION)


HANDLE = SimpleNamespace(workload_id="actor_0")
OTHER = SimpleNamespace(workload_id="actor_1")

HANDLES = {
    "affinity to a handle": (affinity(HANDLE, False), ("IN", ["actor_0"], False)),
    "affinity to an id": (affinity("actor_0", False), ("IN", ["actor_0"], False)),
    "affinity to several": (affinity([HANDLE, OTHER], False), ("IN", ["actor_0", "actor_1"], False)),
    "soft affinity": (affinity(HANDLE, True), ("IN", ["actor_0"], True)),
    "anti-affinity": (anti_affinity(HANDLE, False), ("NOT_IN", ["actor_0"], False)),
    "anti-affinity to several": (anti_affinity([OTHER, HANDLE], False), ("NOT_IN", ["actor_0", "actor_1"], False)),
    "anti-affinity with is_soft=": (anti_affinity(HANDLE, is_soft=True), ("NOT_IN", ["actor_0"], True)),
    "actor_handles=": (affinity(actor_handles=HANDLE, is_soft=False), ("IN", ["actor_0"], False)),
}


@pytest.mark.parametrize(("expression", "want"), list(HANDLES.values()), ids=list(HANDLES))
def test_affinity_to_handles_is_an_expression_over_actor_id(expression, want):
    operator, values, soft = want
    assert expression == LabelMatchExpression(key="actor_id", match_operator=operator, values=values, is_soft=soft)


def test_anti_affinity_to_two_actors_as_seed_003_writes_it():
    strategy = actor_affinity([anti_affinity(HANDLE, False), anti_affinity(OTHER, False)])
    assert strategy.canonical().expressions == (
        LabelMatchExpression("actor_id", "NOT_IN", ["actor_0"], False),
        LabelMatchExpression("actor_id", "NOT_IN", ["actor_1"], False),
    )


@pytest.mark.parametrize("bad", [None, 5, [], [None], {}, object(), SimpleNamespace(workload_id=5)], ids=type)
@pytest.mark.parametrize("make", [affinity, anti_affinity])
def test_affinity_to_what_is_no_handle_is_refused(make, bad):
    with pytest.raises(InvalidStrategyError, match=r"for example affinity\("):
        make(bad, False)


def test_the_helpers_of_the_seeds_take_is_soft_by_position_and_by_name():
    assert label_in("k", ["a"], True) == label_in("k", ["a"], is_soft=True)
    assert label_not_in("k", ["a"], True) == label_not_in("k", ["a"], is_soft=True)
    assert label_exists("k", True) == label_exists("k", is_soft=True)
    assert label_does_not_exist("k", True) == label_does_not_exist("k", is_soft=True)


def test_or_joins_the_hard_expressions_of_a_strategy():
    strategy = ActorAffinitySchedulingStrategy([LOCATION, ANY_LOCATION], is_or_semantics=True)
    assert strategy.canonical().any_of
    assert strategy == ActorAffinity("location in [dc_1] or location exists")
    assert strategy != actor_affinity([LOCATION, ANY_LOCATION])


def test_or_over_one_hard_and_one_soft_expression_is_and():
    strategy = actor_affinity([LOCATION, label_exists("x", True)], is_or_semantics=True)
    assert not strategy.canonical().any_of


def test_node_affinity_by_or_is_kept_together():
    placement = parse_strategies(node_affinity([LOCATION, ANY_LOCATION], is_or_semantics=True))
    assert placement.node_any == (tuple(sorted((LOCATION, ANY_LOCATION))),)
    assert placement.node_terms == ()


def test_soft_node_expressions_are_wishes():
    soft = label_in("zone", ["a"], True)
    assert parse_strategies(node_affinity([soft, ANY_LOCATION])).node_wishes == (soft,)


def test_rays_node_label_strategy_of_seed_000():
    strategy = NodeLabelSchedulingStrategy(
        hard={"ray.io/accelerator-type": NotIn("A100", "T100"), "other_key": Exists()},
        soft={"ray.io/accelerator-type": In("A100")},
    )
    placement = parse_strategies(strategy)
    assert set(placement.node_terms) == {
        label_not_in("ray.io/accelerator-type", ["A100", "T100"]),
        label_exists("other_key"),
    }
    assert placement.node_wishes == (label_in("ray.io/accelerator-type", ["A100"], True),)


def rays(name, **fields):
    return type(name, (SimpleNamespace,), {"__module__": "ray.util.scheduling_strategies"})(**fields)


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        (NodeAffinitySchedulingStrategy("n1"), NodePin("n1", False)),
        (NodeAffinitySchedulingStrategy("n1", soft=True), NodePin("n1", True)),
        (NodeAffinitySchedulingStrategy(node_id="n1", soft=False), NodePin("n1", False)),
        (rays("NodeAffinitySchedulingStrategy", node_id="n1", soft=True), NodePin("n1", True)),
    ],
    ids=["ours", "ours, soft", "ours by keyword", "Ray's own"],
)
def test_a_node_by_its_id_is_a_pin(strategy, want):
    assert parse_strategies(strategy).pin == want


def test_rays_own_node_label_strategy_is_understood_by_its_name():
    exists, wanted = rays("Exists"), rays("In", values=["a"])
    hard = [rays("_LabelMatchExpression", key="gpu", operator=exists)]  # what Ray makes of the mapping that it is given
    soft = [rays("_LabelMatchExpression", key="zone", operator=wanted)]
    strategy = rays("NodeLabelSchedulingStrategy", hard=hard, soft=soft)
    assert parse_strategies(strategy).node_terms == (label_exists("gpu"),)
    assert parse_strategies(strategy).node_wishes == (label_in("zone", ["a"], True),)


@pytest.mark.parametrize(
    ("name", "want"), [("DEFAULT", "DEFAULT"), ("SPREAD", "SPREAD"), ("spread", "SPREAD"), (None, "DEFAULT")]
)
def test_the_policy_is_named_in_any_case(name, want):
    assert parse_strategies(name).policy == want


def test_spread_and_affinity_are_two_dimensions():
    placement = parse_strategies("SPREAD", actor_affinity(LOCATION))
    assert placement.policy == "SPREAD"
    assert placement.affinities == (Affinity(ACTOR, (LOCATION,)),)


def test_affinity_may_be_a_list_of_strategies():
    placement = parse_strategies(None, [actor_affinity(LOCATION), node_affinity(ANY_LOCATION), task_affinity(LOCATION)])
    assert [item.owner for item in placement.affinities] == [ACTOR, TASK]
    assert placement.node_terms == (ANY_LOCATION,)
    assert placement == parse_strategies(None, [task_affinity(LOCATION), node_affinity(ANY_LOCATION), actor_affinity(LOCATION)])


BAD_STRATEGIES = {
    "an unknown name": ("PACKED", None),
    "a number": (5, None),
    "an expression instead of a strategy": (LOCATION, None),
    "a mapping": ({"zone": "a"}, None),
    "a list": ([actor_affinity(LOCATION)], None),
    "affinity is a policy": (None, "SPREAD"),
    "affinity is a policy in a list": (None, ["SPREAD"]),
    "affinity is a policy given twice": ("SPREAD", "SPREAD"),
    "affinity is a number": (None, 5),
    "affinity is a list of expressions": (None, [LOCATION]),
    "two different pins": (NodeAffinitySchedulingStrategy("n1"), NodeAffinitySchedulingStrategy("n2")),
}


@pytest.mark.parametrize(("strategy", "beside"), list(BAD_STRATEGIES.values()), ids=list(BAD_STRATEGIES))
def test_a_bad_strategy_is_refused_with_an_example(strategy, beside):
    with pytest.raises(InvalidStrategyError, match=r"use |for example"):
        parse_strategies(strategy, beside)


@pytest.mark.parametrize("owner", [actor_affinity, task_affinity, node_affinity, ActorAffinitySchedulingStrategy])
@pytest.mark.parametrize("nothing", [[], (), {}, None], ids=repr)
def test_a_strategy_without_an_expression_is_refused(owner, nothing):
    with pytest.raises(InvalidStrategyError, match=r"has no expression: name at least one; for example label_in\("):
        owner(nothing)


def test_symmetric_and_or_exclude_each_other():
    with pytest.raises(InvalidStrategyError, match="not both"):
        actor_affinity([LOCATION, ANY_LOCATION], is_or_semantics=True, symmetric=True)


def test_symmetric_is_not_for_nodes():
    with pytest.raises(InvalidStrategyError, match="nodes have no rules of their own"):
        type(node_affinity(LOCATION))(LOCATION, symmetric=True)


def test_symmetric_is_part_of_the_meaning():
    assert actor_affinity(LOCATION, symmetric=True) != actor_affinity(LOCATION)


def test_softness_of_a_pin_is_true_or_false():
    with pytest.raises(InvalidStrategyError, match=r"soft='yes' is not True or False; for example NodeAffinity"):
        NodeAffinitySchedulingStrategy("n1", soft="yes")  # type: ignore[arg-type]


def test_the_owners_are_actor_task_and_node():
    assert (ACTOR, TASK, NODE) == ("actor", "task", "node")


@pytest.mark.parametrize("wrong", ["never", "", None])
def test_an_unknown_failover_is_refused(wrong: Any):
    with pytest.raises(InvalidStrategyError, match="use 'stay', 'follow' or 'together'"):
        actor_affinity(LOCATION, on_failover=wrong)
