"""How machines are asked for, with the scheduler of Ray's autoscaler as the referee: what is asked for is what it starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
from ray.autoscaler.v2.scheduler import AutoscalerInstance, ResourceDemandScheduler, SchedulingRequest
from ray.core.generated.autoscaler_pb2 import (
    ClusterResourceConstraint,
    GetClusterStatusReply,
    NodeState,
    NodeStatus,
    ResourceRequest,
    ResourceRequestByCount,
)
from ray.core.generated.common_pb2 import LabelSelector, LabelSelectorConstraint, LabelSelectorOperator
from ray.core.generated.instance_manager_pb2 import Instance
from tests.autoscaling_ray import TYPES, config

from remora.errors import InvalidNodeTypeError
from remora.live.adapter import asking, machine_messages
from remora.live.adapter.asking import Bundle
from remora.live.adapter.ray_scaler import RayScaler
from remora.live.adapter.type_sources import GivenFile, KubeRay, MonitorsFile, find_source, monitors_file
from remora.model.node_types import NodeTypes, parse_node_types
from remora.port.scaler import Failure, Request

LABELLED: dict[str, Any] = {
    "web": {"resources": {"CPU": 2}, "labels": {"kind": "web"}},
    "gpu": {"resources": {"CPU": 2, "GPU": 1}, "labels": {"kind": "gpu"}, "taints": {"gpu_node": "true"}},
    "plain": {"resources": {"CPU": 2}},
}
UNLABELLED: dict[str, Any] = {
    "small": {"resources": {"CPU": 2}},
    "large": {"resources": {"CPU": 8}},
    "gpu": {"resources": {"CPU": 2, "GPU": 1}},
}


def types_of(listed: dict[str, Any]) -> NodeTypes:
    return parse_node_types({"node_types": listed})


def message(bundles: list[Bundle]) -> ClusterResourceConstraint:
    """As GCS makes it of what it is told."""
    found = ClusterResourceConstraint()
    for bundle in bundles:
        constraints = [
            LabelSelectorConstraint(
                label_key=key,
                operator=LabelSelectorOperator.LABEL_OPERATOR_NOT_IN
                if written.startswith("!")
                else LabelSelectorOperator.LABEL_OPERATOR_IN,
                label_values=asking.values_in(written),
            )
            for key, written in bundle.selector.items()
        ]
        request = ResourceRequest(
            resources_bundle=bundle.amounts, label_selectors=[LabelSelector(label_constraints=constraints)]
        )
        found.resource_requests.append(ResourceRequestByCount(request=request, count=bundle.nodes))
    return found


def started(types: NodeTypes, bundles: list[Bundle], live: dict[str, str]) -> dict[str, int]:
    """What Ray would start for a constraint, beside a head and these nodes: by id, of which type each is."""
    configs = {
        each.name: NodeTypeConfig(
            name=each.name,
            min_worker_nodes=0,
            max_worker_nodes=10,
            resources=each.resources.to_dict(),
            labels=asking.labels_of(each),
        )
        for each in types
    }
    configs["head"] = NodeTypeConfig(name="head", min_worker_nodes=0, max_worker_nodes=0, resources={"memory": 10.0})
    nodes = [_instance("head", "head", {"memory": 10.0}, {})]
    for node_id, name in live.items():
        each = types.get(name)
        assert each is not None
        nodes.append(_instance(node_id, name, {**each.resources.to_dict(), "memory": 10.0}, asking.labels_of(each)))
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=configs,
        max_num_nodes=100,
        resource_requests=[],
        gang_resource_requests=[],
        cluster_resource_constraints=[message(bundles)] if bundles else [],
        current_instances=nodes,
    )
    reply = ResourceDemandScheduler().schedule(request)
    return {each.instance_type: each.count for each in reply.to_launch}


def _instance(node_id: str, name: str, total: dict[str, float], labels: dict[str, str]) -> AutoscalerInstance:
    state = NodeState(
        node_id=node_id.encode(),
        ray_node_type_name=name,
        total_resources=total,
        available_resources=dict.fromkeys(total, 0.0),
        labels={**labels, "ray.io/node-id": node_id},
        status=NodeStatus.RUNNING,
    )
    instance = Instance(instance_id=node_id, instance_type=name, status=Instance.RAY_RUNNING)
    return AutoscalerInstance(ray_node=state, im_instance=instance, cloud_instance_id=node_id)


@pytest.mark.parametrize("listed", [LABELLED, UNLABELLED], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize("count", [1, 3])
def test_so_many_machines_are_started_beside_those_that_are_there(listed: dict[str, Any], count: int) -> None:
    types = types_of(listed)
    for each in types:
        for there in ({}, {f"n{number}": name for number, name in enumerate([*listed, *listed])}):
            bundles = asking.spell(types, {each.name: count}, {**there, "head": ""}, "head")
            assert started(types, bundles, there) == {each.name: count}, (each.name, there)


def test_a_machine_that_came_meets_what_was_asked_for_though_it_is_full() -> None:
    types = types_of(LABELLED)
    bundles = asking.spell(types, {"web": 2}, {"old": "web", "head": ""}, "head")
    assert started(types, bundles, {"old": "web", "new": "web"}) == {"web": 1}
    assert started(types, bundles, {"old": "web", "new": "web", "newer": "web"}) == {}


def test_several_types_and_what_others_asked_for_are_met_by_the_same_machines() -> None:
    types = types_of(LABELLED)
    ours = asking.spell(types, {"web": 2, "gpu": 1}, {"head": ""}, "head")
    theirs = [Bundle({"CPU": 2.0}, {"kind": "web"}, 2)]
    assert started(types, [*theirs, *ours], {}) == {"web": 2, "gpu": 1}


def test_what_is_written_can_be_read_again() -> None:
    types = types_of(LABELLED)
    bundles = asking.spell(types, {"web": 2, "gpu": 1}, {"a": "web", "b": "gpu", "head": ""}, "head")
    reply = GetClusterStatusReply()
    reply.cluster_resource_state.cluster_resource_constraints.append(message([Bundle({"CPU": 4.0}, {}, 3), *bundles]))
    read = machine_messages.constraint(reply.SerializeToString())
    assert asking.read(read) == {"web": Request(2, frozenset({"a", "head"})), "gpu": Request(1, frozenset({"b", "head"}))}
    assert [each for each in read if not asking.is_ours(each)] == [Bundle({"CPU": 4.0}, {}, 3)]


def test_beside_it_is_one_bundle_that_the_head_meets() -> None:
    """Releases of Ray before 2.60 take no node for counted where there are implicit resources only."""
    *_, companion = asking.spell(types_of(LABELLED), {"web": 1}, {"head": ""}, "head")
    assert companion == Bundle({"memory": 1.0}, {"ray.io/node-id": "head", "remora.io/asked": "!none"}, 1)


def test_with_nothing_wanted_nothing_is_written() -> None:
    assert asking.spell(types_of(LABELLED), {}, {"a": "web"}, "head") == []


def test_the_status_says_what_is_coming_what_failed_and_what_is_busy() -> None:
    reply = GetClusterStatusReply()
    state = reply.autoscaling_state
    state.pending_instance_requests.add(ray_node_type_name="web", count=2)
    state.pending_instances.add(ray_node_type_name="web", instance_id="i1")
    state.pending_instances.add(ray_node_type_name="gpu", instance_id="i2")
    state.failed_instance_requests.add(ray_node_type_name="gpu", reason="no capacity", failed_ts=12)
    state.failed_instance_requests.add(ray_node_type_name="web", reason="Launch capped by maxReplicas limit.", failed_ts=13)
    reply.cluster_resource_state.node_states.add(node_id=b"\x01", instance_id="i2", idle_duration_ms=0)
    reply.cluster_resource_state.node_states.add(node_id=b"\x02", instance_id="i3", idle_duration_ms=12)
    state.failed_instance_requests.add(ray_node_type_name="big", failed_ts=14)
    data = reply.SerializeToString()
    assert machine_messages.requested(data) == {"web": 2}
    assert machine_messages.granted(data) == {"web": 1}, "one that has joined is not coming"
    first, second = machine_messages.failures(data)
    assert first == Failure("gpu", "no capacity", 12.0)
    assert "monitor.log on the head says why" in second.reason, "Ray does not always tell"
    assert machine_messages.busy_nodes(data) == {"01"}
    assert not machine_messages.is_refused(data)
    state.infeasible_cluster_resource_constraints.add()
    assert machine_messages.is_refused(reply.SerializeToString())


class Gcs:
    """What a scaler needs of a GCS client; ``constraint`` is the one that stands."""

    def __init__(self, constraint: list[Bundle], version: bytes | None = b"1") -> None:
        self.constraint = constraint
        self.version = version

    def internal_kv_get(self, key: bytes, namespace: bytes) -> bytes | None:
        assert (key, namespace) == (b"__autoscaler_v2_enabled", b"__autoscaler")
        return self.version

    def request_cluster_resource_constraint(
        self, bundles: list[dict[str, float]], selectors: list[dict[str, str]], counts: list[int], timeout_s: float
    ) -> None:
        self.constraint = [Bundle(*each) for each in zip(bundles, selectors, counts, strict=True)]

    def __call__(self, method: str, request: bytes) -> bytes:
        reply = GetClusterStatusReply()
        reply.cluster_resource_state.cluster_resource_constraints.append(message(self.constraint))
        return reply.SerializeToString()


class Source:
    name = "here"

    def read(self) -> NodeTypes:
        return types_of(LABELLED)


def test_what_others_asked_for_stays_whatever_is_asked_and_withdrawn() -> None:
    theirs = [Bundle({"CPU": 4.0}, {"kind": "web"}, 3), Bundle({"CPU": 1.0}, {"zone": "in(a,b)", "tier": "!c"}, 1)]
    gcs = Gcs(list(theirs))
    scaler = RayScaler(gcs, gcs, Source())  # type: ignore[arg-type]
    scaler.node_types()
    scaler.ask({"web": 1}, {"head": ""}, "head")
    assert gcs.constraint[:2] == theirs
    assert {name: each.count for name, each in scaler.survey().asked.items()} == {"web": 1}
    assert scaler.survey().others == 2
    scaler.ask({}, {"head": ""}, "head")
    assert gcs.constraint == theirs


def test_autoscaler_v1_is_refused_in_one_sentence() -> None:
    gcs = Gcs([], None)
    with pytest.raises(Exception, match="autoscaler v1, which knows no labels: attached work adds no node"):
        RayScaler(gcs, gcs, Source()).node_types()  # type: ignore[arg-type]


# Where the types are declared


def test_the_monitors_command_line_names_the_file() -> None:
    lines = [
        ["python", "-u", "/ray/_private/monitor.py", "--gcs-address=10.0.0.1:6379", "--autoscaling-config=/other"],
        ["python", "-u", "/ray/_private/monitor.py", "--gcs-address=10.0.0.1:6380", "--autoscaling-config=/mine"],
    ]
    assert monitors_file("10.0.0.1:6380", lines) == "/mine"
    assert monitors_file("10.0.0.9:6380", lines) is None
    assert monitors_file("10.0.0.1:638", lines) is None
    assert monitors_file("10.0.0.1:6380", [["monitor.py", "--gcs-address=10.0.0.1:6380"]]) is None


def test_without_any_of_them_there_is_no_autoscaler(tmp_path: Path) -> None:
    assert find_source("10.0.0.1:6379", {}, tmp_path) is None


def test_a_file_that_was_given_comes_first_and_kuberay_last(tmp_path: Path) -> None:
    assert isinstance(find_source("a:1", {"REMORA_NODE_TYPES": "types.yaml"}, tmp_path), GivenFile)
    inside = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "RAY_CLUSTER_NAME": "mine",
        "RAY_CLUSTER_NAMESPACE": "team",
        "RAY_enable_autoscaler_v2": "true",
    }
    found = find_source("a:1", inside, tmp_path)
    assert isinstance(found, KubeRay)
    assert found.name == "the RayCluster team/mine"
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cmdline").write_bytes(b"monitor.py\0--gcs-address=a:1\0--autoscaling-config=/f\0")
    assert isinstance(find_source("a:1", inside, tmp_path), MonitorsFile)


def test_a_file_of_the_autoscaler_is_read_as_it_reads_it_and_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config(TYPES, "a:1", tmp_path / "scarce")))
    source = MonitorsFile(str(file))
    types = source.read()
    assert [(each.name, each.most, dict(each.labels), dict(each.taints)) for each in types] == [
        ("web", 3, {"kind": "web"}, {}),
        ("gpu", 2, {"kind": "gpu"}, {"gpu_node": "true"}),
    ]
    assert types.most == 6
    assert types.types[0].idle_seconds == 9
    assert source.read() is types
    file.write_text(json.dumps(config({"web": TYPES["web"]}, "a:1", tmp_path / "scarce", max_workers=2)))
    os.utime(file, (1, 1))
    assert source.read().most == 2


def test_a_type_that_cannot_be_understood_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    bad = {**TYPES["web"], "labels": {"taint.remora.io/": "true"}}
    file.write_text(json.dumps(config({**TYPES, "bad": bad}, "a:1", tmp_path / "scarce")))
    types = MonitorsFile(str(file)).read()
    assert [each.name for each in types] == ["web", "gpu"]
    assert "bad" in types.problems[0]


def test_a_given_file_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidNodeTypeError, match="cannot be read"):
        GivenFile(str(tmp_path / "none.yaml")).read()
