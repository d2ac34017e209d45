"""Five hundred placement groups made and half of them removed at random, with a taint, a label and a resize amid all that."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from tests.chaos.breakable import SEED, Breakable, breakable, part
from tests.chaos.checker import Checker

import remora
from remora import VirtualCluster

GROUPS = 500
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
SIZE = 0.01


def test_groups_come_and_go_amid_changes(checker_of: Callable[[str], Checker], survived: Any) -> None:
    counts: Counter[str] = Counter()
    with breakable("groups") as rig:
        for faults in (False, True):
            checker = checker_of("faults" if faults else "calm")
            with checker.watching():
                counts = _life(rig, part(GROUPS), faults)
            checker.settled()
    survived(**counts)


def _life(rig: Breakable, number: int, faults: bool) -> Counter[str]:
    """Make them, in no cluster and in one in turns; remove half of them whenever chance has it, also while they are made."""
    chance = random.Random(f"{SEED} groups")
    counts: Counter[str] = Counter()
    made: list[tuple[Any, bool]] = []
    changes = {number // 4: _taint, number // 2: _label, 3 * number // 4: _resize} if faults else {}
    with VirtualCluster(flexible_resource_min={"CPU": 1}, flexible_resource_max={"CPU": 3}, timeout=60):
        for turn in range(number):
            labels = [{"zone": "in(a, b)"}] * 2 if chance.random() < 0.5 else None
            made.append((_make(chance.choice(STRATEGIES), labels), turn % 2 == 0))
            counts["groups made"] += 1
            if turn in changes:
                changes[turn](rig, chance)
                counts["changes"] += 1
            if chance.random() < 0.5:
                group, _ = made.pop(chance.randrange(len(made)))
                remove_placement_group(group)
                counts["removed at random"] += 1
        for group, _ in made:
            assert group.wait(60), remora.explain(group).reason
        nodes = {node for group, _ in made for node in placement_group_table(group)["bundles_to_node_id"].values()}
        assert nodes
        assert nodes.isdisjoint(rig.tainted_ids)
        for group, _ in made:
            remove_placement_group(group)
    return counts


def _make(strategy: str, labels: list[dict[str, str]] | None) -> Any:
    return placement_group([{"CPU": SIZE}] * 2, strategy=strategy, bundle_label_selector=labels)


def _taint(rig: Breakable, chance: random.Random) -> None:
    """No group that is made afterwards gets a part of the node, and some are made meanwhile."""
    node_id = rig.node_id(chance.choice("ab"))
    remora.taint_node(node_id, {"busy": "true"})
    group = _make("PACK", None)
    assert group.wait(60)
    assert node_id not in placement_group_table(group)["bundles_to_node_id"].values()
    remove_placement_group(group)
    remora.untaint_node(node_id, ["busy"])


def _label(rig: Breakable, _: random.Random) -> None:
    """One waits for a label, and gets it."""
    group = _make("PACK", [{"team": "green"}] * 2)
    assert not group.wait(0.3)
    remora.label_node(rig.node_id("b"), {"team": "green"})
    assert group.wait(60)
    assert {*placement_group_table(group)["bundles_to_node_id"].values()} == {rig.node_id("b")}
    remove_placement_group(group)
    remora.label_node(rig.node_id("b"), {"team": None})


def _resize(rig: Breakable, _: random.Random) -> None:
    """Somebody else takes a node's CPUs away but for one, and gives them back."""
    gcs = ray._private.worker.global_worker.gcs_client
    gcs.resize_raylet_resource_instances(rig.node_id("a"), {"CPU": 1})
    group = _make("SPREAD", None)
    assert group.wait(60)
    remove_placement_group(group)
    gcs.resize_raylet_resource_instances(rig.node_id("a"), {"CPU": 2})
