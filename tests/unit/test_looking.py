"""What introspection is told by the controller, over the in-memory cluster; and whose a token is."""

from typing import Any

import pytest

from remora import FixedSizeNode, FixedSizeNodes, VirtualCluster
from remora.controller.core import Controller
from remora.model.taints import Tolerations
from remora.seam.memory import MemoryPort
from remora.seam.port import JOB, RUNNING, Work
from remora.wire.tokens import class_token, cluster_of_work, lease_token, share_token, without_tokens


@pytest.fixture
def controller() -> Controller:
    port = MemoryPort()
    for name in ("raylet1", "raylet2"):
        port.join(name, {"CPU": 4})
    port.submit(Work(JOB, "j1", "", "j1", RUNNING, "", ()))
    made = Controller(port, lambda: 1000.0)
    made.round()
    return made


def rows(controller: Controller) -> dict[str, dict[str, Any]]:
    return {row["cluster_id"]: row for row in controller.look_clusters()}


def test_the_root_is_the_physical_cluster(controller):
    (root,) = rows(controller).values()
    assert (root["cluster_id"], root["parent"], root["total"], root["used"]) == ("root", None, {"CPU": 8}, {})
    assert [node["labels"] for node in root["nodes"]] == [
        {"ray.io/vnode_id": name, "ray.io/vcluster_id": "root"} for name in ("raylet1", "raylet2")
    ]


def test_what_a_virtual_cluster_has_is_not_available_in_the_root(controller):
    """The proposal's walk-through: two virtual nodes of one CPU, strictly spread."""
    spread = FixedSizeNodes([FixedSizeNode({"CPU": 1}), FixedSizeNode({"CPU": 1})], "STRICT_SPREAD")
    made = controller.create_cluster(VirtualCluster(fixed_size_nodes=[spread]), None, "j1", 0, Tolerations(), 5.0)
    seen = rows(controller)
    assert [node["used"] for node in seen["root"]["nodes"]] == [{"CPU": 1}, {"CPU": 1}]
    own = seen[made["cluster_id"]]
    assert (own["parent"], own["total"], own["used"]) == (None, {"CPU": 2}, {})
    assert sorted(node["parent"] for node in own["nodes"]) == ["raylet1", "raylet2"]


def test_looking_observes_but_makes_no_round(controller, monkeypatch):
    monkeypatch.setattr(controller, "round", None)
    controller.port.take("raylet1", {"CPU": 3})
    controller.now = lambda: 2000.0
    assert rows(controller)["root"]["used"] == {"CPU": 3}


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"CPU": 1}, None),
        ({"CPU": 1, class_token("abc"): 1}, None),
        ({lease_token("7"): 1}, None),
        ({class_token("vc3.abc"): 1}, "vc3"),
        ({"CPU": 1, share_token("vc3", "CPU"): 1}, "vc3"),
        ({share_token("vc3.abc", "CPU"): 1}, "vc3"),
    ],
)
def test_a_token_tells_whose_work_it_is(resources, want):
    assert cluster_of_work(resources) == want


def test_no_token_is_shown():
    amounts = {"CPU": 1.0, "CPU_group_ab": 1.0, class_token("x"): 1.0, class_token("x") + "_group_0_ab": 1.0}
    assert without_tokens(amounts) == {"CPU": 1.0, "CPU_group_ab": 1.0}
