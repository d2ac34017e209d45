"""The report of all nodes, from replies made here: the same as if everything were decoded, and what has not changed is the
identical object."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.core.generated.common_pb2 import PlacementStrategy
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.core.generated.gcs_service_pb2 import GetAllResourceUsageReply

from remora.live.adapter import node_messages
from remora.live.adapter.reports import Reader, nodes_of
from remora.port.contract import Demand, NodeView, Observation

Amounts = dict[str, float]


@dataclass(frozen=True)
class Node:
    number: int
    total: Amounts = field(default_factory=lambda: {"CPU": 2.0})
    available: Amounts = field(default_factory=lambda: {"CPU": 2.0})

    @property
    def node_id(self) -> bytes:
        return bytes([self.number] * 28)

    @property
    def info(self) -> node_messages.Node:
        return node_messages.Node(f"10.0.0.{self.number}", {"zone": f"z{self.number}"}, {"CPU": 4.0}, self.number == 1)


def reply(nodes: list[Node], noise: int = 0) -> Any:
    """``noise`` is in all that changes by itself."""
    made = GetAllResourceUsageReply()
    for node in nodes:
        told = made.resource_usage_data.batch.add(node_id=node.node_id, idle_duration_ms=noise)
        told.resources_total.update(_turned(node.total, noise))
        told.resources_available.update(_turned(node.available, noise))
        told.resource_load["CPU"] = noise
        told.resource_load_by_shape.resource_demands.add(num_ready_requests_queued=noise)
    return made


def _turned(amounts: Amounts, by: int) -> Amounts:
    """The same in another order."""
    names = list(amounts)
    by = by % len(names) if names else 0
    return {name: amounts[name] for name in names[by:] + names[:by]}


def read(reader: Reader, nodes: list[Node], noise: int = 0) -> Observation:
    usage = reply(nodes, noise).SerializeToString()
    return reader.read(usage, nodes_of(usage), {node.node_id: node.info for node in nodes})


def test_a_node_is_shown_with_all_that_is_known_of_it():
    head, other = read(Reader(), [Node(1, available={"CPU": 1.0}), Node(2)]).nodes
    assert head == NodeView("01" * 28, "10.0.0.1", {"zone": "z1"}, {"CPU": 2.0}, {"CPU": 1.0}, is_head=True)
    assert (other.node_id, other.is_head) == ("02" * 28, False)


def test_a_node_that_has_not_changed_is_the_same_object_whatever_else_is_said_of_it():
    reader = Reader()
    nodes = [Node(1, total={"CPU": 2.0, "a": 1.0, "b": 3.0}), Node(2)]
    first, again = read(reader, nodes, noise=1), read(reader, nodes, noise=2)
    assert [new is old for new, old in zip(again.nodes, first.nodes, strict=True)] == [True, True]


@pytest.mark.parametrize("change", [{"total": {"CPU": 3.0}}, {"available": {"CPU": 1.0}}, {"available": {}}])
def test_a_node_that_has_changed_is_another_and_its_neighbour_is_not(change):
    reader = Reader()
    nodes = [Node(1), Node(2)]
    first = read(reader, nodes)
    again = read(reader, [replace(nodes[0], **change), nodes[1]])
    assert again.nodes[0] == replace(first.nodes[0], **change)
    assert again.nodes[1] is first.nodes[1]


def test_amounts_that_change_places_are_seen():
    """What is taken of one token and given back of another leaves every sum as it was."""
    reader = Reader()
    read(reader, [Node(1, available={"a": 1.0, "b": 2.0})])
    assert read(reader, [Node(1, available={"a": 2.0, "b": 1.0})]).nodes[0].available == {"a": 2.0, "b": 1.0}


def test_a_node_that_has_not_reported_yet_has_what_it_registered_with():
    reader = Reader()
    first, again = (read(reader, [Node(1, {}, {})], noise).nodes[0] for noise in (1, 2))
    assert (first.total, first.available) == ({"CPU": 4.0}, {"CPU": 4.0})
    assert again is first
    assert read(reader, [Node(1)]).nodes[0].total == {"CPU": 2.0}


def test_a_node_that_died_before_it_could_be_asked_about_is_left_out():
    usage = reply([Node(1), Node(2)]).SerializeToString()
    found = Reader().read(usage, nodes_of(usage), {Node(2).node_id: Node(2).info})
    assert [view.address for view in found.nodes] == ["10.0.0.2"]


def test_nobody_is_remembered_who_is_gone():
    reader = Reader()
    first = read(reader, [Node(1), Node(2)]).nodes[0]
    assert [view.address for view in read(reader, [Node(2)]).nodes] == ["10.0.0.2"]
    again = read(reader, [Node(1), Node(2)]).nodes[0]
    assert again == first
    assert again is not first


def test_what_waits_is_told_with_its_count_and_a_group_with_its_strategy():
    made = reply([Node(1)])
    load = made.resource_usage_data.resource_load_by_shape.resource_demands
    counts = {"num_ready_requests_queued": 1, "num_infeasible_requests_queued": 2, "backlog_size": 4}
    load.add(**counts).shape.update({"CPU": 1.0, "remora/class/x": 0.0001})
    load.add().shape.update({"CPU": 1.0})  # nobody any more
    groups = made.resource_usage_data.placement_group_load.placement_group_data
    for strategy, state in (
        ("STRICT_SPREAD", "PENDING"),
        ("STRICT_PACK", "PENDING"),
        ("SPREAD", "RESCHEDULING"),
        ("PACK", "CREATED"),
    ):
        group = groups.add(
            strategy=PlacementStrategy.Value(strategy), state=PlacementGroupTableData.PlacementGroupState.Value(state)
        )
        for node_id in (b"", b"\xff" * 28, bytes(28)):
            group.bundles.add(node_id=node_id).unit_resources.update({"GPU": 1.0})
    usage = made.SerializeToString()
    waits = ({"GPU": 1.0}, {"GPU": 1.0})
    assert Reader().read(usage, {}, {}).demands == (
        Demand({"CPU": 1.0, "remora/class/x": 0.0001}, 7),
        Demand({}, 1, waits, "STRICT_SPREAD"),
        Demand({}, 1, waits, "STRICT_PACK"),
        Demand({}, 1, waits, "PACK"),
    )


AMOUNTS = st.dictionaries(st.sampled_from(["CPU", "memory", "a", "b", "c" * 130]), st.sampled_from([0.0, 0.0001, 1.0, 2.0]))
NODES = st.lists(st.builds(Node, st.integers(1, 4), AMOUNTS, AMOUNTS), max_size=4, unique_by=lambda node: node.number)


@given(st.lists(NODES, max_size=6))
def test_every_report_is_what_decoding_all_of_it_gives_and_what_is_said_again_is_the_same_object(history):
    reader = Reader()
    before: dict[str, tuple[Node, NodeView]] = {}
    for noise, nodes in enumerate(history):
        found = {view.node_id: view for view in read(reader, nodes, noise).nodes}
        for node in nodes:
            view = found.pop(node.node_id.hex())
            total, available = (node.total, node.available) if node.total else ({"CPU": 4.0}, {"CPU": 4.0})
            assert (view.total, view.available, view.labels) == (total, available, {"zone": f"z{node.number}"})
            said, seen = before.get(view.node_id, (None, None))
            assert (view is seen) == (node == said)
            found[view.node_id] = view
        before = {node.node_id.hex(): (node, found.pop(node.node_id.hex())) for node in nodes}
        assert not found
