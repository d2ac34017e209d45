"""Scenario files: what is read, and what is refused in which words."""

import pytest

from remora import InvalidScenarioError
from remora.sim.scenario import load_scenario, parse_scenario, shipped

NODES = "nodes: [{id: n1, resources: {CPU: 4}}]\n"


def refusal(text: str) -> str:
    with pytest.raises(InvalidScenarioError) as caught:
        parse_scenario(text, "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        # The file as a whole
        ("", "f.yaml: the scenario: None is not a mapping; for example {nodes: "),
        ("[1, 2]", "f.yaml: the scenario: [1, 2] is not a mapping"),
        ("a: [", "f.yaml: line 1, column 5: it is not YAML: "),
        ("nodes: []\nnodes: []", "f.yaml: line 1, column 1: it is not YAML: the key 'nodes' stands here twice"),
        ("!!python/object:os.system {}", "it is not YAML: could not determine a constructor"),
        ("[" * 5000, "it is nested too deeply to be read"),
        ("a: \x00", "it is not YAML: "),
        ("arivals: []", "arivals: there is no key 'arivals': did you mean 'arrivals'? The keys are name, description, seed, "),
        ("zzz: 1", "zzz: there is no key 'zzz': the keys are name, "),
        ("until: -1", "until: -1 is not above zero seconds; for example until: 5"),
        ("until: .inf", "until: inf is not a number of seconds"),
        ("seed: 1.5", "seed: 1.5 is not a whole number; for example seed: 0"),
        ("name: 7", 'name: 7 is not a non-empty text; for example name: "7"'),
        # Nodes
        ("nodes: 3", "nodes: 3 is not a list; for example nodes: [{id: n1, resources: {CPU: 4}}]"),
        ("nodes: [n1]", "nodes[0]: 'n1' is not a mapping"),
        ("nodes: [{}]", "nodes[0].id: it is missing; for example {id: n1, resources: {CPU: 4}}"),
        ("nodes: [{id: 1}]", 'nodes[0].id: 1 is not a non-empty text; for example id: "1"'),
        (
            "nodes: [{id: n, resources: {CPU: -1}}]",
            "nodes[0].resources: the amount -1 of CPU is negative; for example {'CPU': 1}",
        ),
        ("nodes: [{id: n, labels: {z: true}}]", "nodes[0].labels: label value True is a bool, not a string: "),
        ("nodes: [{id: n, taints: {'a b': x}}]", "nodes[0].taints: "),
        ("nodes: [{id: n, count: 0}]", "nodes[0].count: 0 is not a whole number from 1 to 1,000,000; for example count: 1"),
        ("nodes: [{id: n, count: 2, labels: {z: 'a{i%0}'}}]", "nodes[0]: '{i%0}' divides by zero"),
        ("nodes: [{id: n}, {id: n}]", "there are two nodes named 'n': names are unique"),
        # Arrivals
        (NODES + "arrivals: [{at: 1}]", "arrivals[0].name: it is missing; for example {at: 0, name: cat}"),
        (NODES + "arrivals: [{name: 'a{i%0}'}]", "arrivals[0].name: '{i%0}' divides by zero; for example '{i%10}'"),
        (NODES + "arrivals: [{name: a, at: soon}]", "arrivals[0].at: 'soon' is not a number of seconds; for example at: 5"),
        (NODES + "arrivals: [{name: a, at: -1}]", "arrivals[0].at: -1 is not zero or more seconds"),
        (NODES + "arrivals: [{name: a, kind: pod}]", "arrivals[0].kind: the kind 'pod' is not known: use 'actor' or 'task'"),
        (
            NODES + "arrivals: [{name: a}, {name: b, recources: {}}]",
            "arrivals[1].recources: there is no key 'recources': did you",
        ),
        (
            NODES + "arrivals: [{name: a, resources: {remora/x: 1}}]",
            "arrivals[0].resources: the resource name 'remora/x' begins",
        ),
        (NODES + "arrivals: [{name: a, label_selector: {z: 'in('}}]", "arrivals[0].label_selector: "),
        (NODES + "arrivals: [{name: a, labels: {z: 'a{i}b'}, count: 9}]", None),
        (NODES + f"arrivals: [{{name: a, count: 11, labels: {{z: '{'x' * 62}{{i}}'}}}}]", "(it has 64 characters)"),
        (NODES + "arrivals: [{name: a, tolerations: {g: '!exists()'}}]", "arrivals[0].tolerations: "),
        (
            NODES + "arrivals: [{name: a, fallback_strategy: {}}]",
            "arrivals[0].fallback_strategy: fallback_strategy must be a list",
        ),
        (NODES + "arrivals: [{name: a, runs_for: 0}]", "arrivals[0].runs_for: 0 is not above zero seconds"),
        (
            NODES + "arrivals: [{name: a, scheduling_strategy: SPRAED}]",
            "arrivals[0].scheduling_strategy: the scheduling strategy",
        ),
        (
            NODES + "arrivals: [{name: a, scheduling_strategy: {node: n1}}]",
            "arrivals[0].scheduling_strategy.node: there is no key",
        ),
        (
            NODES + "arrivals: [{name: a, actor_affinity: [{key: t, operator: near, values: [x]}]}]",
            "arrivals[0].actor_affinity[0]: 'near' is not a label operator: use IN, NOT_IN, EXISTS or DOES_NOT_EXIST",
        ),
        (
            NODES + "arrivals: [{name: a, actor_affinity: 'type inn [cat]'}]",
            "arrivals[0].actor_affinity: the query 'type inn [cat]'",
        ),
        (NODES + "arrivals: [{name: a, task_affinity: 5}]", "arrivals[0].task_affinity: 5 is not a list of expressions"),
        (
            NODES + "arrivals: [{name: a, node_affinity: {expressions: 'z = a', symmetric: true}}]",
            "arrivals[0].node_affinity.symmetric: there is no key 'symmetric'",
        ),
        (
            NODES + "arrivals: [{name: a, affinity_to: []}]",
            "arrivals[0].affinity_to: [] names nobody; for example affinity_to: [cat-0]",
        ),
        (
            NODES + "arrivals: [{name: cat, count: 2}, {name: b, affinity_to: [cat-2]}]",
            "arrivals[1].affinity_to: there is no workload 'cat-2': did you mean 'cat-1'? The workloads are cat-0, cat-1, b",
        ),
        (NODES + "arrivals: [{name: a, virtual_cluster: j}]", "arrivals[0].virtual_cluster: there is no virtual cluster 'j'"),
        # Placement groups and virtual clusters
        (NODES + "placement_groups: [{name: g}]", "placement_groups[0].bundles: bundles must be a list of at least one bundle"),
        (
            NODES + "placement_groups: [{name: g, bundles: [{CPU: 1}], strategy: X}]",
            "placement_groups[0].strategy: the placement",
        ),
        (
            NODES + "placement_groups: [{name: g, bundles: [{CPU: 1}], bundle_label_selector: []}]",
            "placement_groups[0].bundle_label_selector: bundle_label_selector must be a list",
        ),
        (
            NODES + "virtual_clusters: [{name: j, spec: {min: 1}}]",
            "virtual_clusters[0].spec: VirtualCluster has no field 'min'",
        ),
        (NODES + "virtual_clusters: [{name: j, spec: '{'}]", "virtual_clusters[0].spec: the virtual cluster '{' is not JSON"),
        (NODES + "virtual_clusters: [{name: j, parent: j}]", "virtual_clusters[0].parent: 'j' is its own parent"),
        (NODES + "virtual_clusters: [{name: j, parent: k}]", "virtual_clusters[0].parent: there is no virtual cluster 'k'"),
        (NODES + "virtual_clusters: [{name: j}, {name: j}]", "there are two virtual clusters named 'j'"),
        # Events
        (NODES + "events: [{remove_node: n1}]", "events[0].at: it is missing, in seconds; for example at: 5"),
        (NODES + "events: [{at: 1}]", "events[0]: {'at': 1} names 0 things to do: it must be one of add_node, remove_node, "),
        (NODES + "events: [{at: 1, remove_node: n1, fail: x}]", "names 2 things to do"),
        (
            NODES + "events: [{at: 1, remove_node: n2}]",
            "events[0].remove_node: there is no node 'n2': the nodes are n1",
        ),
        (NODES + "events: [{at: 1, fail: x}]", "events[0].fail: there is no workload 'x': the workloads are none"),
        (
            NODES + "events: [{at: 1, taint: {node: n1}}]",
            "events[0].taint.taints: it is missing; for example taint: {node: n1, taints:",
        ),
        (
            NODES + "events: [{at: 1, untaint: {node: n1, keys: k}}]",
            "events[0].untaint.keys: keys must be a list of label keys",
        ),
        (
            NODES + "events: [{at: 1, label: {node: n1, labels: {k: '-'}}}]",
            "events[0].label.labels: label value '-' is not allowed",
        ),
        (NODES + "events: [{at: 1, count: 2, remove_node: n1}]", "events[0].count: 2 copies of one event do the same"),
        (NODES + "events: [{at: 1, add_node: {id: x, count: 2}}]", "events[0].add_node.count: it belongs to the event"),
    ],
)
def test_a_slip_is_refused_with_its_place_the_rule_and_an_example(text: str, want: str | None):
    if want is None:
        parse_scenario(text)
        return
    said = refusal(text)
    assert want in said
    assert said.startswith("f.yaml: ")
    assert "\n" not in said


def test_counted_entries_are_numbered_unless_the_name_says_where_the_number_goes():
    scenario = parse_scenario(
        "nodes: [{id: a, count: 2}, {id: 'b{i}x', count: 2}, {id: c}]\n"
        "arrivals: [{name: t, count: 2, at: 1, every: 0.5}, {name: 'u-{i//2}-{i%2}', count: 3}, {name: v}]"
    )
    assert [node.node_id for node in scenario.nodes] == ["a-0", "a-1", "b0x", "b1x", "c"]
    names = [entry.name_of(index) for entry in scenario.arrivals for index in range(entry.count)]
    assert names == ["t-0", "t-1", "u-0-0", "u-0-1", "u-1-0", "v"]
    assert [scenario.arrivals[0].time_of(index) for index in range(2)] == [1.0, 1.5]


def test_templates_reach_labels_selectors_and_affinity():
    scenario = parse_scenario(
        "nodes: [{id: n, count: 3, labels: {zone: 'z{i%2}', next: 'x{i+1}', far: 'y{i*10}'}}]\n"
        "arrivals: [{name: t, count: 3, label_selector: {zone: 'z{i%2}'}, actor_affinity: 'id in [c-{i}]'}]"
    )
    assert scenario.nodes[2].labels == {"zone": "z0", "next": "x3", "far": "y20"}
    options = scenario.arrivals[0].options(1)
    assert options.label_selector.matches({"zone": "z1"})
    assert not options.label_selector.matches({"zone": "z0"})
    assert options.strategies.affinity[0].match_expressions[0].values == ("c-1",)


def test_every_spelling_of_a_strategy_is_understood():
    scenario = parse_scenario(
        NODES + "arrivals:\n"
        "  - {name: a, scheduling_strategy: spread}\n"
        "  - {name: b, scheduling_strategy: {node_id: n1, soft: true}}\n"
        "  - {name: c, actor_affinity: {key: t, operator: EXISTS}}\n"
        "  - {name: d, actor_affinity: {expressions: 't = x or t = y', symmetric: false}}\n"
        "  - {name: e, task_affinity: [{key: t, operator: in, values: [x], soft: true}], node_affinity: 'zone = a'}\n"
        "  - {name: f, affinity_to: [a], anti_affinity_to: {names: [b], soft: true}}\n"
    )
    strategies = [entry.options(0).strategies for entry in scenario.arrivals]
    assert strategies[0].scheduling_strategy == "spread"
    assert (strategies[1].scheduling_strategy.node_id, strategies[1].scheduling_strategy.soft) == ("n1", True)
    assert strategies[2].affinity[0].match_expressions[0].show() == "any t"
    assert strategies[3].affinity[0].is_or_semantics
    assert [item.owner for item in strategies[4].affinity] == ["task", "node"]
    assert strategies[4].affinity[0].match_expressions[0].soft
    assert [(mates.names, mates.soft, mates.away) for mates in strategies[5].mates] == [
        (("a",), False, False),
        (("b",), True, True),
    ]


def test_a_missing_file_and_a_name_that_is_nearly_right(tmp_path):
    with pytest.raises(
        InvalidScenarioError, match=r"there is no scenario file 'nope\.yaml'; the shipped ones are cats-and-dogs"
    ):
        load_scenario("nope.yaml")
    with pytest.raises(InvalidScenarioError, match="did you mean 'cats-and-dogs'"):
        load_scenario("cats-and-dog")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(InvalidScenarioError, match=r"latin\.yaml: it cannot be read"):
        load_scenario(tmp_path / "latin.yaml")


def test_a_file_without_a_name_is_called_after_itself(tmp_path):
    (tmp_path / "mine.yaml").write_text(NODES)
    assert load_scenario(tmp_path / "mine.yaml").name == "mine"
    assert load_scenario(str(tmp_path / "mine.yaml")).until is None


def test_shipped_scenarios_can_be_read_as_text():
    assert all(parse_scenario(text, name).nodes for name, text in shipped().items())
