"""Taints as labels with a reserved prefix, and what tolerates them."""

import pytest

from remora import DoesNotExist, Exist, Exists, In, InvalidTaintError, NotIn, Tolerations
from remora.model.taints import parse_taints, rare_resource_taint, split_taints, taint_key, taint_label

ENCODED = {
    "gpu_node": "taint.remora.io/gpu_node",
    "memory-pressure": "taint.remora.io/memory-pressure",
    "a.b/c": "a.b.taint.remora.io/c",
    "rare_resource.ray.io/gpu": "rare_resource.ray.io.taint.remora.io/gpu",
    "ray.io/x": "ray.io.taint.remora.io/x",
}


@pytest.mark.parametrize(("key", "label"), list(ENCODED.items()), ids=list(ENCODED))
def test_a_taint_is_a_label_and_back(key, label):
    assert taint_label(key) == label
    assert taint_key(label) == key


@pytest.mark.parametrize(
    "label", ["gpu_node", "ray.io/gpu_node", "remora.io/x", "xtaint.remora.io/x", "taint.remora.io", "taint.remora.io.a/x"]
)
def test_an_ordinary_label_is_no_taint(label):
    assert taint_key(label) is None


def test_a_nodes_labels_are_split_into_labels_and_taints():
    given = {"zone": "a", "taint.remora.io/gpu_node": "true", "a.b.taint.remora.io/c": ""}
    assert split_taints(given) == ({"zone": "a"}, {"gpu_node": "true", "a.b/c": ""})


@pytest.mark.parametrize(("resource", "want"), [("GPU", "rare_resource.ray.io/gpu"), ("tpu", "rare_resource.ray.io/tpu")])
def test_a_rare_resource_has_the_taint_of_seed_002(resource, want):
    assert rare_resource_taint(resource) == want


# tolerations, taints, whether they are tolerated
TABLE = {
    "nothing tolerates nothing": (None, {}, True),
    "nothing does not tolerate a taint": (None, {"gpu_node": "true"}, False),
    "Exists tolerates any value": ({"gpu_node": Exists()}, {"gpu_node": "true"}, True),
    "Exists tolerates the empty value": ({"gpu_node": Exists()}, {"gpu_node": ""}, True),
    "Exist, as seed 002 spells it once": ({"memory-pressure": Exist()}, {"memory-pressure": "high"}, True),
    "the string exists()": ({"gpu_node": "EXISTS()"}, {"gpu_node": "true"}, True),
    "In tolerates its value": ({"gpu_type": In("A100")}, {"gpu_type": "A100"}, True),
    "In does not tolerate another value": ({"gpu_type": In("A100")}, {"gpu_type": "H100"}, False),
    "In with several values": ({"gpu_type": In("A100", "H100")}, {"gpu_type": "H100"}, True),
    "a plain string is that value": ({"gpu_type": "A100"}, {"gpu_type": "A100"}, True),
    "a plain string is not another value": ({"gpu_type": "A100"}, {"gpu_type": "H100"}, False),
    "the string in()": ({"gpu_type": "in(A100, H100)"}, {"gpu_type": "H100"}, True),
    "NotIn tolerates another value": ({"gpu_type": NotIn("A100")}, {"gpu_type": "H100"}, True),
    "NotIn does not tolerate its value": ({"gpu_type": NotIn("A100")}, {"gpu_type": "A100"}, False),
    "NotIn does not tolerate another key": ({"gpu_type": NotIn("A100")}, {"gpu_node": "true"}, False),
    "another key is not tolerated": ({"gpu_node": Exists()}, {"gpu_type": "A100"}, False),
    "every taint must be tolerated": ({"gpu_node": Exists()}, {"gpu_node": "true", "gpu_type": "A100"}, False),
    "all of several": ({"gpu_node": Exists(), "gpu_type": In("A100")}, {"gpu_node": "true", "gpu_type": "A100"}, True),
    "a toleration without its taint does no harm": ({"gpu_node": Exists(), "x": Exists()}, {"gpu_node": "true"}, True),
    "a tolerant one goes to a clean node": ({"gpu_node": Exists()}, {}, True),
    "a key with a prefix": ({"rare_resource.ray.io/gpu": Exists()}, {"rare_resource.ray.io/gpu": "true"}, True),
    "a key is exact in its case": ({"GPU_node": Exists()}, {"gpu_node": "true"}, False),
}


@pytest.mark.parametrize(("tolerations", "taints", "want"), list(TABLE.values()), ids=list(TABLE))
def test_tolerations(tolerations, taints, want):
    assert Tolerations(tolerations).tolerates(taints) is want


def test_tolerations_compare_by_meaning():
    one = Tolerations({"a": Exists(), "b": In("x", "y")})
    two = Tolerations({"b": "in(y, x)", "a": "exists()"})
    assert one == two == Tolerations(one)
    assert hash(one) == hash(two)
    assert not Tolerations()
    assert one


@pytest.mark.parametrize(
    ("tolerations", "want"),
    [
        (["gpu_node"], "tolerations must map taint keys to conditions, not ['gpu_node']; for example {'gpu_node': Exists()}"),
        ("gpu_node", "tolerations must map taint keys to conditions"),
        (5, "tolerations must map taint keys to conditions"),
        ([], "tolerations must map taint keys to conditions"),
        ({"a b": Exists()}, "bad toleration: label key 'a b'"),
        ({"gpu_node": "in()"}, "bad toleration: the condition 'in()' under 'gpu_node' cannot be read"),
        ({"gpu_node": None}, "bad toleration: the condition None under 'gpu_node'"),
        ({"gpu_node": "v" * 64}, "it has 64 characters"),
        ({"gpu_node": DoesNotExist()}, "says that the taint does not exist, which tolerates nothing: leave it out, or write "),
        ({"gpu_node": "!exists()"}, "{'gpu_node': Exists()}"),
        ({1: Exists()}, "bad toleration: label key 1 is a int"),
    ],
    ids=repr,
)
def test_bad_tolerations_are_refused(tolerations, want):
    with pytest.raises(InvalidTaintError) as caught:
        Tolerations(tolerations)
    assert want in str(caught.value)


@pytest.mark.parametrize(
    "taints", [{"a b": "c"}, {"a": "b c"}, {"a": 1}, {"a": None}, ["a"], "a=b", {"": "x"}, {"a": "v" * 64}], ids=repr
)
def test_bad_taints_are_refused_with_an_example(taints):
    with pytest.raises(InvalidTaintError, match=r"for example \{'gpu_node': 'true'\}"):
        parse_taints(taints)


def test_a_taint_that_no_label_could_carry_is_refused():
    """Its label would have a prefix of more than 253 characters, so stock ``ray start --labels`` could not set it."""
    with pytest.raises(InvalidTaintError):
        parse_taints({"a" * 253 + "/x": "y"})


EVERY_TOLERATION = [
    Exists(),
    In("a"),
    In("a", "b"),
    In(""),
    In("", "a"),
    NotIn("a"),
    NotIn("a", "b"),
    NotIn(""),
    NotIn("", "a"),
]


@pytest.mark.parametrize("condition", EVERY_TOLERATION, ids=repr)
def test_one_more_toleration_keeps_those_that_are_there(condition):
    more = Tolerations({"k": condition}).also("gpu_node")
    assert more == Tolerations({"k": condition, "gpu_node": Exists()})


@pytest.mark.parametrize("condition", EVERY_TOLERATION, ids=repr)
def test_tolerations_survive_their_string_form(condition):
    given = Tolerations({"k": condition})
    assert Tolerations(given.to_dict()) == given
