"""The file of ``remora up``: which nodes it asks for, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remora.errors import InvalidInputError
from remora.machine.nodes_file import load_nodes, parse_nodes

GROUP = "ray.io/node-group"


def test_nodes_become_arguments_of_ray_start() -> None:
    head, first, second = parse_nodes(
        """
        nodes:
          - {name: h, resources: {CPU: 1}}
          - name: gpu
            count: 2
            resources: {CPU: 2, GPU: 1, slot: 3, object_store_memory: 90000000}
            labels: {zone: "z{i}"}
            taints: {gpu_node: "true", a.b/c: d}
        rare_resource_isolation: [GPU, slot]
        """,
        "f",
    )
    assert [head.name, first.name, second.name] == ["h", "gpu-0", "gpu-1"]
    rare = "rare-resource.remora.io/gpu=true,rare-resource.remora.io/slot=true"
    assert head.arguments() == [
        "--node-name=h",
        f"--labels={GROUP}=head,{rare}",
        "--num-cpus=1",
        "--num-gpus=0",
        "--object-store-memory=100000000",
    ]
    *flags, custom = second.arguments()
    assert flags == [
        "--node-name=gpu-1",
        f"--labels={GROUP}=gpu,zone=z1,a.b.taint.remora.io/c=d,taint.remora.io/gpu_node=true",
        "--num-cpus=2",
        "--num-gpus=1",
        "--object-store-memory=90000000",
    ]
    assert json.loads(custom.removeprefix("--resources=")) == {"slot": 3}


def test_a_group_that_is_written_is_kept_and_id_is_name() -> None:
    nodes = parse_nodes(f"nodes: [{{id: h, labels: {{{GROUP}: mine}}}}, {{id: 'w{{i}}', count: 1}}, {{id: a b}}]", "f")
    assert [(node.name, dict(node.labels)) for node in nodes] == [("h", {GROUP: "mine"}), ("w0", {}), ("a b", {})]


def test_without_a_file_there_are_four_small_nodes_in_two_zones_with_a_tainted_gpu() -> None:
    nodes = load_nodes(None)
    assert len(nodes) == 4
    assert {node.labels["zone"] for node in nodes} == {"a", "b"}
    assert all(1 <= node.resources["CPU"] <= 2 for node in nodes)
    (gpu,) = [node for node in nodes if "GPU" in node.resources]
    assert gpu.labels["taint.remora.io/gpu_node"] == "true"


BAD = {
    "not YAML": ("nodes: [", "f: line 1, column 9: it is not YAML"),
    "empty": ("", "not a mapping"),
    "a list": ("- a", "not a mapping"),
    "no nodes": ("nodes: []", "there are 0, not 1 to 64"),
    "too many": ("nodes: [{name: n, count: 65}]", "there are 65, not 1 to 64"),
    "an unknown key": ("nodes: [{name: n, recources: {}}]", "did you mean 'resources'?"),
    "an unknown key above": ("node: []", "did you mean 'nodes'?"),
    "no name": ("nodes: [{resources: {CPU: 1}}]", "nodes[0].name: it is missing; for example {name: gpu"),
    "one name twice": ("nodes: [{name: n}, {name: n}]", "two are named 'n'"),
    "half a CPU": ("nodes: [{name: n, resources: {CPU: 0.5}}]", "0.5 CPU is not whole"),
    "a negative CPU": ("nodes: [{name: n, resources: {CPU: -1}}]", "is negative"),
    "a bad label": ("nodes: [{name: n, labels: {zone: -a}}]", "nodes[0].labels"),
    "a bad taint": ("nodes: [{name: n, taints: {k: true}}]", "nodes[0].taints"),
    "Ray's own label": ("nodes: [{name: n, labels: {ray.io/node-id: x}}]", "set by Ray itself"),
    "rare in a text": ("nodes: [{name: n}]\nrare_resource_isolation: gpu", "is not a list"),
    "rare of nothing": ("nodes: [{name: n}]\nrare_resource_isolation: ['-']", "a rare resource is named in a label"),
    "a key twice": ("nodes: [{name: n, name: m}]", "stands here twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(InvalidInputError) as caught:
        parse_nodes(text, "f")
    assert message in str(caught.value)
    assert str(caught.value).startswith("f: ")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"--nodes .*cannot be read"):
        load_nodes(tmp_path / "none.yaml")
