"""Labels: Kubernetes' syntax, with underscores in the prefix."""

import pytest

import remora
from remora.model.labels import parse_label_keys, parse_labels, parse_workload_labels, show_labels

GOOD_KEYS = {
    "one letter": "a",
    "one digit": "0",
    "mixed case and all signs": "A-b_c.D9",
    "exactly 63 characters": "a" * 63,
    "a DNS prefix": "ray.io/accelerator-type",
    "an underscore in the prefix, as in rare_resource.ray.io": "rare_resource.ray.io/gpu",
    "a prefix of one part": "a/b",
    "a prefix of digits": "0.1/x",
    "a prefix of exactly 253 characters": "a" * 253 + "/x",
    "a dash inside a prefix part": "my-team.example/x",
    "two underscores in the name": "a__b",
}

BAD_KEYS = {
    "is empty": "",
    "has 64 characters": "a" * 64,
    "begins with a dash": "-a",
    "ends with a dash": "a-",
    "begins with an underscore": "_a",
    "ends with a dot": "a.",
    "has a space inside": "a b",
    "ends with a newline": "a\n",
    "begins with a newline": "\na",
    "has a newline before the slash": "a\n/b",
    "has a NUL": "a\0b",
    "has a letter that is not ASCII": "zoné",
    "has a digit that is not ASCII": "a٣",
    "has a full-width letter": "\uff41",
    "has an empty prefix": "/a",
    "has an empty name": "a/",
    "is only a slash": "/",
    "has two slashes": "a/b/c",
    "has a prefix of 254 characters": "a" * 254 + "/x",
    "has an upper-case prefix": "Ray.io/x",
    "has an empty prefix part": "ray..io/x",
    "has a prefix that ends with a dot": "ray./x",
    "has a prefix part that ends with a dash": "ray-.io/x",
    "has a prefix part that begins with an underscore": "_ray.io/x",
    "has a prefix that is not ASCII": "ré.io/x",
    "has an equals sign": "a=b",
    "has a comma": "a,b",
}

NOT_STRINGS = {"None": None, "a number": 1, "bytes": b"a", "a list": ["a"], "True": True, "a float": 1.5}

GOOD_VALUES = {
    "empty": "",
    "one letter": "a",
    "a digit": "0",
    "exactly 63 characters": "v" * 63,
    "mixed case and all signs": "A-b_c.D9",
    "a version number": "1.2.3",
}

BAD_VALUES = {
    "has 64 characters": "v" * 64,
    "begins with a dash": "-a",
    "ends with an underscore": "a_",
    "is a dot": ".",
    "has a space": "a b",
    "is a space": " ",
    "ends with a newline": "a\n",
    "is a newline": "\n",
    "has a slash": "a/b",
    "has a letter that is not ASCII": "ü",
    "has a star": "*",
    "has a parenthesis": "in(a)",
    "has a bang": "!a",
}


def by_name(table):
    return pytest.mark.parametrize("given", list(table.values()), ids=list(table))


@by_name(GOOD_KEYS)
def test_a_good_key_comes_back_as_it_is(given):
    assert remora.validate_label_key(given) == given


@by_name(BAD_KEYS)
def test_a_bad_key_is_refused_with_the_rule_and_an_example(given):
    with pytest.raises(remora.InvalidLabelError, match="label key") as caught:
        remora.validate_label_key(given)
    assert "for example 'zone' or 'ray.io/accelerator-type'" in str(caught.value)
    assert repr(given[:70])[:-1] in str(caught.value)


@by_name(NOT_STRINGS)
def test_a_key_that_is_no_string_is_refused(given):
    with pytest.raises(remora.InvalidLabelError, match=f"is a {type(given).__name__}"):
        remora.validate_label_key(given)


@by_name(GOOD_VALUES)
def test_a_good_value_comes_back_as_it_is(given):
    assert remora.validate_label_value(given) == given


@by_name(BAD_VALUES)
def test_a_bad_value_is_refused_with_the_rule_and_an_example(given):
    with pytest.raises(remora.InvalidLabelError, match="label value") as caught:
        remora.validate_label_value(given)
    assert "for example 'us-west4-a'" in str(caught.value)
    assert repr(given) in str(caught.value)


@by_name(NOT_STRINGS)
def test_a_value_that_is_no_string_is_refused(given):
    with pytest.raises(remora.InvalidLabelError, match="not a string"):
        remora.validate_label_value(given)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("v" * 64, "(it has 64 characters)"),
        ("a b", "(it contains ' ')"),
        ("-a", "(it begins or ends with '-')"),
        ("a_", "(it begins or ends with '_')"),
        ("a\n", r"(it contains '\n')"),
    ],
)
def test_the_message_points_at_the_first_flaw(given, want):
    with pytest.raises(remora.InvalidLabelError) as caught:
        remora.validate_label_value(given)
    assert want in str(caught.value)


def test_an_empty_name_is_called_empty():
    with pytest.raises(remora.InvalidLabelError, match="it is empty"):
        remora.validate_label_key("ray.io/")


def test_a_very_long_key_is_shortened_in_the_message():
    with pytest.raises(remora.InvalidLabelError) as caught:
        remora.validate_label_key("k" * 100_000)
    assert len(str(caught.value)) < 800


def test_an_invalid_label_error_is_a_value_error():
    assert issubclass(remora.InvalidLabelError, ValueError)


def test_labels_are_sorted_by_key():
    assert parse_labels({"b": "2", "a": "1"}) == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_labels_are_no_labels(nothing):
    assert parse_labels(nothing) == ()


@pytest.mark.parametrize("given", ["a=b", ["a"], 5, [], 0, "", False], ids=repr)
def test_labels_that_are_no_mapping_are_refused(given):
    with pytest.raises(remora.InvalidLabelError, match="must be a mapping"):
        parse_labels(given)


def test_the_label_actor_id_belongs_to_remora():
    with pytest.raises(remora.InvalidLabelError, match="'actor_id' is set by Remora"):
        parse_workload_labels({"actor_id": "x"})


@pytest.mark.parametrize("given", ["zone", 5, None], ids=repr)
def test_label_keys_are_a_list(given):
    with pytest.raises(remora.InvalidLabelError, match="must be a list of label keys"):
        parse_label_keys(given)


def test_label_keys_may_be_any_iterable():
    assert parse_label_keys(key for key in ("a", "b")) == ("a", "b")


def test_labels_are_shown_as_people_write_them():
    assert show_labels({"zone": "a", "tier": "spot"}) == show_labels((("zone", "a"), ("tier", "spot"))) == "zone=a,tier=spot"
