"""Resources in whole ten-thousandths: nothing drifts."""

import pickle
from decimal import Decimal
from fractions import Fraction

import pytest

from remora import InvalidResourceError
from remora.model.resources import EMPTY, Resources, from_units, show_amount, show_amounts, to_ray, to_units

UNITS = {
    0: 0,
    1: 10_000,
    0.5: 5_000,
    0.1: 1_000,
    0.0001: 1,
    0.3: 3_000,
    1.1: 11_000,
    123456.7891: 1_234_567_891,
    Fraction(1, 4): 2_500,
    10**12: 10**16,
}


@pytest.mark.parametrize(("amount", "want"), list(UNITS.items()), ids=repr)
def test_an_amount_in_units(amount, want):
    assert to_units("CPU", amount) == want
    assert from_units(want) == float(amount)


def test_a_tenth_added_ten_times_is_one():
    total = EMPTY
    for _ in range(10):
        total = total + Resources.parse({"CPU": 0.1})
    assert total == Resources.parse({"CPU": 1})
    assert total.to_dict() == {"CPU": 1.0}


def test_a_float_that_is_off_by_its_last_bit_is_what_was_meant():
    assert to_units("CPU", 0.1 + 0.2) == 3_000
    assert to_units("CPU", sum([0.1] * 10)) == 10_000


@pytest.mark.parametrize(("amount", "want"), [(1 / 3, 3_333), (2 / 3, 6_666), (1.00001, 10_000), (0.12345678, 1_234)])
def test_what_is_finer_than_a_unit_is_cut_off_as_ray_does(amount, want):
    assert to_units("CPU", amount) == want


def test_what_ray_is_given_it_counts_as_just_so_many_units():
    for units in [*range(1, 3_000), 12_345, 123_456_789]:
        assert int(to_ray(units) * 10_000) == units  # as its fixed-point numbers do
        assert abs(to_ray(units) - from_units(units)) < 1e-9


def test_numpys_numbers_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert to_units("CPU", numpy.float64(0.5)) == to_units("CPU", numpy.float32(0.5)) == 5_000
    assert to_units("CPU", numpy.int64(2)) == 20_000


BAD = {
    "less than a ten-thousandth": (0.00005, "is less than Ray's unit of 0.0001; for example {'CPU': 0.0001}"),
    "much less than a ten-thousandth": (1e-9, "is less than Ray's unit"),
    "negative": (-1, "is negative; for example {'CPU': 1}"),
    "negative and fractional": (-0.5, "is negative"),
    "negative and tiny": (-1e-9, ""),
    "not a number": (float("nan"), "is not finite"),
    "infinite": (float("inf"), "is not finite"),
    "minus infinite": (float("-inf"), "is not finite"),
    "a fraction beyond every float": (Fraction(10**400, 3), ""),
    "True": (True, "the amount True of CPU is not a number; for example {'CPU': 1}"),
    "False": (False, "is not a number"),
    "a string": ("1", "the amount '1' of CPU is not a number"),
    "None": (None, "is not a number"),
    "a list": ([1], "is not a number"),
    "complex": (1j, "is not a number"),
    "a decimal": (Decimal("0.5"), "is not a number"),
}


@pytest.mark.parametrize(("amount", "want"), list(BAD.values()), ids=list(BAD))
def test_a_bad_amount_is_refused(amount, want):
    with pytest.raises(InvalidResourceError) as caught:
        to_units("CPU", amount)
    assert want in str(caught.value)
    assert "CPU" in str(caught.value)


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ([], "must be a mapping of names to amounts, not []; for example {'CPU': 1}"),
        ("CPU", "must be a mapping"),
        (1, "must be a mapping"),
        ({"": 1}, "the resource name '' is not a non-empty string"),
        ({1: 1}, "the resource name 1 is not a non-empty string; for example {'CPU': 1}"),
        ({None: 1}, "the resource name None"),
        ({"remora/class/x": 1}, "begins with 'remora/', which is reserved; choose another, for example 'class/x'"),
        ({"remora/": 1}, "for example 'my_resource'"),
    ],
    ids=repr,
)
def test_bad_resources_are_refused(resources, want):
    with pytest.raises(InvalidResourceError) as caught:
        Resources.parse(resources)
    assert want in str(caught.value)


@pytest.mark.parametrize("name", ["remora", "remora_gpu", "my/remora/x", "CPU", "accelerator_type:A100"])
def test_only_the_prefix_is_reserved(name):
    assert Resources.parse({name: 1})[name] == 10_000


def test_a_zero_says_nothing():
    assert Resources.parse({"CPU": 0, "GPU": 1}) == Resources.parse({"GPU": 1})
    assert not Resources.parse({"CPU": 0.0})
    assert Resources.parse(None) == EMPTY


def test_equal_resources_hash_equal_whatever_their_order():
    one, two = Resources.parse({"CPU": 1, "GPU": 2}), Resources.parse({"GPU": 2.0, "CPU": 1.0, "x": 0})
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    ("need", "have", "want"),
    [
        ({"CPU": 1}, {"CPU": 1}, True),
        ({"CPU": 1}, {"CPU": 0.9999}, False),
        ({"CPU": 1, "GPU": 1}, {"CPU": 4}, False),
        ({}, {}, True),
        ({"CPU": 0}, {}, True),
    ],
)
def test_fits_in(need, have, want):
    assert Resources.parse(need).fits_in(Resources.parse(have)) is want


@pytest.mark.parametrize(
    ("units", "want"), [(10_000, "1"), (5_000, "0.5"), (1, "0.0001"), (12_500, "1.25"), (0, "0"), (-5_000, "-0.5")]
)
def test_an_amount_is_shown_as_its_shortest_decimal(units, want):
    assert show_amount(units) == want


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({}, "nothing"),
        ({"CPU": 1}, "1 CPU"),
        ({"GPU": 2, "CPU": 0.5}, "0.5 CPU and 2 GPU"),
        ({"GPU": 2, "CPU": 1, "mem": 3}, "1 CPU, 2 GPU and 3 mem"),
    ],
)
def test_amounts_are_shown_as_a_list(resources, want):
    assert show_amounts(Resources.parse(resources)) == want
