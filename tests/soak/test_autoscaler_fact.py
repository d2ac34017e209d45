"""What Ray's autoscaler (v2, with its fake nodes on this machine) does for the design, and what it does not. ``make soak``.

It needs a cluster of its own. Ray's ``AutoscalingCluster`` is not used: it reads a file that is not in the wheel (so does the
provider type "fake_multinode", hence "external"), and begins with ``ray stop --force``, which would end every Ray on the
machine. Only what was started here is ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from examples.demo.machines import growing_ray
from ray.autoscaler.sdk import request_resources
from tests.autoscaling_ray import eventually, kinds

KINDS = {
    kind: {"resources": {"CPU": 1}, "labels": {"kind": kind}, "node_config": {}, "min_workers": 0, "max_workers": 2}
    for kind in ("web", "batch")
}


@pytest.fixture(scope="module")
def autoscaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with growing_ray(tmp_path_factory.mktemp("autoscaler"), KINDS, idle_timeout_minutes=0.05) as (address, _):
        ray.init(address, logging_level="ERROR", log_to_driver=False)
        yield


def test_a_request_with_a_label_starts_a_node_of_that_kind_which_goes_away_when_idle(autoscaling: None) -> None:
    request_resources(bundles=[{"CPU": 1}], bundle_label_selectors=[{"kind": "web"}])
    assert eventually(kinds) == ["web"]
    request_resources(bundles=[])
    eventually(lambda: not kinds())


def test_a_demand_that_names_a_token_starts_no_node(autoscaling: None) -> None:
    # After the test above: by then this autoscaler has shown that it starts a node within this time.
    ref = ray.remote(num_cpus=1, resources={"fact/token": 0.0001})(lambda: 1).remote()
    assert not ray.wait([ref], timeout=10)[0]
    assert kinds() == []
    ray.cancel(ref)
