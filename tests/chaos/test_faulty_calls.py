"""Calls that Ray loses or holds up: those by which tokens, keys, actors and groups are written, failed and delayed at random.

Ray's own switches do it, inside the processes that call (``RAY_testing_rpc_failure``) and that answer
(``RAY_testing_asio_delay_us``). A call is lost on its way there, on its way back, or while it is worked on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.chaos.breakable import breakable, part
from tests.chaos.checker import Checker
from tests.chaos.load import Load

GCS_CALLS = (
    "autoscaler::AutoscalerStateService.grpc_client.ResizeRayletResourceInstances",
    "InternalKVGcsService.grpc_client.InternalKVPut",
    "InternalKVGcsService.grpc_client.InternalKVGet",
    "InternalKVGcsService.grpc_client.InternalKVDel",
    "InternalKVGcsService.grpc_client.InternalKVKeys",
    "ActorInfoGcsService.grpc_client.GetAllActorInfo",
    "PlacementGroupInfoGcsService.grpc_client.CreatePlacementGroup",
    "PlacementGroupInfoGcsService.grpc_client.RemovePlacementGroup",
)
RAYLET_CALLS = ("ResizeLocalResourceInstances", "PrepareBundleResources", "CommitBundleResources", "RequestWorkerLease")
FAILURES = {"num_failures": -1, "req_failure_prob": 5, "resp_failure_prob": 5, "in_flight_failure_prob": 5}

LOSING = {f"ray::rpc::{name}": FAILURES for name in GCS_CALLS} | {
    f"NodeManagerService.grpc_client.{name}": FAILURES for name in RAYLET_CALLS
}
LATE = {f"NodeManagerService.grpc_server.{name}": "0:300000" for name in RAYLET_CALLS} | {
    f"{name.replace('grpc_client', 'grpc_server').removeprefix('autoscaler::')}": "0:100000" for name in GCS_CALLS
}
SWITCHES = {
    "lost": {"RAY_testing_rpc_failure": json.dumps(LOSING)},
    "late": {"RAY_testing_asio_delay_us": ",".join(f"{name}={range_}" for name, range_ in LATE.items())},
}


@pytest.mark.parametrize("what", SWITCHES)
def test_calls_lost_and_late(what: str, checker_of: Callable[[str], Checker], survived: Any) -> None:
    """The twin is another cluster, without the switch: both do the same work, and come to the same end."""
    done = {}
    for faults in (False, True):
        checker = None
        with breakable(f"calls {what}", environment=SWITCHES[what] if faults else {}, is_kept=not faults) as rig:
            checker = checker_of("faults" if faults else "calm")
            load = Load(rig, checker)
            with checker.watching():
                load.run(part(40 if faults else 5))
            checker.settled()
            load.check(once=not faults)
            done[faults] = load.figures()
    survived(calls=what, **done[True])
