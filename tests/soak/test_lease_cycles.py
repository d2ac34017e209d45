"""Five hundred actors with labels, made and killed: no token is left, no name is added, and Ray sees few kinds of tasks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import remora
from remora.live.adapter.ray_port import RayPort

CYCLES, AT_ONCE = 100, 5


class Mayfly:
    def ping(self) -> None:
        pass


def tokens() -> set[str]:
    return {name for view in RayPort().observe().nodes for name in view.total if name.startswith("remora/lease/")}


def test_five_hundred_actors_made_and_killed_leave_nothing_behind() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        mayfly = ray.remote(Mayfly)  # once: every class is a kind of task of its own to Ray
        seen: list[set[str]] = []
        for _ in range(CYCLES):
            made = [mayfly.options(num_cpus=0, labels={"type": "mayfly"}).remote() for _ in range(AT_ONCE)]
            ray.get([each.ping.remote() for each in made], timeout=120)
            seen.append({work.labels["remora.io/lease"] for work in RayPort().find(None) if "remora.io/lease" in work.labels})
            for each in made:
                ray.kill(each)
        first, all_ = set().union(*seen[: CYCLES // 5]), set().union(*seen)
        assert len(all_) <= len(first) + AT_ONCE, (len(first), len(all_))
        until = time.monotonic() + 60
        while tokens():
            assert time.monotonic() < until, tokens()
            time.sleep(0.5)
        assert warnings() == []
    finally:
        remora.detach()
        ray.shutdown()
        cluster.shutdown()


def warnings() -> list[Any]:
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    found = (path for path in logs.iterdir() if path.is_file() and os.access(path, os.R_OK))
    return [path.name for path in found if "types of tasks" in path.read_text(encoding="utf-8", errors="ignore")]
