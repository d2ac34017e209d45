"""What somebody may have meant."""

import pytest

from remora.model.close_names import close_name, did_you_mean

KNOWN = ["labels", "tolerations", "label_selector"]


@pytest.mark.parametrize(
    ("name", "want"),
    [("tolerance", "tolerations"), ("label", "labels"), ("label_select", "label_selector"), ("xyzzy", None), ("", "labels")],
)
def test_the_closest_name(name, want):
    assert close_name(name, KNOWN) == want


def test_what_is_said():
    assert did_you_mean("toleration", KNOWN) == ": did you mean 'tolerations'?"
    assert did_you_mean("xyzzy", KNOWN) == ""
