"""The SQL-like string of seed 001, option 4."""

import pytest

from remora import InvalidSelectorError, LabelMatchOperator, LabelSelector
from remora.model.query import parse_query

IN, NOT_IN = LabelMatchOperator.IN, LabelMatchOperator.NOT_IN
EXISTS, DOES_NOT_EXIST = LabelMatchOperator.EXISTS, LabelMatchOperator.DOES_NOT_EXIST

ONE_CLAUSE = {
    "location in [dc_1, dc_2]": ("location", IN, ("dc_1", "dc_2")),
    "location in (dc_1, dc_2)": ("location", IN, ("dc_1", "dc_2")),
    "location IN [dc_1,dc_2]": ("location", IN, ("dc_1", "dc_2")),
    "  location   in[dc_1]  ": ("location", IN, ("dc_1",)),
    "location in ['dc_1', \"dc_2\"]": ("location", IN, ("dc_1", "dc_2")),
    "location not in [dc_1]": ("location", NOT_IN, ("dc_1",)),
    "location Not In [dc_1]": ("location", NOT_IN, ("dc_1",)),
    "location = dc_1": ("location", IN, ("dc_1",)),
    "location=dc_1": ("location", IN, ("dc_1",)),
    "location == dc_1": ("location", IN, ("dc_1",)),
    "location==dc_1": ("location", IN, ("dc_1",)),
    "location != dc_1": ("location", NOT_IN, ("dc_1",)),
    "location!=dc_1": ("location", NOT_IN, ("dc_1",)),
    "location = ''": ("location", IN, ("",)),
    "location exists": ("location", EXISTS, ()),
    "location EXIST": ("location", EXISTS, ()),
    "location not exists": ("location", DOES_NOT_EXIST, ()),
    "ray.io/zone in [a]": ("ray.io/zone", IN, ("a",)),
    "location\nin\t[dc_1]": ("location", IN, ("dc_1",)),
    "and in [a]": ("and", IN, ("a",)),
}


@pytest.mark.parametrize(("text", "want"), list(ONE_CLAUSE.items()), ids=list(ONE_CLAUSE))
def test_one_clause(text, want):
    assert parse_query(text) == ([(*want, "")], False)


@pytest.mark.parametrize(("text", "want"), list(ONE_CLAUSE.items()), ids=list(ONE_CLAUSE))
def test_one_clause_within_a_domain(text, want):
    assert parse_query(f"{text} within zone") == ([(*want, "zone")], False)
    assert parse_query(f"{text} WITHIN ray.io/availability-zone and x exists")[0][0] == (*want, "ray.io/availability-zone")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a = 1 and b != 2", ([("a", IN, ("1",)), ("b", NOT_IN, ("2",))], False)),
        ("a = 1 AND b exists AND c not exists", ([("a", IN, ("1",)), ("b", EXISTS, ()), ("c", DOES_NOT_EXIST, ())], False)),
        ("a = 1 or b = 2", ([("a", IN, ("1",)), ("b", IN, ("2",))], True)),
    ],
)
def test_several_clauses(text, want):
    clauses, any_of = want
    assert parse_query(text) == ([(*clause, "") for clause in clauses], any_of)


BAD = {
    "": "it ends where a label key belongs",
    "   ": "it ends where a label key belongs",
    "location": "it ends where 'in', 'not in', 'exists', '=' or '!=' belongs",
    "location in": "it ends where '[' belongs",
    "location in dc_1": "'dc_1' stands where '[' belongs",
    "location in []": "']' stands where a value belongs",
    "location in [a": "it ends where ',' or ']' belongs",
    "location in [a,": "it ends where a value belongs",
    "location in [a,]": "']' stands where a value belongs",
    "location in [a b]": "'b' stands where ']' belongs",
    "location in [a)": "')' stands where ']' belongs",
    "location in (a]": "']' stands where ')' belongs",
    "location like a": "'like' is no operator",
    "location not like a": "'like' is no operator",
    "location not": "it ends where 'in' or 'exists' belongs",
    "location =": "it ends where a value belongs",
    "location = = a": "'=' stands where a value belongs",
    "a = 1 b = 2": "'b' stands where 'and', 'or' or 'within' belongs",
    "a = 1 within": "it ends where a label of nodes belongs",
    "a = 1 within and b = 2": "'and' stands where a label of nodes belongs",
    "a = 1 within [zone]": "'[' stands where a label of nodes belongs",
    "a = 1 and": "it ends where a label key belongs",
    "a = 1 and b = 2 or c = 3": "'and' and 'or' are mixed",
}


@pytest.mark.parametrize(("text", "want"), list(BAD.items()), ids=list(BAD))
def test_a_bad_query_says_where_and_gives_an_example(text, want):
    with pytest.raises(InvalidSelectorError) as caught:
        parse_query(text)
    assert want in str(caught.value)
    assert "for example 'location in [dc_1, dc_2] and tier != spot'" in str(caught.value)


@pytest.mark.parametrize("text", ["a === b", "a !== b"])
def test_an_operator_of_three_signs_is_refused(text):
    with pytest.raises(InvalidSelectorError):
        parse_query(text)


def test_a_query_of_more_than_ten_thousand_characters_is_refused_before_it_is_read():
    with pytest.raises(InvalidSelectorError, match="has 10001 characters; at most 10000 are read"):
        parse_query("a" * 10_001)


def test_a_query_with_a_bad_label_is_refused():
    with pytest.raises(ValueError, match="label value"):
        LabelSelector("zone in [a!]")


def test_a_query_and_a_mapping_are_one_selector():
    assert LabelSelector("zone in [a, b] and tier != spot") == LabelSelector({"zone": "in(a, b)", "tier": "!spot"})


def test_a_selector_refuses_or():
    with pytest.raises(InvalidSelectorError, match="is_or_semantics=True"):
        LabelSelector("zone = a or zone = b")
