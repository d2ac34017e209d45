"""The run of a scenario: time, order, failures, refusals, and what is written down about them."""

import pytest

from remora.kernel.explaining.explain import Explanation
from remora.sim import onlooker
from remora.sim.history import History, Run, Steps
from remora.sim.report import headline, seconds, summary, tables, to_dict
from remora.sim.scenario import parse_scenario, with_seed
from remora.sim.scenario_run import run_scenario
from remora.sim.sim_cluster import SimWorkload

ONE_CPU = "nodes: [{id: n1, resources: {CPU: 1}}]\n"
TWO_NODES = "nodes: [{id: n1, resources: {CPU: 2}}, {id: n2, resources: {CPU: 2}}]\n"


def play(text: str) -> Run:
    return run_scenario(parse_scenario(text), check=True)


def work(run: Run, name: str) -> History:
    return next(item for item in run.work if item.name == name)


def stays(run: Run, name: str) -> list[tuple[str, float, float | None, str]]:
    return [(",".join(stay.nodes), stay.start, stay.end, stay.outcome) for stay in work(run, name).stays]


# Time


def test_runs_for_counts_from_the_placement_not_from_the_arrival():
    run = play(ONE_CPU + "arrivals: [{name: a, runs_for: 10}, {name: b, at: 3, runs_for: 10}]")
    assert stays(run, "a") == [("n1", 0, 10, "finished")]
    assert stays(run, "b") == [("n1", 10, 20, "finished")]
    assert [(wait.start, wait.end) for wait in work(run, "b").waits] == [(3, 10)]


def test_runs_for_starts_again_after_a_failure():
    run = play(ONE_CPU + "arrivals: [{name: a, runs_for: 10}]\nevents: [{at: 4, fail: a}]")
    assert stays(run, "a") == [("n1", 0, 4, "failed"), ("n1", 4, 14, "finished")]
    assert (work(run, "a").waits, run.ended) == ([], 14)


def test_what_ends_at_a_moment_makes_room_for_what_arrives_at_that_moment():
    run = play(ONE_CPU + "arrivals: [{name: a, count: 3, every: 5, runs_for: 5}]")
    assert [stays(run, f"a-{i}")[0][1:3] for i in range(3)] == [(0, 5), (5, 10), (10, 15)]
    assert summary(run)["peak_waiting"] == {"count": 0, "at": 0.0}


def test_of_one_moment_ends_come_first_then_events_then_clusters_then_arrivals():
    run = play(
        TWO_NODES + "arrivals:\n"
        "  - {name: a, runs_for: 5}\n"
        "  - {name: a, at: 5, resources: {CPU: 1}}\n"  # the name is free again
        "  - {name: b, at: 5, resources: {CPU: 1}, virtual_cluster: job}\n"
        "virtual_clusters: [{name: job, at: 5, spec: {flexible_resource_min: {CPU: 1}}}]\n"
        "events: [{at: 5, taint: {node: n1, taints: {t: x}}}]\nuntil: 6\n"
    )
    assert [(item.name, item.state, item.node) for item in run.work] == [
        ("a", "FINISHED", "n1"),
        ("a", "RUNNING", "n2"),
        ("b", "RUNNING", "n2"),
    ]


def test_a_run_is_cut_at_until_and_else_ends_with_the_last_thing_that_happens():
    text = ONE_CPU + "arrivals: [{name: a, runs_for: 10}, {name: b, at: 50}]\n"
    cut = play(text + "until: 7")
    assert (cut.ended, stays(cut, "a"), len(cut.work)) == (7, [("n1", 0, None, "")], 1)
    assert play(text).ended == 50


def test_an_empty_scenario_is_a_run_in_which_nothing_happens():
    run = play("until: 5")
    assert (run.ended, summary(run)["submitted"], tables(run)) == (5, 0, [])
    assert headline(run) == ["0 nodes, 0 submitted, 5 s", "nothing was submitted at the end"]


def test_progress_is_told_in_order_and_ends_complete():
    told: list[tuple[int, int]] = []
    text = "nodes: [{id: n, resources: {CPU: 600}}]\narrivals: [{name: a, count: 600, every: 1, runs_for: 1}]"
    run_scenario(parse_scenario(text), lambda done, total: told.append((done, total)))
    assert told == [(256, 1200), (512, 1200), (768, 1200), (1024, 1200), (1200, 1200)]


# Failures


def test_work_on_a_lost_node_moves_and_starts_again():
    run = play(TWO_NODES + "arrivals: [{name: a, resources: {CPU: 2}, runs_for: 10}]\nevents: [{at: 6, remove_node: n1}]")
    assert stays(run, "a") == [("n1", 0, 6, "lost its node"), ("n2", 6, 16, "finished")]
    assert run.nodes["n1"].up == [(0, 6)]
    assert list(run.nodes["n1"].used["CPU"]) == [(0, 20000), (6, 0)]
    assert list(run.nodes["n2"].used["CPU"]) == [(6, 20000), (16, 0)]
    assert summary(run)["restarts"] == 1


def test_a_node_that_comes_back_has_two_spans_and_takes_what_waited():
    run = play(
        ONE_CPU + "arrivals: [{name: a, runs_for: 10}]\n"
        "events: [{at: 2, remove_node: n1}, {at: 5, add_node: {id: n1, resources: {CPU: 1}}}]"
    )
    assert run.nodes["n1"].up == [(0, 2), (5, None)]
    assert stays(run, "a") == [("n1", 0, 2, "lost its node"), ("n1", 5, 15, "finished")]
    assert work(run, "a").waits[0].reasons == [(2, "there are no nodes yet")]


def test_a_placement_group_that_loses_a_bundle_waits_and_is_made_whole_again():
    run = play(
        TWO_NODES + "placement_groups: [{name: g, bundles: [{CPU: 2}, {CPU: 1}], strategy: STRICT_SPREAD, runs_for: 10}]\n"
        "events: [{at: 3, remove_node: n2}, {at: 7, add_node: {id: n3, resources: {CPU: 2}}}]"
    )
    first, second = stays(run, "g")
    assert (first[1:], second[1:]) == ((0, 3, "lost its node"), (7, 17, "finished"))
    assert set(first[0].split(",")) == {"n1", "n2"}
    assert set(second[0].split(",")) == {"n1", "n3"}
    assert [steps.last for node in run.nodes.values() for steps in node.used.values()] == [0, 0, 0]


def test_a_group_that_loses_two_nodes_waits_once_and_keeps_what_is_left():
    run = play(
        "nodes: [{id: n, count: 3, resources: {CPU: 1}}]\n"
        "placement_groups: [{name: g, bundles: [{CPU: 1}, {CPU: 1}, {CPU: 1}], strategy: STRICT_SPREAD}]\n"
        "events: [{at: 3, remove_node: n-0}, {at: 5, remove_node: n-1}]\nuntil: 9"
    )
    assert [(wait.start, wait.end) for wait in work(run, "g").waits] == [(3, None)]
    assert list(run.waiting) == [(3, 1)]
    assert {node.node_id: list(node.used["CPU"]) for node in run.nodes.values()} == {
        "n-0": [(0, 10000), (3, 0)],
        "n-1": [(0, 10000), (5, 0)],
        "n-2": [(0, 10000)],
    }


# Affinity to names


def test_affinity_to_a_name_follows_the_workload_wherever_it_is():
    run = play(
        TWO_NODES + "arrivals:\n"
        "  - {name: leader, kind: actor, resources: {CPU: 1}, scheduling_strategy: {node_id: n2}}\n"
        "  - {name: near, kind: actor, at: 1, resources: {CPU: 1}, affinity_to: [leader]}\n"
        "  - {name: far, kind: actor, at: 1, resources: {CPU: 1}, anti_affinity_to: [leader]}\n"
        "  - {name: late, kind: actor, at: 2, resources: {CPU: 1}, affinity_to: [leader]}\n"
    )
    assert [work(run, name).node for name in ("leader", "near", "far", "late")] == ["n2", "n2", "n1", None]
    assert work(run, "late").reason == "0/2 nodes fit: 1 does not host the actor leader, 1 lacks 1 CPU"


# Virtual clusters


def test_a_virtual_cluster_lasts_from_when_it_is_ready():
    run = play(
        TWO_NODES + "virtual_clusters:\n"
        "  - {name: a, spec: {flexible_resource_min: {CPU: 4}}, lasts: 10}\n"
        "  - {name: b, at: 2, spec: {flexible_resource_min: {CPU: 4}}, lasts: 10}\n"
    )
    assert [(item.ready, item.ended) for item in run.clusters] == [(0, 10), (10, 20)]


def test_the_end_of_a_virtual_cluster_ends_its_children_and_all_their_work():
    run = play(
        TWO_NODES + "virtual_clusters:\n"
        "  - {name: top, spec: {flexible_resource_min: {CPU: 3}, flexible_resource_max: {CPU: 3}}, lasts: 10}\n"
        "  - {name: sub, parent: top, spec: {flexible_resource_min: {CPU: 2}}}\n"
        "arrivals:\n"
        "  - {name: a, virtual_cluster: sub, resources: {CPU: 1}, count: 2}\n"
        "  - {name: w, virtual_cluster: top, resources: {CPU: 2}}\n"
        "  - {name: out, at: 5, resources: {CPU: 2}}\n"
        "until: 20\n"
    )
    assert [(item.name, item.state, item.ended) for item in run.clusters] == [
        ("top", "DESTROYED", 10),
        ("sub", "DESTROYED", 10),
    ]
    for name in ("a-0", "a-1"):
        assert [stay[1:] for stay in stays(run, name)] == [(0, 10, "ended with its virtual cluster")]
    assert (stays(run, "w"), work(run, "w").state) == ([], "FINISHED")
    assert [stay[1:] for stay in stays(run, "out")] == [(10, None, "")]
    assert run.waiting.last == 0


# What the cluster refuses is an outcome


def test_refusals_are_reported_and_the_run_goes_on():
    run = play(
        ONE_CPU + "virtual_clusters: [{name: huge, spec: {flexible_resource_min: {CPU: 9}}}, {name: short, lasts: 5}]\n"
        "arrivals:\n"
        "  - {name: a}\n"
        "  - {name: a, at: 1}\n"
        "  - {name: b, at: 1, virtual_cluster: huge}\n"
        "  - {name: c, at: 6, virtual_cluster: short}\n"
        "  - {name: d, at: 1, affinity_to: [e]}\n"
        "  - {name: e, at: 2}\n"
        "events: [{at: 3, fail: e}, {at: 4, remove_node: n1}, {at: 5, remove_node: n1}]\n"
    )
    refused = {item.name: item.refusal for item in run.work if item.state == "REFUSED"}
    assert refused == {
        "a": "there is something named 'a' in the namespace 'default' already: names are unique",
        "b": "the virtual cluster huge was refused",
        "c": "the virtual cluster short ended at 5 s",
        "d": "e has not arrived yet",
    }
    assert run.clusters[0].state == "REFUSED"
    assert run.clusters[0].refusal.startswith("the minimum of 9 CPU can never fit the cluster of 1 node,")
    assert [item.refusal for item in run.happenings] == [
        "e waits, so there is nothing to fail",
        "",
        "there is no node 'n1': the nodes are none yet",
    ]
    listed = next(table for table in tables(run) if table.title == "What was refused")
    assert [row[0] for row in listed.rows] == ["huge", "a", "b", "d", "c"]


# Reasons


def test_a_reason_is_written_down_again_when_it_changes():
    run = play(
        "nodes: [{id: n1, resources: {CPU: 1}}, {id: n2, resources: {CPU: 1}, taints: {t: x}}]\n"
        "arrivals: [{name: a}, {name: b, at: 1}]\n"
        "events: [{at: 2, taint: {node: n1, taints: {u: y}}}, {at: 3, remove_node: n2}]\nuntil: 9"
    )
    assert work(run, "b").waits[0].reasons == [
        (1, "0/2 nodes fit: 1 has the untolerated taint t=x, 1 lacks 1 CPU"),
        (2, "0/2 nodes fit: 1 has the untolerated taint t=x, 1 has the untolerated taint u=y"),
        (3, "0/1 nodes fit: 1 has the untolerated taint u=y"),
    ]
    assert work(run, "b").waits[0].suggestions == ("add a node with 1 CPU", "tolerate u and free 1 CPU on n1")


def test_when_much_waits_equal_requests_are_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onlooker, "_FEW", 10)
    asked: list[str] = []
    explain = SimWorkload.explain

    def counted(self: SimWorkload) -> Explanation:
        asked.append(self.name)
        return explain(self)

    monkeypatch.setattr(SimWorkload, "explain", counted)
    run = play(ONE_CPU + "arrivals: [{name: a, count: 300, every: 0.01, runs_for: 1}]\nuntil: 10")
    assert len(asked) < 40
    still = [item for item in run.work if item.state == "WAITING"]
    assert len(still) == 289
    assert {item.reason for item in still} == {"0/1 nodes fit: 1 lacks 1 CPU"}
    assert all(wait.reasons for item in run.work for wait in item.waits)


# Numbers


def test_waits_are_averaged_over_everything_that_was_submitted():
    run = play(ONE_CPU + "arrivals: [{name: a, count: 4, runs_for: 10}]\nuntil: 25")
    # 0, 10, 20, and 25 so far.
    assert summary(run)["wait"] == {"mean": 13.75, "p95": 25, "max": 25}
    assert summary(run)["peak_waiting"] == {"count": 3, "at": 0}
    assert [[at, count] for at, count in run.waiting] == [[0, 3], [10, 2], [20, 1]]


def test_use_is_averaged_over_the_time_a_node_was_there():
    run = play(
        TWO_NODES + "arrivals: [{name: a, resources: {CPU: 2}, runs_for: 5}]\nevents: [{at: 10, remove_node: n1}]\nuntil: 20"
    )
    use = to_dict(run)["nodes"][0]["use"]["CPU"]
    assert use == {"mean": 1.0, "peak": 2.0, "steps": [[0, 2.0], [5, 0.0]]}


def test_of_several_changes_at_one_moment_only_the_outcome_is_kept():
    steps = Steps()
    for at, delta in [(1, 5), (2, 3), (2, -3), (4, -5), (4, 2)]:
        steps.add(at, delta)
    assert list(steps) == [(1, 5), (4, 2)]
    assert steps.area(10) == 5 * 3 + 2 * 6


def test_long_lists_are_cut_for_people_and_whole_for_programs():
    run = play("nodes: [{id: n, count: 30, resources: {CPU: 2}}]\narrivals: [{name: a, count: 50}]")
    found = {table.title: table for table in tables(run, most=10)}
    assert (len(found["Who ran where"].rows), found["Who ran where"].more) == (10, 40)
    assert (len(found["Use of the nodes"].rows), found["Use of the nodes"].more) == (10, 20)
    assert (len(to_dict(run)["work"]), len(to_dict(run)["nodes"])) == (50, 30)


@pytest.mark.parametrize(
    ("amount", "want"), [(0, "0 s"), (1.5, "1.5 s"), (100.0, "100 s"), (0.126, "0.13 s"), (12345, "12,345 s")]
)
def test_seconds_are_short(amount: float, want: str):
    assert seconds(amount) == want


def test_the_seed_of_the_caller_wins():
    scenario = parse_scenario(ONE_CPU + "seed: 3")
    assert (run_scenario(scenario).seed, run_scenario(with_seed(scenario, 7)).seed) == (3, 7)
