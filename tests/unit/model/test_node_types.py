"""Node types as files spell them: what is read, what is left out and why, and what live nodes teach about them."""

import pytest
import yaml

from remora import InvalidNodeTypeError
from remora.model.node_types import COST_LABEL, NodeType, NodeTypes, parse_node_types
from remora.model.resources import Resources

GPU = {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 4}


def read(**types):
    return parse_node_types({"node_types": types})


def test_a_type_has_what_the_file_says():
    types = parse_node_types(
        yaml.safe_load(
            "max_workers: 10\n"
            "node_types:\n"
            "  gpu: {resources: {CPU: 8, GPU: 0.5}, labels: {zone: a}, taints: {gpu_node: 'true'}, min_workers: 1,\n"
            "        max_workers: 4, cost: 2.5, priority: 3, start_seconds: 60, idle_seconds: 300}\n"
        )
    )
    assert types.most == 10
    assert list(types) == [
        NodeType(
            "gpu",
            Resources.parse({"CPU": 8, "GPU": 0.5}),
            (("zone", "a"),),
            (("gpu_node", "true"),),
            *(1, 4, 2.5, 3, 60.0, 300.0),
        )
    ]
    assert "gpu" in types
    assert "web" not in types


def test_what_is_left_out_has_no_limit_no_cost_and_no_priority():
    (one,) = read(web={"resources": {"CPU": 2}})
    assert (one.least, one.most, one.cost, one.priority, one.taints, one.idle_seconds) == (0, None, None, 0, (), None)


def test_a_cluster_file_of_ray_up_is_read_as_it_is():
    types = parse_node_types(
        {
            "cluster_name": "c",
            "max_workers": 10,
            "idle_timeout_minutes": 5,
            "provider": {"type": "aws"},
            "available_node_types": {
                "head": {"resources": {"CPU": 1}, "node_config": {}},
                "gpu": {
                    "resources": {"CPU": 8, "GPU": 1},
                    "labels": {"zone": "a", "taint.remora.io/gpu_node": "true", COST_LABEL: "2.5"},
                    "node_config": {"InstanceType": "p3"},
                    "min_workers": 0,
                    "max_workers": 4,
                },
            },
            "head_node_type": "head",
        }
    )
    (gpu,) = types
    assert gpu.name == "gpu"
    assert gpu.taints == (("gpu_node", "true"),)
    assert dict(gpu.labels) == {"zone": "a", COST_LABEL: "2.5"}
    assert (gpu.cost, gpu.idle_seconds, types.most) == (2.5, 300.0, 10)


# what is written, what the refusal says
BAD = {
    "no mapping": (7, ["node_types.gpu: 7 is not a mapping", "for example gpu: {resources"]),
    "no resources": ({"max_workers": 1}, ["node_types.gpu.resources: it is missing", "for example {CPU: 8}"]),
    "resources": ({"resources": [1]}, ["node_types.gpu.resources:", "not [1]", "for example {'CPU': 1}"]),
    "amount": ({"resources": {"CPU": "8"}}, ["the amount '8' of CPU is not a number", "for example"]),
    "memory": ({"resources": {"memory": "4Gi"}}, ["the amount '4Gi' of memory is not a number", "for example"]),
    "negative": ({"resources": {"CPU": -1}}, ["the amount -1 of CPU is negative", "for example"]),
    "unknown": ({"resources": {"gpus": 1}}, ["Ray knows no resource 'gpus'", "it is spelled 'GPU'", "for example {GPU: 1}"]),
    "case": ({"resources": {"Cpu": 1}}, ["Ray knows no resource 'Cpu'", "it is spelled 'CPU'"]),
    "label": ({**GPU, "labels": {"zone": "a b"}}, ["node_types.gpu.labels:", "'a b'", "for example"]),
    "labels": ({**GPU, "labels": "zone=a"}, ["node_types.gpu.labels:", "'zone=a'", "for example {'zone': 'a'}"]),
    "taint": ({**GPU, "taints": {"gpu node": "true"}}, ["node_types.gpu.taints:", "'gpu node'", "for example"]),
    "taints": ({**GPU, "taints": ["gpu"]}, ["node_types.gpu.taints:", "['gpu']", "{'gpu_node': 'true'}"]),
    "taint as label": ({**GPU, "labels": {"taint.remora.io/": "x"}}, ["node_types.gpu.labels:", "for example"]),
    "maximum": (
        {**GPU, "max_workers": -1},
        ["gpu.max_workers: -1 is not a whole number", "for example max_workers: 4"],
    ),
    "minimum": ({**GPU, "min_workers": 5}, ["min_workers: 5 is above its max_workers of 4", "for example min_workers: 4"]),
    "cost": ({**GPU, "cost": "dear"}, ["node_types.gpu.cost: 'dear' is not a number", "for example cost: 30"]),
    "cost label": ({**GPU, "labels": {COST_LABEL: "dear"}}, [f"{COST_LABEL}='dear' is not a number", "for example"]),
    "priority": ({**GPU, "priority": 1.5}, ["node_types.gpu.priority: 1.5 is not a whole number", "for example priority: 10"]),
    "seconds": ({**GPU, "start_seconds": True}, ["node_types.gpu.start_seconds: True is not a number", "for example"]),
    "key": ({**GPU, "maximum": 3}, ["node_types.gpu.maximum: a node type has no such key: it has resources, labels, taints"]),
}


@pytest.mark.parametrize(("value", "said"), BAD.values(), ids=BAD)
def test_a_type_that_cannot_be_read_is_named_with_value_rule_and_example_and_the_others_go_on(value, said):
    types = read(gpu=value, web={"resources": {"CPU": 2}})
    assert [each.name for each in types] == ["web"]
    (problem,) = types.problems
    for part in said:
        assert part in problem


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "None is not a mapping with node_types"),
        ([], "[] is not a mapping with node_types"),
        ({"types": {}}, "there is no node_types among types"),
        ({"node_types": [GPU]}, "is not a mapping of type names"),
        ({"node_types": {}, "max_workers": "ten"}, "max_workers: 'ten' is not a whole number"),
    ],
)
def test_a_file_of_which_nothing_can_be_read_is_an_error(value, said):
    with pytest.raises(InvalidNodeTypeError, match="for example") as caught:
        parse_node_types(value)
    assert said in str(caught.value)


def test_rare_resources_taint_the_types_that_have_them():
    types = read(gpu=GPU, web={"resources": {"CPU": 2}}).isolating(frozenset({"gpu"}))
    assert [dict(each.taints) for each in types] == [{"rare_resource.ray.io/gpu": "true"}, {}]


def test_live_nodes_teach_the_least_size_and_the_labels_that_all_of_them_have():
    declared = NodeTypes((NodeType("web", Resources.parse({"CPU": 2, "memory": 100}), (("zone", "a"),)),))
    nodes = [
        ("web", Resources.parse({"CPU": 2, "memory": 90}), {"zone": "b", "os": "x", "rack": "1", "ray.io/node-id": "f0"}),
        ("web", Resources.parse({"CPU": 4, "memory": 95}), {"os": "x", "taint.remora.io/slow": "yes", "rack": "2"}),
        ("gone", Resources.parse({"CPU": 1}), {}),
    ]
    (seen,) = declared.seen(nodes)
    assert seen.resources == Resources.parse({"CPU": 2, "memory": 90})
    assert dict(seen.labels) == {"zone": "a", "os": "x"}
    assert seen.taints == ()
    (alone,) = declared.seen(nodes[1:2])
    assert dict(alone.taints) == {"slow": "yes"}
    (none,) = declared.seen([])
    assert none == declared.types[0]
    assert "ray.io/node-id" not in dict(declared.seen(nodes[:1]).types[0].labels)
