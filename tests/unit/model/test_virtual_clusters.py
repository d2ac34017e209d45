"""Virtual cluster specs: the values, the JSON of seed 004, and every error."""

import json
from typing import Any

import pytest

from remora import (
    PACK,
    SPREAD,
    STRICT_SPREAD,
    FixedSizeNode,
    FixedSizeNodes,
    InvalidInputError,
    InvalidLabelError,
    InvalidVirtualClusterError,
    SchedulingPolicy,
    VirtualCluster,
)

SEED_JSON = (
    '{"fixed_size_nodes": [{"nodes": [{"resources": {"GPU": 1}}, {"resources": {"GPU": 1}}], '
    '"scheduling_policy": "STRICT_SPREAD"}]}'
)
ONE_GPU = FixedSizeNode(resources={"GPU": 1})

SPECS = {
    "nothing": VirtualCluster(),
    "1 to 8 CPUs": VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 8}),
    "only a minimum": VirtualCluster(flexible_resource_min={"CPU": 4}),
    "only a maximum": VirtualCluster(flexible_resource_max={"CPU": 4}),
    "no CPU at all": VirtualCluster(flexible_resource_max={"CPU": 0}),
    "an empty maximum": VirtualCluster(flexible_resource_max={}),
    "two GPUs apart": VirtualCluster(fixed_size_nodes=[FixedSizeNodes([ONE_GPU, ONE_GPU], STRICT_SPREAD)]),
    "packed, as seed 004 writes it": VirtualCluster(
        fixed_size_nodes=[
            FixedSizeNodes(
                nodes=[FixedSizeNode(resources={"GPU": 4}), FixedSizeNode(resources={"GPU": 1})], scheduling_policy=PACK
            )
        ]
    ),
    "with labels, as seed 004 writes it": VirtualCluster(
        fixed_size_nodes=[
            FixedSizeNodes(
                nodes=[
                    FixedSizeNode(resources={"GPU": 4}, labels={"bundle_index": "0"}),
                    FixedSizeNode(resources={"GPU": 1}, labels={"bundle_index": "1"}),
                ],
                scheduling_policy=STRICT_SPREAD,
            )
        ]
    ),
    "Tune and Dataset, as seed 004 writes it": VirtualCluster(
        fixed_size_nodes=[
            FixedSizeNodes(nodes=[ONE_GPU, ONE_GPU], scheduling_policy=PACK),
            FixedSizeNodes(nodes=[ONE_GPU, ONE_GPU], scheduling_policy=PACK),
        ],
        flexible_resource_min={"CPU": 1},
        flexible_resource_max={"CPU": 10},
    ),
    "a fraction of a CPU": VirtualCluster(flexible_resource_min={"CPU": 0.1}),
}


def test_the_json_of_the_seed():
    want = VirtualCluster(
        fixed_size_nodes=[
            FixedSizeNodes(
                nodes=[FixedSizeNode(resources={"GPU": 1}), FixedSizeNode(resources={"GPU": 1})],
                scheduling_policy=STRICT_SPREAD,
            )
        ]
    )
    assert VirtualCluster.parse(SEED_JSON) == want
    assert VirtualCluster.parse(json.loads(SEED_JSON)) == want
    assert hash(VirtualCluster.parse(SEED_JSON)) == hash(want)


@pytest.mark.parametrize("spec", list(SPECS.values()), ids=list(SPECS))
def test_a_spec_survives_its_json(spec):
    again = VirtualCluster.parse(json.dumps(spec.to_dict()))
    assert again == spec
    assert hash(again) == hash(spec)
    assert VirtualCluster.parse(spec) is spec


@pytest.mark.parametrize("spec", list(SPECS.values()), ids=list(SPECS))
def test_a_spec_shows_itself_as_json(spec):
    assert repr(spec) == f"VirtualCluster({json.dumps(spec.to_dict())})"


@pytest.mark.parametrize("policy", [PACK, SPREAD, STRICT_SPREAD, "PACK", "spread", "Strict_Spread"], ids=str)
def test_a_policy_is_a_value_or_its_name_in_any_case(policy):
    assert FixedSizeNodes([ONE_GPU], policy).scheduling_policy is SchedulingPolicy(
        str(getattr(policy, "value", policy)).upper()
    )


def test_pack_is_the_default_policy():
    assert FixedSizeNodes([ONE_GPU]).scheduling_policy is PACK


# spec, resource, the most that its flexible part may have (in ten-thousandths), None for no limit
LIMITS = {
    "nothing is limited by default": (VirtualCluster(), "CPU", None),
    "a named maximum": (VirtualCluster({"CPU": 1}, {"CPU": 8}), "CPU", 80_000),
    "an unnamed resource is unlimited": (VirtualCluster({"CPU": 1}, {"CPU": 8}), "GPU", None),
    "a maximum of zero": (VirtualCluster(None, {"CPU": 0}), "CPU", 0),
    "a minimum alone does not limit": (VirtualCluster({"CPU": 1}), "CPU", None),
    "fixed-size nodes alone limit what they name": (SPECS["two GPUs apart"], "GPU", 0),
    "fixed-size nodes alone do not limit the rest": (SPECS["two GPUs apart"], "CPU", None),
    "fixed-size nodes beside a maximum": (SPECS["Tune and Dataset, as seed 004 writes it"], "GPU", None),
}


@pytest.mark.parametrize(("spec", "name", "want"), list(LIMITS.values()), ids=list(LIMITS))
def test_limits(spec, name, want):
    assert spec.limit(name) == want


def nodes_of(nodes: Any) -> FixedSizeNodes:
    return FixedSizeNodes(nodes)


def cluster_of(fixed_size_nodes: Any) -> VirtualCluster:
    return VirtualCluster(fixed_size_nodes=fixed_size_nodes)


BAD = {
    "a minimum above its maximum": (
        lambda: VirtualCluster({"CPU": 9}, {"CPU": 8}),
        "flexible_resource_min asks for 9 CPU, above its flexible_resource_max of 8 CPU",
    ),
    "a minimum above a maximum of zero": (
        lambda: VirtualCluster({"CPU": 1}, {"CPU": 0}),
        "above its flexible_resource_max of 0 CPU",
    ),
    "a negative minimum": (lambda: VirtualCluster({"CPU": -1}), "flexible_resource_min: the amount -1 of CPU is negative"),
    "a negative maximum": (lambda: VirtualCluster(None, {"CPU": -1}), "flexible_resource_max: the amount -1"),
    "a minimum that is no mapping": (lambda: VirtualCluster(5), "flexible_resource_min must be a mapping"),
    "a maximum that is no mapping": (lambda: VirtualCluster(None, ["CPU"]), "flexible_resource_max must be a mapping"),
    "a reserved resource": (lambda: VirtualCluster({"remora/x": 1}), "begins with 'remora/', which is reserved"),
    "a fixed-size node of nothing": (lambda: FixedSizeNode({}), "for example FixedSizeNode({'GPU': 1})"),
    "a fixed-size node of zero": (lambda: FixedSizeNode({"GPU": 0}), "a fixed-size node has the resources {'GPU': 0}"),
    "a fixed-size node of None": (FixedSizeNode, "name at least one"),
    "a reserved label": (
        lambda: FixedSizeNode({"GPU": 1}, {"ray.io/vnode_id": "x"}),
        "the label 'ray.io/vnode_id' is reserved for Ray; for example {'bundle_index': '0'}",
    ),
    "a set without nodes": (lambda: FixedSizeNodes([]), "a set without nodes"),
    "a set whose nodes are one mapping": (lambda: nodes_of({"resources": {"GPU": 1}}), "nodes must be a list"),
    "a set whose nodes are None": (lambda: nodes_of(None), "nodes must be a list, not None"),
    "a node that is a number": (lambda: nodes_of([5]), "5 is not a FixedSizeNode"),
    "STRICT_PACK, which is no policy here": (
        lambda: FixedSizeNodes([ONE_GPU], "STRICT_PACK"),
        "the scheduling_policy 'STRICT_PACK' is not known: use PACK, SPREAD or STRICT_SPREAD",
    ),
    "a policy that is None": (lambda: FixedSizeNodes([ONE_GPU], None), "the scheduling_policy None is not known"),
    "fixed_size_nodes that is one set": (
        lambda: cluster_of({"nodes": [{"resources": {"GPU": 1}}]}),
        "fixed_size_nodes must be a list",
    ),
    "fixed_size_nodes that is a FixedSizeNodes": (
        lambda: cluster_of(FixedSizeNodes([ONE_GPU])),
        "fixed_size_nodes must be a list",
    ),
    "a list of nodes instead of sets": (lambda: cluster_of([ONE_GPU]), "is not a FixedSizeNodes"),
    "an unknown field": (lambda: VirtualCluster.parse({"cpu": 1}), "VirtualCluster has no field 'cpu': the fields are"),
    "an unknown field of a set": (
        lambda: VirtualCluster.parse({"fixed_size_nodes": [{"nodes": [{"resources": {"GPU": 1}}], "policy": "PACK"}]}),
        "FixedSizeNodes has no field 'policy'",
    ),
    "an unknown field of a node": (
        lambda: VirtualCluster.parse({"fixed_size_nodes": [{"nodes": [{"GPU": 1}]}]}),
        "FixedSizeNode has no field 'GPU': the fields are resources, labels",
    ),
    "a set without the field nodes": (lambda: VirtualCluster.parse({"fixed_size_nodes": [{}]}), "has no 'nodes'; for example"),
    "a list": (lambda: VirtualCluster.parse([]), "[] is not a VirtualCluster"),
    "None": (lambda: VirtualCluster.parse(None), "None is not a VirtualCluster"),
    "a field name that is no string": (lambda: VirtualCluster.parse({1: 2}), "has no field '1'"),
    "text that is no JSON": (lambda: VirtualCluster.parse("{CPU: 1}"), "is not JSON"),
    "JSON that is no object": (lambda: VirtualCluster.parse("[1]"), "[1] is not a VirtualCluster"),
    "JSON NaN": (lambda: VirtualCluster.parse('{"flexible_resource_min": {"CPU": NaN}}'), "is not finite"),
    "JSON true": (lambda: VirtualCluster.parse('{"flexible_resource_min": {"CPU": true}}'), "is not a number"),
}


@pytest.mark.parametrize(("make", "want"), list(BAD.values()), ids=list(BAD))
def test_a_bad_spec_is_refused(make, want):
    with pytest.raises(InvalidVirtualClusterError) as caught:
        make()
    assert want in str(caught.value)


def test_a_bad_label_is_refused():
    with pytest.raises(InvalidLabelError):
        FixedSizeNode({"GPU": 1}, {"a b": "c"})


def test_deeply_nested_json_is_refused_and_not_a_crash():
    with pytest.raises(InvalidInputError):
        VirtualCluster.parse("[" * 100_000)


def test_fixed_nodes_are_all_the_nodes_of_all_sets_in_their_order():
    one, two, three = (FixedSizeNode({"CPU": size}) for size in (1, 2, 3))
    assert VirtualCluster(fixed_size_nodes=[FixedSizeNodes([one, two]), FixedSizeNodes([three])]).fixed_nodes == (
        one,
        two,
        three,
    )
    assert VirtualCluster().fixed_nodes == ()
