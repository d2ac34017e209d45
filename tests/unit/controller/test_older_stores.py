"""What a Remora before entries had versions has written, to the letter: it is read, and the cluster goes on as it was."""

from __future__ import annotations

import json

import pytest
from tests.unit.controller.worlds import ANY, World

from remora.port.contract import ENDED, GROUP, JOB, RUNNING, WORKER, Work
from remora.port.memory_port import MemoryPort
from remora.wire import calls
from remora.wire.classes import ClassSpec
from remora.wire.keys import CLASSES, CLUSTERS, HOLDS, OBJECTS, OVERRIDES, TASK_LEASES, read_entry
from remora.wire.tokens import class_token, share_token

TASK = (
    r'["j1", "{\"kind\":\"task\",\"resources\":{\"CPU\":10000},\"demand\":{\"CPU\":10000},\"choices\":[[[],[],[],null]],'
    r"\"wishes\":[],\"wished_node\":null,\"affinities\":[],\"policy\":\"DEFAULT\",\"namespace\":\"tests\",\"cluster\":null,"
    r'\"labels\":[[\"stage\",\"load\"]]}"]'
)
BERTH = (
    r'{"group":"{\"strategy\":\"PACK\",\"options\":[[[{\"CPU\":10000},[[],[],[],null]]]],\"cluster\":\"vc2\"}",'
    r'"ask":"a question","group_id":"group","taken":true,"left":false}'
)
STORE = {
    "class/6cdcf3fe755b150a": '{"choices":[[[],[],[],null]],"cluster":null,"demand":{},"takers":""}',
    "class/vc2.6cdcf3fe755b150a": '{"choices":[[[],[],[],null]],"cluster":"vc2","demand":{},"takers":""}',
    "events": '[{"at":"1970-01-01T00:16:40.000+00:00","kind":"cluster","subject":"vc9","text":"ready"}]',
    "fence/n2": '[["6cdcf3fe755b150a"],["vc1"]]',
    "generation": "1",
    "hold/n1/remora-hold-n1-0": '{"remora/vc/vc2/CPU": 1.0}',
    "lease/1.1": TASK,
    "node/n1": '{"labels": {"zone": "z"}, "taints": {}}',
    "node/n2": '{"labels": {}, "taints": {"k": "v"}}',
    "object/o1": '[[["set", "x"]], "n1", "tests", "j1"]',
    "vc/vc1": '{"spec":{"fixed_size_nodes":[{"nodes":[{"resources":{"CPU":1.0},"labels":{}},{"resources":{"CPU":1.0},'
    '"labels":{}}],"scheduling_policy":"STRICT_SPREAD"}]},"parent":null,"job":"j1","priority":0,"order":1,"idle":5.0,'
    '"state":"READY","closing":false,"tolerations":[],"vnodes":[[0,"n1",null,{"CPU":10000}],[1,"n2",null,{"CPU":10000}]],'
    '"berth":null}',
    "vc/vc2": '{"spec":{"flexible_resource_min":{"CPU":3.0},"flexible_resource_max":{"CPU":4.0}},"parent":null,"job":"j1",'
    '"priority":0,"order":2,"idle":5.0,"state":"READY","closing":false,"tolerations":[],'
    '"vnodes":[[null,"n1",null,{"CPU":30000}]],"berth":null}',
    "vc/vc2+1": '{"spec":{"fixed_size_nodes":[{"nodes":[{"resources":{"CPU":1.0},"labels":{}}],"scheduling_policy":"PACK"}]},'
    '"parent":"vc2","job":"j1","priority":0,"order":5,"idle":0.0,"state":"READY","closing":false,"tolerations":[],'
    '"vnodes":[[0,"n1",null,{"CPU":10000}]],"berth":' + BERTH + "}",
    "vc/vc3": '{"spec":{"flexible_resource_min":{"CPU":1.0}},"parent":"vc2","job":"j1","priority":0,"order":3,"idle":5.0,'
    '"state":"READY","closing":false,"tolerations":[],"vnodes":[[null,"n1",null,{"CPU":10000}]],"berth":null}',
    "vc/vc4": '{"spec":{"flexible_resource_min":{"CPU":8.0}},"parent":null,"job":"j1","priority":2,"order":4,"idle":5.0,'
    '"state":"QUEUED","closing":false,"tolerations":[],"vnodes":[],"berth":null}',
}
"""Two clusters, one inside the second, one in the queue, and a placement group in the second that GCS has reserved."""

PLAIN = class_token("6cdcf3fe755b150a")
BUNDLE = "remora/vc/vc2+1+0/CPU"


@pytest.fixture
def port() -> MemoryPort:
    """The nodes as that controller left them."""
    port = MemoryPort()
    for name in ("n1", "n2"):
        port.join(name, {"CPU": 4})
    shares = {share_token("vc1", "CPU"): 1.0, share_token("vc2", "CPU"): 2.0, share_token("vc3", "CPU"): 1.0, BUNDLE: 1.0}
    port.resize("n1", {**shares, PLAIN: 1000.0, class_token("vc2.6cdcf3fe755b150a"): 1000.0})
    port.resize("n2", {share_token("vc1", "CPU"): 1.0})
    assert port.hold("remora-hold-n1-0", "n1", {share_token("vc2", "CPU"): 1.0})
    port.take("n1", {BUNDLE: 1.0, "CPU": 1.0})
    port.submit(Work(GROUP, "group", "", "j1", RUNNING, "", ({BUNDLE: 1.0, "CPU": 1.0},)))
    port.submit(Work(JOB, "j1", "", "j1", RUNNING, "", ()))
    for key, value in STORE.items():
        port.put(key, value.encode())
    return port


@pytest.fixture
def world(port: MemoryPort) -> World:
    return World(nodes=(), port=port)


def test_clusters_are_as_they_were(world: World) -> None:
    assert {each: world.state(each) for each in ("vc1", "vc2", "vc3", "vc4")} == {
        "vc1": "READY",
        "vc2": "READY",
        "vc3": "READY",
        "vc4": "QUEUED",
    }
    assert world.tokens("vc1") == {"n1": 1, "n2": 1}
    assert world.tokens("vc3") == {"n1": 1}
    assert world.free("vc2") == 1
    rows = {row["cluster_id"]: row for row in world.ask(calls.GetClusters())}
    assert rows["vc3"]["parent"] == "vc2"
    assert rows["vc4"]["priority"] == 2
    assert rows["vc2"]["max"] == {"CPU": 4}
    assert world.sums()["n1"] == 4
    world.want("vc2", 9)
    assert sum(world.tokens("vc2").values()) - sum(world.held(node, share_token("vc2", "CPU")) for node in ("n1", "n2")) <= 2


def test_the_share_of_a_placement_group_is_known_by_its_question_and_its_id(world: World) -> None:
    assert world.group_shares() == ["vc2+1"]
    world.later(30)
    assert world.group_shares() == ["vc2+1"]
    assert world.offer("vc2", {"CPU": 1}, ask="a question").share_id == "vc2+1"
    world.remove_group("group", [("n1", {BUNDLE: 1.0, "CPU": 1.0})])
    assert world.release("group")
    world.later(0.1)
    assert world.group_shares() == []
    assert world.standing("vc2+1") == 0


def test_labels_taints_classes_fences_and_what_happened_are_known(world: World) -> None:
    nodes = {row["node_id"]: row for row in world.ask(calls.GetStatus())["nodes"]}
    assert nodes["n1"]["labels"]["zone"] == "z"
    assert nodes["n2"]["taints"] == {"k": "v"}
    assert world.offered_on(PLAIN) == {"n1"}
    assert world.ask(calls.EnsureClass(ClassSpec((ANY,)).encode())) == ["n1"]
    assert any(each["subject"] == "vc9" for each in world.ask(calls.GetEvents()))
    assert world.create(flexible_resource_max={"CPU": 1}) == "vc10"  # names of before rest, also those that are gone


def test_a_task_and_an_object_are_known_until_they_end(world: World) -> None:
    assert world.port.keys(TASK_LEASES.prefix) == ["lease/1.1"]
    assert world.port.keys(OBJECTS.prefix) == ["object/o1"]
    world.later(30)
    assert world.port.keys(TASK_LEASES.prefix) == ["lease/1.1"]
    world.ask(calls.GiveUp("1.1", ""))
    world.ask(calls.DropObject("o1"))
    assert world.port.keys(TASK_LEASES.prefix) == []
    assert world.port.keys(OBJECTS.prefix) == []


def test_what_is_held_is_held_on_and_let_go_when_its_cluster_ends(world: World) -> None:
    assert ("n1", {share_token("vc2", "CPU"): 1.0}) in world.holds()
    assert world.controller.book.held("n1", share_token("vc2", "CPU")) == 1
    world.remove_group("group", [("n1", {BUNDLE: 1.0, "CPU": 1.0})])
    world.job("j1", ENDED)
    for _ in range(3):
        world.later(1)
    assert world.holds() == []
    assert world.port.keys(HOLDS.prefix) == []
    assert world.port.keys(CLUSTERS.prefix) == []
    assert world.sums() == {"n1": 0, "n2": 0}


def test_entries_of_clusters_are_written_as_they_are_now_and_read_by_the_next(world: World) -> None:
    world.later(1)
    versions = {key: read_entry(world.port.get(key) or b"")[0] for key in world.port.keys(CLUSTERS.prefix)}
    assert set(versions.values()) == {CLUSTERS.version}
    before = {each: world.state(each) for each in ("vc1", "vc2", "vc3", "vc4")}
    world.restart()
    assert {each: world.state(each) for each in before} == before
    assert world.group_shares() == ["vc2+1"]
    assert {CLASSES.version, OVERRIDES.version} == {2}


def test_a_closed_one_goes_on_until_its_work_has_ended(port: MemoryPort) -> None:
    body = json.loads(STORE["vc/vc1"])
    port.put("vc/vc1", json.dumps({**body, "closing": True, "job": ""}).encode())
    port.take("n2", {share_token("vc1", "CPU"): 1.0, "CPU": 1.0})
    world = World(nodes=(), port=port)
    world.later(1)
    assert world.state("vc1") == "CLOSED"
    assert world.tokens("vc1") == {"n2": 1}
    port.give("n2", {share_token("vc1", "CPU"): 1.0, "CPU": 1.0})
    world.later(1)
    world.later(1)
    assert world.state("vc1") == "GONE"


def test_one_that_cannot_be_read_is_set_aside_and_the_rest_lives(port: MemoryPort) -> None:
    """Its child and its placement group are, as far as anybody knows, in no other cluster."""
    port.put("vc/vc2", b'{"spec":{"flexible_resource_min":{"CPU":3.0}},"parent":nul')
    world = World(nodes=(), port=port, allows_failures=True)
    assert ("entry", "vc/vc2") in world.set_aside()
    assert {each: world.state(each) for each in ("vc1", "vc2", "vc3")} == {"vc1": "READY", "vc2": "GONE", "vc3": "READY"}
    world.later(1)
    assert world.tokens("vc1") == {"n1": 1, "n2": 1}
    assert sum(world.tokens("vc3").values()) == 1
    assert world.group_shares() == ["vc2+1"]
    assert port.get("vc/vc2") == b'{"spec":{"flexible_resource_min":{"CPU":3.0}},"parent":nul'
    assert world.create(flexible_resource_max={"CPU": 1}) not in ("vc2", "vc3")
    assert max(world.sums().values()) <= 4
    port.submit(Work(WORKER, "w1", "", "", ENDED, "", ()))
    world.later(1)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"state": "WHAT"},
        {"vnodes": [[7, "n1", None, {"CPU": 10000}]]},
        {"vnodes": [[0, "n1"]]},
        {"priority": "high"},
        {"spec": 1},
    ],
)
def test_a_body_that_makes_no_sense_changes_nothing(port: MemoryPort, spoilt: dict[str, object]) -> None:
    port.put("vc/vc1", json.dumps({**json.loads(STORE["vc/vc1"]), **spoilt}).encode())
    world = World(nodes=(), port=port, allows_failures=True)
    assert ("virtual cluster", "vc1") in world.set_aside()
    assert world.state("vc2") == "READY"
    world.later(1)
    world.controller.validate()
