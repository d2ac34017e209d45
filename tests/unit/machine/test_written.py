"""Labels, taints and rare resources as they are written on a command line or in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from remora.errors import InvalidInputError, InvalidLabelError, InvalidTaintError
from remora.machine.written import isolation_of, labels_in_file, labels_of, plain_taints_of, taints_of

LABELS = {
    "pairs": (["zone=a,tier=spot"], {"zone": "a", "tier": "spot"}),
    "spaces around": ([" zone = a , tier=spot "], {"zone": "a", "tier": "spot"}),
    "an empty value": (["ray.io/accelerator-type="], {"ray.io/accelerator-type": ""}),
    "JSON": (['{"zone": "a", "ray.io/market-type": "spot"}'], {"zone": "a", "ray.io/market-type": "spot"}),
    "quotes that the shell left": (['"zone=a"'], {"zone": "a"}),
    "nothing": ([""], {}),
    "twice, the later wins": (["zone=a,tier=spot", '{"zone": "b"}'], {"zone": "b", "tier": "spot"}),
    "said twice alike": (["zone=a,zone=a"], {"zone": "a"}),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_read(name: str) -> None:
    texts, want = LABELS[name]
    assert labels_of(texts) == want


BAD_LABELS = {
    "no value": ("zone", "'zone' is not key=value"),
    "a bad key": ("-zone=a", "bad name '-zone'"),
    "a bad value": ("zone=a=b", "contains '='"),
    "half a JSON": ('{"zone":', "is not JSON"),
    "JSON without quotes": ("{zone:a", "a shell takes double quotes away"),
    "a JSON list": ('["zone"]', "not a JSON object"),
    "a number": ('{"zone": 1}', "label value 1 is a int"),
    "a key twice": ("zone=a,zone=b", "'zone' stands there twice"),
    "a JSON key twice": ('{"zone": "a", "zone": "b"}', "'zone' stands there twice"),
    "nested": ('{"a":' * 100_000, "nested too deeply"),
    "Ray's own": ("ray.io/node-id=x", "set by Ray itself"),
    "a trailing comma": ("zone=a,", "'' is not key=value"),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_a_bad_label_is_refused_with_an_example(name: str) -> None:
    text, message = BAD_LABELS[name]
    with pytest.raises(InvalidLabelError) as caught:
        labels_of([text])
    assert message in str(caught.value)
    assert "for example --labels 'zone=a,tier=spot'" in str(caught.value)


def test_a_taint_becomes_the_label_that_carries_it() -> None:
    want = {"taint.remora.io/gpu_node": "true", "a.b.taint.remora.io/c": "d"}
    assert taints_of(['{"gpu_node":"true"}', "a.b/c=d"]) == want


def test_what_a_shell_leaves_of_json_is_read_as_it_was_meant() -> None:
    assert taints_of(["{gpu_node:true, k:}"]) == {"taint.remora.io/gpu_node": "true", "taint.remora.io/k": ""}
    assert plain_taints_of(["{gpu_node:true}"], "--append") == {"gpu_node": "true"}
    with pytest.raises(InvalidTaintError, match=r"--append '\{\}' names no taint; for example --append gpu_node=true"):
        plain_taints_of(["{}"], "--append")


def test_a_bad_taint_is_refused_as_a_taint() -> None:
    with pytest.raises(InvalidTaintError, match=r"--taints .*for example --taints '\{\"gpu_node\":\"true\"\}'"):
        taints_of(["gpu node=true"])


def test_rare_resources_become_labels_of_the_head_in_lower_case() -> None:
    want = {"rare-resource.remora.io/gpu": "true", "rare-resource.remora.io/my_rare": "true"}
    assert isolation_of(["GPU, my_rare"]) == want


@pytest.mark.parametrize("text", ["", "gpu,", "my rare", "-x"])
def test_a_rare_resource_that_cannot_be_a_label_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="for example --rare-resource-isolation gpu,my_rare_resource"):
        isolation_of([text])


FILES = {
    "yaml": ('zone: a\ntier: "1"\n', {"zone": "a", "tier": "1"}),
    "json is yaml": ('{"zone": "a"}', {"zone": "a"}),
    "empty": ("", {}),
    "downward API": ('app="ray"\ntopology.kubernetes.io/zone="eu-1"\n', {"app": "ray", "topology.kubernetes.io/zone": "eu-1"}),
    "downward API, one line": ('app="ray"', {"app": "ray"}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_labels_is_read(name: str, tmp_path: Path) -> None:
    text, want = FILES[name]
    path = tmp_path / "labels.yaml"
    path.write_text(text, encoding="utf-8")
    assert labels_in_file(path) == want


BAD_FILES = {
    "not YAML": (b"zone: [", "is not YAML"),
    "a list": (b"- zone", "not labels"),
    "a text": (b"zone", "not labels"),
    "a bool": (b"spot: true", "label value True is a bool"),
    "not text": (b"\xff\xfe", "cannot be read"),
    "nested": (b"[" * 5000, "is not YAML"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    content, message = BAD_FILES[name]
    path = tmp_path / "labels.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidLabelError) as caught:
        labels_in_file(path)
    assert message in str(caught.value)
    assert "labels.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidLabelError, match="cannot be read"):
        labels_in_file(tmp_path / "none.yaml")
