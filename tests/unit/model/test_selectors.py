"""Label selectors: every spelling, what it matches, and what is said about a near miss."""

import contextlib
import itertools
import sys
from types import SimpleNamespace

import pytest

from remora import (
    DoesNotExist,
    Exist,
    Exists,
    In,
    InvalidLabelError,
    InvalidSelectorError,
    LabelMatchExpression,
    LabelMatchOperator,
    LabelSelector,
    NotIn,
    label_does_not_exist,
    label_exist,
    label_exists,
    label_in,
    label_not_in,
)
from remora.model.operators import check_values, parse_condition, parse_operator, show_condition

A, B, LACKS = {"k": "a"}, {"k": "b"}, {"other": "a"}

# text: what it says about a node with k=a, with k=b, without k
STRINGS = {
    "a": (True, False, False),
    "  a ": (True, False, False),
    "a\n": (True, False, False),
    "!a": (False, True, True),
    "! a": (False, True, True),
    "in(a)": (True, False, False),
    "in(a,b)": (True, True, False),
    "in( a , b )": (True, True, False),
    "IN(a,b)": (True, True, False),
    "In (a, b)": (True, True, False),
    "iN\t(\ta\t)": (True, False, False),
    "in(b,c)": (False, True, False),
    "!in(a,b)": (False, False, True),
    "!in(b)": (True, False, True),
    "! IN ( b ) ": (True, False, True),
    "exists()": (True, True, False),
    "EXISTS()": (True, True, False),
    "exists( )": (True, True, False),
    "Exists ()": (True, True, False),
    "exist()": (True, True, False),
    "!exists()": (False, False, True),
    "!EXISTS()": (False, False, True),
    " ! exists ( ) ": (False, False, True),
    "exists": (False, False, False),
    "A": (False, False, False),
}


@pytest.mark.parametrize(("text", "want"), list(STRINGS.items()), ids=[repr(text) for text in STRINGS])
def test_a_string_operator_matches_a_node_with_the_value_another_value_or_without_the_key(text, want):
    selector = LabelSelector({"k": text})
    assert (selector.matches(A), selector.matches(B), selector.matches(LACKS)) == want


@pytest.mark.parametrize("text", ["!a", "!in(a, b)", "!exists()"])
def test_a_negation_matches_a_node_that_lacks_the_key(text):
    assert LabelSelector({"k": text}).matches({})


@pytest.mark.parametrize("text", ["a", "in(a, b)", "exists()", ""])
def test_what_wants_a_label_refuses_a_node_that_lacks_the_key(text):
    assert not LabelSelector({"k": text}).matches({})


def test_the_empty_string_wants_the_empty_value():
    assert LabelSelector({"k": ""}).matches({"k": ""})
    assert not LabelSelector({"k": ""}).matches({"k": "a"})


def test_values_keep_their_case():
    assert LabelSelector({"k": "IN(Abc)"}).matches({"k": "Abc"})
    assert not LabelSelector({"k": "IN(Abc)"}).matches({"k": "abc"})


@pytest.mark.parametrize("nothing", [None, {}, [], ()], ids=repr)
def test_an_empty_selector_matches_everything(nothing):
    selector = LabelSelector(nothing)
    assert selector.matches({})
    assert selector.matches(A)
    assert not selector


def test_all_terms_must_hold():
    selector = LabelSelector({"zone": "in(a, b)", "tier": "!spot", "gpu": "exists()"})
    assert selector.matches({"zone": "a", "gpu": "1"})
    assert not selector.matches({"zone": "a"})
    assert not selector.matches({"zone": "a", "gpu": "1", "tier": "spot"})


def test_two_terms_may_ask_about_one_key():
    selector = LabelSelector([label_exists("k", False), label_not_in("k", ["a"], False)])
    assert selector.matches(B)
    assert not selector.matches(A)
    assert not selector.matches(LACKS)


CLASSES = {
    "In('a')": (In("a"), "a"),
    "In('a', 'b')": (In("a", "b"), "in(a, b)"),
    "In(['a', 'b'])": (In(["a", "b"]), "in(a, b)"),
    "In({'a'})": (In({"a"}), "a"),
    "In(('b', 'a', 'b'))": (In(("b", "a", "b")), "in(a, b)"),
    "NotIn('a')": (NotIn("a"), "!a"),
    "NotIn('a', 'b')": (NotIn("a", "b"), "!in(a, b)"),
    "Exists()": (Exists(), "exists()"),
    "Exist(), the spelling of seed 002": (Exist(), "exists()"),
    "DoesNotExist()": (DoesNotExist(), "!exists()"),
}


@pytest.mark.parametrize(("operator", "text"), list(CLASSES.values()), ids=list(CLASSES))
def test_an_operator_class_and_its_string_are_one_selector(operator, text):
    by_class, by_text = LabelSelector({"k": operator}), LabelSelector({"k": text})
    assert by_class == by_text
    assert hash(by_class) == hash(by_text)


def class_of_another_module(name, **fields):
    return type(name, (SimpleNamespace,), {"__module__": "ray.util.scheduling_strategies"})(**fields)


@pytest.mark.parametrize(
    ("foreign", "want"),
    [
        (class_of_another_module("In", values=["b", "a"]), "in(a, b)"),
        (class_of_another_module("NotIn", values=["a"]), "!a"),
        (class_of_another_module("Exists"), "exists()"),
        (class_of_another_module("DoesNotExist"), "!exists()"),
    ],
    ids=["In", "NotIn", "Exists", "DoesNotExist"],
)
def test_rays_own_class_of_that_name_is_understood_without_importing_ray(foreign, want):
    assert LabelSelector({"k": foreign}) == LabelSelector({"k": want})


def test_operator_classes_compare_by_value():
    assert In("a", "b") == In(["b", "a"])
    assert hash(In("a", "b")) == hash(In("b", "a"))
    assert In("a") != NotIn("a")
    assert In("a") != In("b")
    assert Exists() == Exist()
    assert Exists() != DoesNotExist()
    assert repr(In("b", "a")) == "In('a', 'b')"


@pytest.mark.parametrize("operator", [In, NotIn])
@pytest.mark.parametrize("nothing", [(), ([],), ((),)], ids=["nothing", "an empty list", "an empty tuple"])
def test_an_operator_class_without_a_value_is_refused(operator, nothing):
    with pytest.raises(InvalidSelectorError, match=r"has no value: name at least one; for example (Not)?In\('a', 'b'\)"):
        operator(*nothing)


@pytest.mark.parametrize("value", [1, None, "a b", ["a"]], ids=repr)
def test_an_operator_class_checks_its_values(value):
    with pytest.raises(InvalidLabelError):
        In("a", value)


def test_the_enum_has_the_typo_of_seed_001_as_an_alias():
    assert LabelMatchOperator.Exist is LabelMatchOperator.EXISTS


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("IN", LabelMatchOperator.IN),
        ("in", LabelMatchOperator.IN),
        ("NOT_IN", LabelMatchOperator.NOT_IN),
        ("NotIn", LabelMatchOperator.NOT_IN),
        ("EXISTS", LabelMatchOperator.EXISTS),
        ("exist", LabelMatchOperator.EXISTS),
        ("does_not_exist", LabelMatchOperator.DOES_NOT_EXIST),
        (LabelMatchOperator.IN, LabelMatchOperator.IN),
    ],
)
def test_an_operator_is_named_in_any_case(name, want):
    assert parse_operator(name) is want


@pytest.mark.parametrize("bad", ["GT", "", None, 1, "in(a)", []], ids=repr)
def test_an_unknown_operator_is_refused(bad):
    with pytest.raises(InvalidSelectorError, match="use IN, NOT_IN, EXISTS or DOES_NOT_EXIST"):
        parse_operator(bad)


IN = LabelMatchOperator.IN
SPELLINGS_OF_TYPE_IN_CAT = {
    "a mapping with a plain string": {"type": "cat"},
    "a mapping with in()": {"type": "IN( cat )"},
    "a mapping with a repeated value": {"type": "in(cat, cat)"},
    "a mapping with In": {"type": In("cat")},
    "label_in": label_in("type", ["cat"], False),
    "label_in in a list": [label_in("type", ["cat"], False)],
    "label_in twice": [label_in("type", ["cat"]), label_in("type", ["cat"])],
    "label_in with a tuple of values": label_in("type", ("cat",)),
    "label_in with a generator": label_in("type", (value for value in ["cat"])),
    "a tuple of four": ("type", IN, ["cat"], False),
    "a tuple of three": ("type", IN, ["cat"]),
    "a tuple of three with the operator's name": ("type", "in", ["cat"]),
    "a list of tuples": [("type", IN, ["cat"], False)],
    "a list of lists": [["type", IN, ["cat"], False]],
    "LabelMatchExpression by position": LabelMatchExpression("type", IN, ["cat"], False),
    "LabelMatchExpression with match_operator= and is_soft=": LabelMatchExpression(
        key="type", match_operator="IN", values=["cat"], is_soft=False
    ),
    "LabelMatchExpression with operator= and soft=": LabelMatchExpression("type", operator=IN, values=["cat"], soft=False),
    "a query": "type in [cat]",
    "a query with =": "type = cat",
    "a selector": LabelSelector({"type": "cat"}),
}


@pytest.mark.parametrize("spelling", list(SPELLINGS_OF_TYPE_IN_CAT.values()), ids=list(SPELLINGS_OF_TYPE_IN_CAT))
def test_every_spelling_of_one_selector_is_equal_and_hashes_equal(spelling):
    want = LabelSelector({"type": "cat"})
    assert LabelSelector(spelling) == want
    assert hash(LabelSelector(spelling)) == hash(want)
    assert LabelSelector(spelling).terms == want.terms


def test_the_order_of_terms_and_values_plays_no_part():
    assert LabelSelector({"a": "in(x, y)", "b": "z"}) == LabelSelector({"b": "z", "a": "in(y, x)"})


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (label_in("k", ["a"], False), "a"),
        (label_not_in("k", ["a"], False), "!a"),
        (label_exists("k", False), "exists()"),
        (label_exist("k", False), "exists()"),
        (label_does_not_exist("k", False), "!exists()"),
        (("k", LabelMatchOperator.EXISTS), "exists()"),
        (("k", LabelMatchOperator.Exist), "exists()"),
        (("k", LabelMatchOperator.EXISTS, None, False), "exists()"),
        (("k", LabelMatchOperator.EXISTS, [], False), "exists()"),
        (("k", LabelMatchOperator.DOES_NOT_EXIST, []), "!exists()"),
    ],
)
def test_helpers_and_tuples_say_what_the_strings_say(expression, want):
    assert LabelSelector(expression) == LabelSelector({"k": want})


# A near miss, why it is refused, what was probably meant.
NEAR_MISSES = {
    "(a,b)": ("it has no operator", "in(a, b)"),
    "!(a)": ("it has no operator", "!in(a)"),
    "in()": ("in() names no value", "in(a, b)"),
    "in(a,": ("its parentheses do not match", "in(a)"),
    "in(a,b": ("its parentheses do not match", "in(a, b)"),
    "!in(a": ("its parentheses do not match", "!in(a)"),
    "in((a))": ("its parentheses do not match", "in(a)"),
    "in(a))": ("its parentheses do not match", "in(a)"),
    "exists(": ("its parentheses do not match", "exists()"),
    "!exists(": ("its parentheses do not match", "!exists()"),
    "in(a)b": ("its parentheses do not match", "in(a, b)"),
    "in(a,,b)": ("it has an empty entry (the empty value is written '')", "in(a, b)"),
    "in(a,b,)": ("it has an empty entry (the empty value is written '')", "in(a, b)"),
    "!!a": ("it is negated twice", "a"),
    "! ! a": ("it is negated twice", "a"),
    "!": ("it negates nothing", "!exists()"),
    "a,b": ("it is more than one value", "in(a, b)"),
    "a b": ("it is more than one value", "in(a, b)"),
    "!a,b": ("it is more than one value", "!in(a, b)"),
    "not_in(a)": ("there is no operator 'not_in'", "!in(a)"),
    "not in(a, b)": ("there is no operator 'not in'", "!in(a, b)"),
    "notin(a)": ("there is no operator 'notin'", "!in(a)"),
    "nin(a)": ("there is no operator 'nin'", "!in(a)"),
    "equals(a)": ("there is no operator 'equals'", "in(a)"),
    "exists(a)": ("exists() takes no values, but got 'a'", "exists()"),
    "!exists(a)": ("exists() takes no values, but got 'a'", "!exists()"),
    "does_not_exist()": ("there is no operator 'does_not_exist'", "!exists()"),
    "doesnotexist()": ("there is no operator 'doesnotexist'", "!exists()"),
}


@pytest.mark.parametrize(("text", "want"), list(NEAR_MISSES.items()), ids=[repr(text) for text in NEAR_MISSES])
def test_a_near_miss_is_refused_with_a_hint(text, want):
    why, hint = want
    with pytest.raises(InvalidSelectorError) as caught:
        LabelSelector({"zone": text})
    assert str(caught.value) == (
        f"the condition {text!r} under 'zone' cannot be read: {why}; did you mean {hint}? "
        "Allowed are 'a', '!a', 'in(a, b)', '!in(a, b)', 'exists()', '!exists()'"
    )


def hint_of(text):
    with pytest.raises(InvalidSelectorError) as caught:
        LabelSelector({"zone": text})
    return str(caught.value).partition("did you mean ")[2].partition("? Allowed")[0]


@pytest.mark.parametrize("text", [*NEAR_MISSES, ",", "!,", ", ,", "()", "!()", ")", "in(,)", "in(in(a), b)"], ids=repr)
def test_a_hint_is_itself_a_condition_that_can_be_read(text):
    assert LabelSelector({"zone": hint_of(text)})


BAD_VALUES = {
    "64 characters": ("v" * 64, "it has 64 characters"),
    "64 characters in a list": (f"in(a, {'v' * 64})", "it has 64 characters"),
    "64 characters, negated": ("!" + "v" * 64, "it has 64 characters"),
    "square brackets": ("in[a]", r"it contains '\['"),
    "an equals sign": ("=a", "it contains '='"),
    "not ASCII": ("in(é)", "it contains 'é'"),
    "a trailing dash": ("a-", "it begins or ends with '-'"),
    "a bang inside a list": ("in(!a)", "it contains '!'"),
}


@pytest.mark.parametrize(("text", "want"), list(BAD_VALUES.values()), ids=list(BAD_VALUES))
def test_a_bad_value_is_refused_and_the_key_is_named(text, want):
    with pytest.raises(InvalidSelectorError, match=f"under 'zone': label value .*{want}"):
        LabelSelector({"zone": text})


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        (["a", "b"], "; did you mean in(a, b)?"),
        (("a",), "; did you mean a?"),
        (["a", 1], ""),
        ([], ""),
        (None, ""),
        (1, ""),
        (True, ""),
        (Exists, ""),
        (b"a", ""),
    ],
    ids=repr,
)
def test_a_condition_that_is_neither_string_nor_operator_is_refused(condition, hint):
    with pytest.raises(InvalidSelectorError) as caught:
        LabelSelector({"zone": condition})
    assert "under 'zone' is neither a string nor an operator" in str(caught.value)
    assert str(caught.value).endswith(f"In('a'), NotIn('a'), Exists(), DoesNotExist(){hint}")


BAD_SELECTORS = {
    "a number": 5,
    "True": True,
    "a list of numbers": [5],
    "a list of None": [None],
    "a list of strings": ["zone"],
    "an expression of one part": [("zone",)],
    "an expression of six parts": [("zone", IN, ["a"], False, None, None)],
    "an empty expression": [()],
    "values that are one string": [("zone", IN, "a")],
    "values that are a number": [("zone", IN, 5)],
    "IN without values": [("zone", IN)],
    "IN with an empty list": [("zone", IN, [])],
    "EXISTS with values": [("zone", LabelMatchOperator.EXISTS, ["a"])],
    "an unknown operator": [("zone", "like", ["a"])],
    "softness that is no bool": [("zone", IN, ["a"], "no")],
    "softness that is 0": [("zone", IN, ["a"], 0)],
    "a bad key": {"a b": "c"},
    "a key that is no string": {1: "c"},
    "a value that is no string": [("zone", IN, [1])],
}


@pytest.mark.parametrize("selector", list(BAD_SELECTORS.values()), ids=list(BAD_SELECTORS))
def test_a_malformed_selector_is_a_value_error_with_an_example(selector):
    with pytest.raises((InvalidSelectorError, InvalidLabelError)) as caught:
        LabelSelector(selector)
    assert "for example" in str(caught.value) or "give " in str(caught.value)


def test_a_soft_expression_is_refused_where_only_hard_ones_can_stand():
    with pytest.raises(InvalidSelectorError, match=r"hard expressions only.*fallback_strategy"):
        LabelSelector(label_in("zone", ["a"], True))


def test_an_operator_given_twice_and_differently_is_refused():
    with pytest.raises(ValueError, match="operator"):
        LabelMatchExpression("k", "IN", ["a"], match_operator="NOT_IN")


def test_an_expression_knows_hard_from_soft():
    hard, soft = label_in("k", ["a"], False), label_in("k", ["a"], True)
    assert hard != soft
    assert (hard.hard, hard.soft, soft.hard, soft.soft) == (True, False, False, True)
    assert soft.hardened() == hard


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (label_in("type", ["cat"]), "type=cat"),
        (label_in("type", ["dog", "cat"]), "type in (cat, dog)"),
        (label_not_in("type", ["cat"]), "type!=cat"),
        (label_not_in("type", ["cat", "dog"]), "type not in (cat, dog)"),
        (label_exists("type"), "any type"),
        (label_does_not_exist("type"), "no type"),
    ],
)
def test_an_expression_reads_as_people_say_it(expression, want):
    assert expression.show() == want


def test_a_selector_reads_as_people_say_it():
    assert str(LabelSelector({"zone": "a", "gpu": "exists()"})) == "any gpu and zone=a"
    assert str(LabelSelector()) == "everything"


EVERY_CONDITION = [
    *((operator, values) for operator in ("IN", "NOT_IN") for values in [("a",), ("a", "b"), ("",), ("", "a")]),
    ("EXISTS", ()),
    ("DOES_NOT_EXIST", ()),
]


@pytest.mark.parametrize(("name", "values"), EVERY_CONDITION, ids=[f"{name}{values}" for name, values in EVERY_CONDITION])
def test_the_string_form_of_a_condition_says_the_same_when_read_again(name, values):
    condition = (LabelMatchOperator[name], values)
    assert parse_condition("k", show_condition(*condition)) == condition


def test_a_selector_survives_its_string_form():
    selector = LabelSelector({"zone": In("a", "b"), "tier": NotIn("spot"), "gpu": Exists(), "old": DoesNotExist()})
    assert LabelSelector(selector.to_dict()) == selector


def test_given_leaves_only_what_is_not_certain():
    selector = LabelSelector({"zone": "a", "tier": "b"})
    assert selector.given({"zone": "a"}) == LabelSelector({"tier": "b"})
    assert selector.given({"zone": "x"}) is None
    assert selector.given({}) is selector


def test_without_drops_one_term():
    selector = LabelSelector({"zone": "a", "tier": "b"})
    assert selector.without(label_in("zone", ["a"])) == LabelSelector({"tier": "b"})


def test_values_are_sorted_and_distinct():
    assert check_values("k", IN, ["b", "a", "b"]) == ("a", "b")


# Hostile input. Bytecodes are counted, not seconds, so the answer is the same on a busy machine.


def work_of(call):
    """How many bytecodes ``call`` takes."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def try_to_read(make):
    with contextlib.suppress(ValueError):
        LabelSelector(make)


HOSTILE = {
    "bangs": lambda n: {"k": "!" * n},
    "bangs and spaces": lambda n: {"k": "! " * n},
    "opening parentheses": lambda n: {"k": "in" + "(" * n},
    "closing parentheses": lambda n: {"k": "in(" + ")" * n},
    "commas": lambda n: {"k": "in(" + "," * n + ")"},
    "commas without in": lambda n: {"k": "," * n},
    "many values": lambda n: {"k": f"in({','.join(map(str, range(n)))})"},
    "spaces": lambda n: {"k": " " * n + "a" + " " * n},
    "spaces inside": lambda n: {"k": "a" + " " * n + "b"},
    "one long value": lambda n: {"k": "a" * n + "!"},
    "a long key": lambda n: {"a" * n: "b"},
    "a long prefix": lambda n: {"a." * n + "/b": "c"},
    "a long operator name": lambda n: {"k": "x" * n + "(a)"},
    "dashes": lambda n: {"k": "-" * n},
    "a query of many clauses": lambda n: " and ".join(["a = b"] * (n // 10)),
    "a query of many values": lambda n: f"a in [{', '.join(['b'] * (n // 4))}]",
    "a query of equals signs": lambda n: "a " + "=" * n,
    "a query of bangs": lambda n: "a " + "!=" * (n // 2),
    "a query of quotes": lambda n: "a = " + "'" * n,
    "a query of brackets": lambda n: "a in " + "[" * n,
}


@pytest.mark.parametrize("hostile", list(HOSTILE.values()), ids=list(HOSTILE))
def test_twice_the_input_is_at_most_twice_the_work(hostile):
    sizes = (500, 1000, 2000)
    inputs = [hostile(size) for size in sizes]
    try_to_read(inputs[0])  # once before counting, so that caches are warm
    work = [work_of(lambda given=given: try_to_read(given)) for given in inputs]
    for smaller, larger in itertools.pairwise(work):
        assert larger <= 2.2 * smaller + 200, work


@pytest.mark.parametrize("hostile", list(HOSTILE.values()), ids=list(HOSTILE))
def test_a_message_about_a_long_input_stays_short(hostile):
    message = ""
    try:
        LabelSelector(hostile(5000))
    except ValueError as error:
        message = str(error)
    assert len(message) < 1000
