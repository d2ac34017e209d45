"""Requests: one canonical form, the same in every process."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from remora import (
    Exists,
    In,
    InvalidInputError,
    LabelMatchOperator,
    LabelSelector,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    Tolerations,
    actor_affinity,
    label_exists,
    label_in,
    label_not_in,
    node_affinity,
)
from remora.model.requests import parse_request
from remora.model.resources import EMPTY, Resources

ONE_CPU = Resources.parse({"CPU": 1})
NO_CATS = actor_affinity(label_not_in("type", ["cat"], False))


def build(**changes):
    """The request that the spellings below all mean, with some of its parts written differently."""
    options = {
        "resources": {"CPU": 1},
        "label_selector": {"zone": "in(a, b)"},
        "tolerations": {"gpu_node": Exists()},
        "scheduling_strategy": NO_CATS,
    }
    return parse_request("actor", **{**options, **changes})


SPELLINGS = {
    "as it is": build(),
    "resources as floats, with a zero": build(resources={"CPU": 1.0, "GPU": 0}),
    "the selector's values in another order": build(label_selector={"zone": "IN(b,a)"}),
    "the selector by In": build(label_selector={"zone": In("b", "a")}),
    "the selector as an expression": build(label_selector=label_in("zone", ["a", "b"], False)),
    "the selector as a query": build(label_selector="zone in [a, b]"),
    "the selector as a LabelSelector": build(label_selector=LabelSelector({"zone": "in(a, b)"})),
    "the selector as a node affinity": build(label_selector=None, affinity=node_affinity("zone in [a, b]")),
    "the selector as Ray's node label strategy": build(
        label_selector=None, affinity=NodeLabelSchedulingStrategy({"zone": In("a", "b")})
    ),
    "tolerations as strings": build(tolerations={"gpu_node": "exists()"}),
    "tolerations as Tolerations": build(tolerations=Tolerations({"gpu_node": "EXISTS()"})),
    "affinity as the second dimension": build(scheduling_strategy="DEFAULT", affinity=NO_CATS),
    "affinity in a list": build(scheduling_strategy=None, affinity=[NO_CATS]),
    "affinity as a tuple": build(scheduling_strategy=actor_affinity(("type", LabelMatchOperator.NOT_IN, ["cat"], False))),
    "affinity as a query": build(scheduling_strategy=actor_affinity("type != cat")),
    "affinity as a mapping": build(scheduling_strategy=actor_affinity({"type": "!cat"})),
    "an empty list of fallbacks": build(fallback_strategy=[]),
    "a fallback that repeats the selector": build(fallback_strategy=[{"label_selector": {"zone": In("a", "b")}}]),
}


@pytest.mark.parametrize("spelling", list(SPELLINGS.values()), ids=list(SPELLINGS))
def test_all_spellings_are_one_request(spelling):
    want = build()
    assert spelling == want
    assert hash(spelling) == hash(want)
    assert spelling.fingerprint == want.fingerprint
    assert spelling.class_id == want.class_id


DIFFERENT = {
    "another kind": parse_request("task", resources={"CPU": 1}),
    "other resources": build(resources={"CPU": 2}),
    "another selector": build(label_selector={"zone": "a"}),
    "no tolerations": build(tolerations=None),
    "no affinity": build(scheduling_strategy=None),
    "a symmetric affinity": build(scheduling_strategy=actor_affinity("type != cat", symmetric=True)),
    "a soft affinity": build(scheduling_strategy=actor_affinity(label_not_in("type", ["cat"], True))),
    "SPREAD": build(scheduling_strategy="SPREAD", affinity=NO_CATS),
    "a fallback": build(fallback_strategy=[{"label_selector": {}}]),
    "a wish": build(affinity=node_affinity(label_exists("gpu", True))),
    "a pin": build(affinity=NodeAffinitySchedulingStrategy("n1")),
    "a soft pin": build(affinity=NodeAffinitySchedulingStrategy("n1", soft=True)),
    "another namespace": build(namespace="other"),
    "a virtual cluster": build(virtual_cluster="vc-1"),
    "a node affinity by OR": build(affinity=node_affinity("a = 1 or b = 2")),
}


@pytest.mark.parametrize("other", list(DIFFERENT.values()), ids=list(DIFFERENT))
def test_what_means_something_else_is_another_request(other):
    assert other != build()
    assert other.fingerprint != build().fingerprint


def test_all_different_requests_have_different_fingerprints():
    assert len({other.fingerprint for other in DIFFERENT.values()}) == len(DIFFERENT)


SAME_CLASS = ["another namespace", "other resources", "no affinity", "SPREAD", "a wish", "a soft pin", "a virtual cluster"]


@pytest.mark.parametrize("name", list(DIFFERENT))
def test_a_class_is_decided_by_labels_taints_and_id_alone(name):
    same = DIFFERENT[name].class_id == build().class_id
    assert same is (name in [*SAME_CLASS, "a symmetric affinity", "a soft affinity"])


def test_with_fallbacks_the_size_is_part_of_the_class():
    def class_of(cpus):
        return build(resources={"CPU": cpus}, fallback_strategy=[{"label_selector": {}}]).class_id

    assert class_of(1) != class_of(2)
    assert class_of(1) == class_of(1.0)


# Token names are made of these: a change here leaves tokens of an older client behind, so it must be meant.
PINNED = {
    "a full request": (build, "ba88d4227340da0a", "c007be0d29835bef"),
    "the default task": (parse_request, "0f84b69f55023d1a", "6cdcf3fe755b150a"),
    "a fallback": (
        lambda: parse_request(
            "task", resources={"CPU": 2}, label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {}}]
        ),
        "0a095c835c51fcf0",
        "2948129407b6547c",
    ),
}


@pytest.mark.parametrize(("make", "fingerprint", "class_id"), list(PINNED.values()), ids=list(PINNED))
def test_fingerprint_and_class_id_are_pinned(make, fingerprint, class_id):
    assert (make().fingerprint, make().class_id) == (fingerprint, class_id)


def run_in_another_process(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


SAME_REQUEST = """
import json, pickle, sys
from remora import Exists, actor_affinity
from remora.model.requests import parse_request
request = parse_request("actor", resources={"CPU": 1}, label_selector={"zone": "in(b, a)"},
                        tolerations={"gpu_node": Exists()}, scheduling_strategy=actor_affinity("type != cat"))
"""


def test_another_process_with_another_hash_seed_gives_the_same_names():
    code = SAME_REQUEST + "print(json.dumps([request.fingerprint, request.class_id]))"
    assert run_in_another_process(code) == ["ba88d4227340da0a", "c007be0d29835bef"]


def test_a_request_that_was_hashed_here_is_found_in_another_process_after_pickling():
    request = build()
    assert len({request, request.choices[0]}) == 2  # hashed, and with that kept
    code = SAME_REQUEST + (
        "sent = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(json.dumps([sent == request, sent in {request}, sent.choices[0] in {request.choices[0]}]))"
    )
    assert run_in_another_process(code, pickle.dumps(request).hex()) == [True, True, True]


DEMAND = {
    "a default actor needs a CPU to start and none to live": (("actor", None), ONE_CPU, EMPTY),
    "a default task holds a CPU": (("task", None), ONE_CPU, ONE_CPU),
    "an actor that names resources holds them": (("actor", {"CPU": 1}), ONE_CPU, ONE_CPU),
    "an actor that names nothing at all needs nothing": (("actor", {}), EMPTY, EMPTY),
    "a task with a zero needs nothing": (("task", {"CPU": 0}), EMPTY, EMPTY),
}


@pytest.mark.parametrize(("given", "demand", "held"), list(DEMAND.values()), ids=list(DEMAND))
def test_rays_default_resources(given, demand, held):
    kind, resources = given
    request = parse_request(kind, resources=resources)
    assert (request.demand, request.resources) == (demand, held)


def test_only_a_hard_wish_for_company_follows():
    assert parse_request(scheduling_strategy=actor_affinity(label_in("t", ["a"], False))).follows
    assert parse_request(scheduling_strategy=actor_affinity(label_exists("t", False))).follows
    assert not parse_request(scheduling_strategy=actor_affinity(label_in("t", ["a"], True))).follows
    assert not parse_request(scheduling_strategy=NO_CATS).follows


def test_fallbacks_keep_their_order():
    request = parse_request(
        label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}, {"label_selector": {}}]
    )
    want = [LabelSelector({"zone": "a"}), LabelSelector({"zone": "b"}), LabelSelector()]
    assert [choice.selector for choice in request.choices] == want


BAD = {
    "an unknown kind": ({"kind": "job"}, "the kind 'job' is not known: use 'actor' or 'task'"),
    "a kind of None": ({"kind": None}, "the kind None"),
    "fallbacks that are a mapping": ({"fallback_strategy": {"label_selector": {}}}, "fallback_strategy must be a list"),
    "fallbacks that are a string": ({"fallback_strategy": "zone"}, "fallback_strategy must be a list"),
    "a fallback without its key": ({"fallback_strategy": [{"zone": "a"}]}, "with the one key 'label_selector'"),
    "a fallback with a key too many": (
        {"fallback_strategy": [{"label_selector": {}, "x": 1}]},
        "for example [{'label_selector': {'zone': 'b'}}, {'label_selector': {}}]",
    ),
    "a fallback that is no mapping": ({"fallback_strategy": [None]}, "the fallback None must be a mapping"),
    "a fallback with a bad selector": ({"fallback_strategy": [{"label_selector": {"a": "in()"}}]}, "did you mean in(a, b)?"),
    "a namespace that is a number": ({"namespace": 5}, "namespace"),
    "a namespace that is a list": ({"namespace": []}, "namespace"),
}


@pytest.mark.parametrize(("options", "want"), list(BAD.values()), ids=list(BAD))
def test_a_bad_request_is_refused(options, want):
    with pytest.raises(InvalidInputError) as caught:
        parse_request(**options)
    assert want in str(caught.value)
