"""Never more machines than Ray's own autoscaler starts: 3,000 random cases with labels and limits, both in this process."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated.autoscaler_pb2 import ResourceRequestByCount
from ray.core.generated.common_pb2 import LabelSelectorOperator

from remora.kernel.provisioning.demands import Demand, Waiting
from remora.kernel.provisioning.planning import plan
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.type_table import TypeTable
from remora.model.node_types import NodeType, NodeTypes
from remora.model.requests import parse_request
from remora.model.resources import Resources

CASES = 3_000
BATCH = 500

Kinds = list[tuple[dict[str, float], dict[str, str], int]]
"""What each needs, its selector, how many there are."""


@pytest.fixture(autouse=True)
def _ray_is_quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def make_case(seed: int) -> tuple[NodeTypes, Kinds]:
    dice = random.Random(seed)
    types = []
    for number in range(dice.randint(1, 4)):
        amounts: dict[str, float] = {"CPU": dice.choice([2, 4, 8, 16])}
        if dice.random() < 0.6:
            amounts["memory"] = dice.choice([4, 8, 16, 32])
        if dice.random() < 0.35:
            amounts["GPU"] = dice.choice([1, 2, 4])
        labels = (("zone", dice.choice("ab")),) if dice.random() < 0.7 else ()
        types.append(NodeType(f"t{number}", Resources.parse(amounts), labels, most=dice.choice([1, 2, 3, 50])))
    kinds: Kinds = []
    for _ in range(dice.randint(1, 6)):
        need: dict[str, float] = {"CPU": dice.choice([0.5, 1, 2, 3, 4, 5])}
        if dice.random() < 0.4:
            need["memory"] = dice.choice([1, 2, 4, 6, 8])
        if dice.random() < 0.25:
            need["GPU"] = dice.choice([0.5, 1, 2])
        kinds.append((need, {"zone": dice.choice("ab")} if dice.random() < 0.35 else {}, dice.randint(1, 12)))
    return NodeTypes(tuple(types), dice.choice([2, 3, 5, 8, 200])), kinds


def asked_of_ray(types: NodeTypes, kinds: Kinds) -> tuple[int, int]:
    """Return what Ray leaves without a machine, and how many it starts."""
    configs = {
        each.name: NodeTypeConfig(
            name=each.name,
            min_worker_nodes=0,
            max_worker_nodes=each.most,
            resources=each.resources.to_dict(),
            labels=dict(each.labels),
        )
        for each in types
    }
    requests = []
    for need, selector, count in kinds:
        terms = [(key, LabelSelectorOperator.LABEL_OPERATOR_IN, [value]) for key, value in selector.items()]
        request = ResourceRequestUtil.make(need, label_selectors=[terms] if terms else None)
        requests.append(ResourceRequestByCount(request=request, count=count))
    reply: Any = ResourceDemandScheduler().schedule(
        SchedulingRequest(
            disable_launch_config_check=True, node_type_configs=configs, max_num_nodes=types.most, resource_requests=requests
        )
    )
    return len(reply.infeasible_resource_requests), sum(launch.count for launch in reply.to_launch)


def asked_of_us(types: NodeTypes, kinds: Kinds) -> tuple[int, int]:
    work = tuple(
        Demand(number, f"kind {number}", parse_request("task", resources=need, label_selector=selector or None), count)
        for number, (need, selector, count) in enumerate(kinds)
    )
    found = plan(Cluster(), Waiting(work=work), TypeTable(types))
    return sum(answer.count - answer.served for answer in found.answers), sum(found.add.values())


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_never_more_machines_than_ray_and_never_more_left_over(first: int) -> None:
    better = 0
    for seed in range(first, first + BATCH):
        types, kinds = make_case(seed)
        ours, rays = asked_of_us(types, kinds), asked_of_ray(types, kinds)
        assert ours <= rays, f"case {seed}: (left, machines) is {ours}, and {rays} in Ray"
        better += ours < rays
    assert better > BATCH // 50  # or the cases say nothing
