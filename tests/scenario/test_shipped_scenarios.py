"""What the shipped scenarios come to, in words."""

from typing import Any

import pytest

from remora.sim.history import FINISHED, RUNNING, History, Run
from remora.sim.report import summary, tables, to_dict
from remora.sim.scenario import load_scenario, parse_scenario, shipped
from remora.sim.scenario_run import run_scenario


def play(name: str) -> Run:
    return run_scenario(load_scenario(name), check=True)


def work(run: Run, name: str) -> History:
    return next(item for item in run.work if item.name == name)


def stays(run: Run, name: str) -> list[tuple[tuple[str, ...], float, float | None, str]]:
    return [(stay.nodes, stay.start, stay.end, stay.outcome) for stay in work(run, name).stays]


def waits(run: Run, name: str) -> list[tuple[float, float | None, list[tuple[float, str]]]]:
    return [(wait.start, wait.end, wait.reasons) for wait in work(run, name).waits]


def steps(run: Run, name: str) -> list[tuple[float, str, list[tuple[str, float, float]]]]:
    cluster = next(item for item in run.clusters if item.name == name)
    return [
        (step.at, step.state, [(share.node, share.available["CPU"], share.total["CPU"]) for share in step.shares])
        for step in cluster.steps
    ]


def test_these_scenarios_are_shipped_and_each_says_what_it_shows():
    assert list(shipped()) == [
        "cats-and-dogs",
        "gpu-isolation",
        "job-queue",
        "ten-thousand-nodes",
        "virtual-cluster-walkthrough",
    ]
    for name in shipped():
        scenario = load_scenario(name)
        assert (scenario.name, bool(scenario.description)) == (name, True)


# Cats and dogs


def test_each_node_gets_one_cat_and_three_dogs_with_it():
    run = play("cats-and-dogs")
    on = {item.name: item.node for item in run.work}
    assert [on[f"cat-{i}"] for i in range(4)] == ["node-0", "node-1", "node-2", "node-3"]
    for cat in range(4):
        assert {on[f"dog-{cat}-{dog}"] for dog in range(3)} == {on[f"cat-{cat}"]}
    assert {item.state for item in run.work} == {RUNNING}


def test_the_fifth_cat_waits_for_a_node_without_a_cat():
    run = play("cats-and-dogs")
    reason = "0/4 nodes fit: 4 already host an actor with type in (cat)"
    # The dogs fill the nodes meanwhile, but every node is still refused by the cat on it.
    assert waits(run, "cat-4") == [(4, 30, [(4, reason)])]
    assert stays(run, "cat-4") == [(("node-4",), 30, None, "")]
    assert [wait for item in run.work if item.name != "cat-4" for wait in item.waits] == []


# The virtual cluster walk-through


def test_the_walk_through_reserves_fills_waits_and_gives_back():
    run = play("virtual-cluster-walkthrough")
    assert steps(run, "job") == [
        (10, "READY", [("raylet1", 1, 1), ("raylet2", 1, 1)]),
        (15, "READY", [("raylet1", 0, 1), ("raylet2", 1, 1)]),
        (20, "READY", [("raylet1", 0, 1), ("raylet2", 0, 1)]),
        (40, "READY", [("raylet1", 0, 1), ("raylet2", 1, 1)]),
        (45, "READY", [("raylet1", 1, 1), ("raylet2", 1, 1)]),
        (50, "DESTROYED", []),
    ]
    assert stays(run, "task-1") == [(("raylet1",), 15, 35, "finished")]
    assert stays(run, "task-2") == [(("raylet2",), 20, 40, "finished")]
    assert stays(run, "task-3") == [(("raylet1",), 35, 45, "finished")]
    assert waits(run, "task-3") == [(25, 35, [(25, "0/2 virtual nodes of vc-1 fit: 2 lack 1 CPU")])]


# GPU isolation


def test_cpu_work_stays_off_the_tainted_gpu_node_though_it_is_idle():
    run = play("gpu-isolation")
    assert {item.node for item in run.work if item.name.startswith("etl")} == {"cpu-1", "cpu-2"}
    reason = "0/3 nodes fit: 1 has the untolerated taint gpu_node=true, 2 lack 1 CPU"
    assert waits(run, "etl-4") == [(4, 15, [(4, reason)])]


def test_what_tolerates_the_taint_runs_on_the_gpu_node():
    run = play("gpu-isolation")
    assert stays(run, "train-0") == [(("gpu-1",), 5, 45, "finished")]
    assert stays(run, "train-1") == [(("gpu-1",), 5, 45, "finished")]
    assert stays(run, "gang") == [(("gpu-1", "gpu-1"), 8, 18, "finished")]


def test_a_late_taint_keeps_newcomers_off_until_it_is_taken_away():
    run = play("gpu-isolation")
    reason = (
        "0/3 nodes fit: 1 has the untolerated taint gpu_node=true, 1 has the untolerated taint memory-pressure=high, "
        "1 lacks 1 CPU"
    )
    assert stays(run, "report-0") == stays(run, "report-1") == [(("cpu-2",), 35, 45, "finished")]
    assert waits(run, "report-2") == [(35, 40, [(35, reason)])]
    assert stays(run, "report-2") == [(("cpu-1",), 40, 50, "finished")]
    assert stays(run, "janitor") == [(("cpu-1",), 35, 40, "finished")]
    assert [item.what for item in run.happenings] == [
        "cpu-1 gets the taint memory-pressure=high",
        "cpu-1 loses the taint memory-pressure",
    ]


# The job queue


def test_jobs_are_ready_by_priority_then_in_the_order_in_which_they_came():
    run = play("job-queue")
    assert [(item.name, item.submitted, item.ready, item.ended, item.state) for item in run.clusters] == [
        ("first", 0, 0, 30, "DESTROYED"),
        ("second", 5, 60, 90, "DESTROYED"),
        ("urgent", 10, 30, 60, "DESTROYED"),
    ]


def test_a_queued_job_says_what_it_waits_for_and_when_that_changes():
    run = play("job-queue")
    second = run.clusters[1]
    told = [(step.at, step.state, step.reason) for step in second.steps if step.state == "QUEUED"]
    assert told[0] == (5, "QUEUED", "position 1 in the queue: in the cluster 3 CPU needed, 0 free")
    assert told[1][0] == 10
    assert told[1][2].startswith("position 2 in the queue: behind vc-3")
    assert told[2] == (30, "QUEUED", "position 1 in the queue: in the cluster 3 CPU needed, 1 free")


def test_work_of_a_queued_job_waits_with_it_and_runs_when_it_is_ready():
    run = play("job-queue")
    for index in range(3):
        assert waits(run, f"second-work-{index}") == [(5, 60, [(5, "its virtual cluster vc-2 is queued")])]
        assert [stay[1:] for stay in stays(run, f"second-work-{index}")] == [(60, 80, "finished")]
    # The first job borrows the fourth CPU beyond its minimum.
    assert [stay[1:] for index in range(4) for stay in stays(run, f"first-work-{index}")] == [(0, 20, "finished")] * 4


# Ten thousand nodes, at a tenth of the size: the same file, smaller numbers.


@pytest.fixture(scope="module")
def large() -> Run:
    text = shipped()["ten-thousand-nodes"]
    smaller = [
        ("count: 9000", "count: 900"),
        ("count: 1000,", "count: 100,"),
        ("count: 10000, every: 0.02", "count: 1000, every: 0.2"),
        ("count: 20000, every: 0.03", "count: 2000, every: 0.3"),
        ("count: 5000, every: 0.05", "count: 500, every: 0.5"),
        ("{CPU: 400}", "{CPU: 40}"),
        ("{CPU: 800}", "{CPU: 80}"),
        ("count: 200, every: 2", "count: 20, every: 20"),
    ]
    for old, new in smaller:
        assert old in text, old
        text = text.replace(old, new)
    return run_scenario(parse_scenario(text), check=True)


def test_at_size_everything_is_placed_and_nothing_is_lost(large: Run):
    facts = summary(large)
    # 1,000 web and 500 cache actors and no end; 20 of 1,000 nodes die.
    assert (facts["submitted"], facts["running"], facts["finished"]) == (5020, 1500, 3520)
    assert (facts["waiting"], facts["refused"]) == (0, 0)
    assert sum(1 for node in large.nodes.values() if node.up[-1][1] is not None) == 20
    assert facts["restarts"] > 20


def test_at_size_the_hard_rules_hold(large: Run):
    for item in large.work:
        nodes = {node for stay in item.stays for node in stay.nodes}
        pools = {node.split("-")[0] for node in nodes}
        assert pools == ({"gpu"} if item.name.startswith(("train", "gang")) else {"cpu"}), item.name
        if item.name.startswith("etl"):
            assert {int(node.split("-")[1]) % 10 for node in nodes} <= {1, 2, 3}
    caches = [item.node for item in large.work if item.name.startswith("cache") and item.state == RUNNING]
    assert len(caches) == len(set(caches)) == 500


def test_at_size_use_never_exceeds_a_node_and_ends_where_it_should(large: Run):
    for node in large.nodes.values():
        for name, steps in node.used.items():
            assert max(steps.values) <= node.total[name], node.node_id
            assert min(steps.values) >= 0
        if node.up[-1][1] is not None:
            assert all(steps.last == 0 for steps in node.used.values()), f"{node.node_id} is dead"


def test_at_size_those_that_wait_alike_stand_together_with_a_reason(large: Run):
    told = next(table for table in tables(large) if table.title == "What waited, and why")
    assert [row[0].split("-")[0] for row in told.rows] == ["etl", "train", "gang", "gang"]
    assert "100 lack 1 GPU" in told.rows[1][2]
    assert all("nodes fit:" in row[2] for row in told.rows)


@pytest.mark.parametrize("name", ["cats-and-dogs", "virtual-cluster-walkthrough", "gpu-isolation", "job-queue"])
def test_the_same_seed_gives_the_same_run(name: str):
    first: dict[str, Any] = to_dict(play(name))
    assert first == to_dict(play(name))
    assert any(item["state"] in (FINISHED, RUNNING) for item in first["work"])
