"""Plans: which machines are started for what waits, and the reason where none would help. One table for each proposal."""

import pytest

from remora import NodeAffinitySchedulingStrategy, actor_affinity, affinity, anti_affinity, label_in, label_not_in, spread
from remora.kernel.provisioning.demands import Demand, Waiting
from remora.kernel.provisioning.planning import plan
from remora.kernel.state.cluster import Cluster
from remora.kernel.state.type_table import TypeTable
from remora.model.node_types import parse_node_types
from remora.model.requests import parse_request
from remora.sim import SimCluster

TYPES = {
    "web": {"resources": {"CPU": 2}, "labels": {"zone": "a"}, "max_workers": 3},
    "big": {"resources": {"CPU": 8}, "labels": {"zone": "b"}, "max_workers": 2},
    "gpu": {"resources": {"CPU": 2, "GPU": 1}, "labels": {"zone": "b"}, "taints": {"gpu_node": "true"}, "max_workers": 2},
}
TOLERATES = {"gpu_node": "exists()"}


def make(types=TYPES, most=None, resting=None):
    c = SimCluster()
    c.offer_node_types({"node_types": types, "max_workers": most}, resting=resting)
    return c


def submit(c, count=1, name="t", **options):
    return [c.submit("task", name=f"{name}-{index}", **options) for index in range(count)]


def words(plan_, name):
    (answer,) = (answer for answer in plan_.answers if answer.party.name == name)
    return answer.words


# Label selectors (000): what is submitted, what is started, what is said

SELECTORS = {
    "any": ({"resources": {"CPU": 1}}, {"web": 1}, "1 node of type web to be started"),
    "a label": ({"resources": {"CPU": 1}, "label_selector": {"zone": "b"}}, {"big": 1}, "1 node of type big to be started"),
    "none has it": ({"label_selector": {"zone": "c"}}, {}, "no type has the label zone=c"),
    "one of": ({"label_selector": {"zone": "in(c, d)"}}, {}, "no type has the label zone in (c, d)"),
    "must not": ({"label_selector": {"zone": "!a"}}, {"big": 1}, "1 node of type big to be started"),
    "too large": (
        {"resources": {"CPU": 9}},
        {},
        "no type can hold it: gpu has the untolerated taint gpu_node=true, web and big are too small for 9 CPU",
    ),
    "unknown": ({"resources": {"TPU": 1}}, {}, "no type has the resource TPU"),
    "fallback of a type": (
        {"label_selector": {"zone": "c"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]},
        {"big": 1},
        "1 node of type big to be started",
    ),
    "first choice before the fallback": (
        {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]},
        {"web": 1},
        "1 node of type web to be started",
    ),
    "pinned": (
        {"scheduling_strategy": NodeAffinitySchedulingStrategy("n9", soft=False)},
        {},
        "it is pinned to the node n9: no new node would help",
    ),
}


@pytest.mark.parametrize(("options", "want", "said"), SELECTORS.values(), ids=SELECTORS)
def test_a_selector_is_met_by_types_whose_labels_match(options, want, said):
    c = make()
    submit(c, **options)
    found = c.plan()
    assert (found.add, words(found, "t-0")) == (want, said)


def test_a_fallback_waits_for_a_type_of_the_first_choice_though_a_node_of_the_next_is_there():
    c = make()
    c.add_node("n1", resources={"CPU": 8}, labels={"zone": "b"})
    (work,) = submit(c, label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}])
    assert work.state == "PENDING"
    assert c.plan().add == {"web": 1}
    c.offer_node_types(None)
    assert work.node == "n1"


@pytest.mark.parametrize("most", [None, 4])
def test_a_type_at_its_maximum_or_the_cluster_is_waited_for_and_named(most):
    c = make(most=most)
    for _ in range(3):
        c.start_node("web")
    submit(c, 6, "running", resources={"CPU": 1})
    submit(c, 3, resources={"CPU": 2}, label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}])
    found = c.plan()
    assert found.add == {}
    assert words(found, "t-0") == "type web is at its maximum of 3"
    assert found.answers[0].suggestions == ("raise the maximum of type web above 3",)


def test_the_maximum_of_the_cluster_is_named_when_it_is_what_is_in_the_way():
    c = make(most=1)
    submit(c, 3, resources={"CPU": 2}, label_selector={"zone": "a"})
    found = c.plan()
    assert found.add == {"web": 1}
    assert words(found, "t-0") == "1 node of type web to be started; 2 of 3 get none: the cluster is at its maximum of 1 node"


def test_machines_of_types_that_are_not_known_count_against_the_maximum_of_the_cluster():
    c = make(most=1)
    c.add_node("old", resources={"CPU": 1}, node_type="of-yesterday")
    submit(c, resources={"CPU": 2})
    assert words(c.plan(), "t-0") == "the cluster is at its maximum of 1 node"


# strategy, bundles, options, what is started, what is said
GROUPS = {
    "spread strictly": ("STRICT_SPREAD", [{"CPU": 1}] * 3, {}, {"web": 3}, "3 nodes of type web to be started"),
    "pack strictly": ("STRICT_PACK", [{"CPU": 2}] * 3, {}, {"big": 1}, "1 node of type big to be started"),
    "pack": ("PACK", [{"CPU": 4}] * 4, {}, {"big": 2}, "2 nodes of type big to be started"),
    "spread if possible adds no more than it needs": (
        "SPREAD",
        [{"CPU": 1}] * 2,
        {},
        {"web": 1},
        "1 node of type web to be started",
    ),
    "more than may be": (
        "STRICT_SPREAD",
        [{"CPU": 2}] * 9,
        {"bundle_label_selector": [{"zone": "a"}] * 9},
        {},
        (
            "the whole group (18 CPU) on different nodes needs 9 nodes of type web, more than may be started "
            "(type web is at its maximum of 3): none is started"
        ),
    ),
    "bundle selectors": (
        "PACK",
        [{"CPU": 1}, {"CPU": 1}],
        {"bundle_label_selector": [{"zone": "a"}, {"zone": "b"}]},
        {"big": 1, "web": 1},
        "1 node of type big and 1 node of type web to be started",
    ),
    "tolerations": (
        "STRICT_PACK",
        [{"CPU": 1}, {"GPU": 1}],
        {"tolerations": TOLERATES},
        {"gpu": 1},
        "1 node of type gpu to be started",
    ),
    "fallback": (
        "STRICT_PACK",
        [{"CPU": 16}],
        {"fallback_strategy": [{"bundles": [{"CPU": 2}]}]},
        {"web": 1},
        "1 node of type web to be started",
    ),
    "one bundle nowhere": (
        "PACK",
        [{"CPU": 1}, {"CPU": 1}],
        {"bundle_label_selector": [{"zone": "a"}, {"zone": "x"}]},
        {},
        "no type has the label zone=x",
    ),
}


@pytest.mark.parametrize(("strategy", "bundles", "options", "want", "said"), GROUPS.values(), ids=GROUPS)
def test_a_placement_group_gets_all_its_machines_or_none(strategy, bundles, options, want, said):
    c = make()
    group = c.placement_group(bundles, strategy, name="gang", **options)
    found = c.plan()
    assert (found.add, words(found, "gang")) == (want, said)
    for name, count in found.add.items():
        for _ in range(count):
            c.start_node(name)
    assert (group.state == "PLACED") == bool(want)


def test_a_group_uses_what_is_free_before_it_gets_machines():
    c = make()
    c.add_node("n1", resources={"CPU": 3})
    c.placement_group([{"CPU": 2}] * 2, "STRICT_SPREAD", name="gang")
    found = c.plan()
    assert (found.add, dict(found.held)) == ({"web": 1}, {"n1": "gang"})


# Taints (002)


def test_a_tainted_type_is_never_started_for_what_does_not_tolerate_it():
    c = make({"gpu": {"resources": {"CPU": 64, "GPU": 1}, "taints": {"gpu_node": "true"}}})
    submit(c, 100, resources={"CPU": 1})
    found = c.plan()
    assert found.add == {}
    assert words(found, "t-0") == "no type can hold it: gpu has the untolerated taint gpu_node=true"


def test_demand_is_split_by_tolerations():
    c = make()
    submit(c, 2, "plain", resources={"CPU": 1})
    submit(c, 2, "gpu", resources={"GPU": 1}, tolerations=TOLERATES)
    found = c.plan()
    assert found.add == {"gpu": 2, "web": 1}
    assert {(start.node_type, party.name) for start in found.starts for party, _ in start.parties} == {
        ("web", "plain-0"),
        ("gpu", "gpu-0"),
    }


def test_gpu_machines_are_left_to_those_who_ask_for_gpus_while_others_do():
    types = {"cpu": {"resources": {"CPU": 2}, "max_workers": 2}, "gpu": {"resources": {"CPU": 64, "GPU": 8}}}
    c = make(types)
    submit(c, 4, resources={"CPU": 1})
    assert c.plan().add == {"cpu": 2}
    submit(c, 1, "more", resources={"CPU": 1})
    assert c.plan().add == {"cpu": 2, "gpu": 1}


def test_a_taint_put_on_a_node_later_makes_another_of_its_type_come():
    c = make()
    c.start_node("web")
    c.taint("web-1", {"broken": "yes"})
    submit(c, resources={"CPU": 1}, label_selector={"zone": "a"})
    assert c.plan().add == {"web": 1}


def test_rare_resources_keep_others_off_types_that_have_them():
    types = parse_node_types({"node_types": {"gpu": {"resources": {"CPU": 8, "GPU": 1}}}}).isolating(frozenset({"gpu"}))
    c = SimCluster()
    c.offer_node_types(types)
    submit(c, resources={"CPU": 1})
    submit(c, 1, "rare", resources={"GPU": 1}, tolerations={"rare_resource.ray.io/gpu": "exists()"})
    found = c.plan()
    assert found.add == {"gpu": 1}
    assert words(found, "t-0") == "no type can hold it: gpu has the untolerated taint rare_resource.ray.io/gpu=true"


# Affinity (003)

CATS = actor_affinity(label_not_in("type", ["cat"], False))
WITH_CATS = actor_affinity(label_in("type", ["cat"], False))


def cats(c, count, **options):
    options = {"scheduling_strategy": CATS, "labels": {"type": "cat"}, "resources": {"CPU": 1}, **options}
    return [c.submit("actor", name=f"cat-{index}", **options) for index in range(count)]


def test_anti_affinity_adds_all_machines_at_once():
    c = make()
    cats(c, 3)
    found = c.plan()
    assert found.add == {"web": 3}
    assert words(found, "cat-0") == "3 nodes of type web to be started"


def test_what_is_anti_affine_shares_its_machines_with_others():
    c = make({"four": {"resources": {"CPU": 4}}})
    cats(c, 2)
    submit(c, 6, resources={"CPU": 1})
    assert c.plan().add == {"four": 2}


def test_anti_affinity_counts_what_is_placed_and_what_comes():
    c = make()
    c.start_node("web")
    cats(c, 3)
    assert c.plan().add == {"web": 2}
    found = c.plan({"web": 1})
    assert (found.add, dict(found.awaited)) == ({"web": 1}, {"web": 1})


def test_hard_affinity_to_something_that_is_placed_adds_no_node():
    c = make()
    c.start_node("web")
    cats(c, 1, resources={"CPU": 2})
    c.submit("actor", name="dog", resources={"CPU": 1}, scheduling_strategy=WITH_CATS)
    found = c.plan()
    assert found.add == {}
    assert words(found, "dog") == "hard affinity to something that is placed: no new node would help"


def test_hard_affinity_to_nobody_adds_no_node():
    c = make()
    c.submit("actor", name="dog", resources={"CPU": 1}, scheduling_strategy=WITH_CATS)
    assert words(c.plan(), "dog") == "hard affinity to something that is not there: no new node would help"


def test_followers_go_with_partners_that_wait_too_to_machines_large_enough_for_both():
    c = make({"small": {"resources": {"CPU": 2}}, "large": {"resources": {"CPU": 4}}})
    cats(c, 1, resources={"CPU": 2})
    dog = c.submit("actor", name="dog", resources={"CPU": 2}, scheduling_strategy=WITH_CATS)
    found = c.plan()
    assert found.add == {"large": 1}
    c.start_node("large")
    assert dog.state == "PLACED"


def test_affinity_and_anti_affinity_to_handles_that_wait():
    c = make({"two": {"resources": {"CPU": 2}}})
    one = c.submit("actor", name="one", resources={"CPU": 1})
    c.submit("actor", name="near", resources={"CPU": 1}, scheduling_strategy=actor_affinity(affinity(one, False)))
    c.submit("actor", name="far", resources={"CPU": 1}, scheduling_strategy=actor_affinity(anti_affinity(one, False)))
    found = c.plan()
    assert found.add == {"two": 2}
    groups = {tuple(sorted(party.name for party, _ in start.parties)) for start in found.starts}
    assert groups == {("near", "one"), ("far",)}


def test_symmetric_work_keeps_others_off_its_new_machine():
    c = make({"two": {"resources": {"CPU": 2}}})
    away = actor_affinity(label_not_in("type", ["dog"], False), symmetric=True)
    c.submit("actor", name="cat", resources={"CPU": 1}, scheduling_strategy=away)
    c.submit("actor", name="dog", resources={"CPU": 1}, labels={"type": "dog"})
    assert c.plan().add == {"two": 2}


def test_soft_rules_add_a_machine_only_where_the_work_could_not_run_otherwise():
    c = make()
    c.start_node("web")
    wish = actor_affinity(label_not_in("type", ["cat"], True))
    cats(c, 2, scheduling_strategy=wish)
    assert c.plan().add == {}
    c.submit("actor", name="third", resources={"CPU": 1}, labels={"type": "cat"}, scheduling_strategy=wish)
    assert c.plan().add == {"web": 1}


# Virtual clusters (004)

# spec, what is started, what is said
MINIMA = {
    "apart": (
        {"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 2}}] * 2, "scheduling_policy": "STRICT_SPREAD"}]},
        {"web": 2},
        "2 nodes of type web to be started",
    ),
    "together": (
        {"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 2}}] * 4}]},
        {"big": 1},
        "1 node of type big to be started",
    ),
    "flexible": (
        {"flexible_resource_min": {"CPU": 10}},
        {"big": 1, "web": 1},
        "1 node of type big and 1 node of type web to be started",
    ),
}


@pytest.mark.parametrize(("spec", "want", "said"), MINIMA.values(), ids=MINIMA)
def test_a_minimum_that_cannot_be_reserved_gets_all_its_machines(spec, want, said):
    c = make()
    vc = c.create_virtual_cluster(spec)
    found = c.plan()
    assert (found.add, words(found, "vc-1")) == (want, said)
    for name, count in found.add.items():
        for _ in range(count):
            c.start_node(name)
    assert vc.state == "READY"


def test_a_minimum_that_only_types_could_hold_is_queued_and_one_that_nothing_could_is_refused():
    c = make()
    assert c.create_virtual_cluster({"flexible_resource_min": {"CPU": 22}}).state == "QUEUED"
    with pytest.raises(
        ValueError, match="can never fit the cluster of 0 nodes, even when nothing else runs and all node types"
    ):
        c.create_virtual_cluster({"flexible_resource_min": {"CPU": 23}})
    with pytest.raises(ValueError, match="can never fit"):
        make(most=2).create_virtual_cluster({"flexible_resource_min": {"CPU": 17}})


def test_machines_that_idle_are_no_hindrance_to_a_minimum_that_needs_others():
    c = make(most=2)
    for _ in range(2):
        c.start_node("web")
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 16}})
    assert vc.state == "QUEUED"
    assert "(the cluster is at its maximum of 2 nodes): none is started" in words(c.plan(), "vc-1")


def test_the_queue_gets_machines_in_its_order():
    c = make({"web": {"resources": {"CPU": 2}, "max_workers": 3}})
    fixed = {"fixed_size_nodes": [{"nodes": [{"resources": {"CPU": 2}}] * 2, "scheduling_policy": "STRICT_SPREAD"}]}
    c.create_virtual_cluster(fixed)
    c.create_virtual_cluster(fixed, priority=5)
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})
    found = c.plan()
    assert found.add == {"web": 2}
    assert words(found, "vc-2") == "2 nodes of type web to be started"
    assert words(found, "vc-1") == (
        "its minimum of 4 CPU on different nodes needs 2 nodes of type web, more than may be started "
        "(type web is at its maximum of 3): none is started"
    )
    assert words(found, "vc-3") == "vc-1 is before it in the queue and needs CPU too"


def test_an_elastic_clusters_demand_counts_up_to_its_maximum_and_its_parents():
    c = make({"web": {"resources": {"CPU": 2}}})
    outer = c.create_virtual_cluster({"flexible_resource_max": {"CPU": 6}})
    inner = c.create_virtual_cluster({"flexible_resource_max": {"CPU": 4}}, parent=outer)
    for index in range(6):
        c.submit("task", name=f"in-{index}", resources={"CPU": 1}, virtual_cluster=inner)
    found = c.plan()
    assert found.add == {"web": 2}
    assert words(found, "in-0") == (
        "2 nodes of type web to be started; 2 of 6 get none: the virtual cluster vc-2 is at its maximum of 4 CPU: "
        "no new node would help"
    )
    for index in range(6):
        c.submit("task", name=f"out-{index}", resources={"CPU": 1}, virtual_cluster=outer)
    found = c.plan()
    assert found.add == {"web": 3}
    assert "4 of 6 get none: the virtual cluster vc-1 is at its maximum of 6 CPU" in words(found, "out-0")


def test_a_share_that_lies_idle_where_the_work_may_not_run_can_be_moved_to_a_new_node():
    c = make()
    c.start_node("web")
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 2}})
    work = c.submit("task", name="in", resources={"CPU": 2}, label_selector={"zone": "b"}, virtual_cluster=vc)
    found = c.plan()
    assert found.add == {"big": 1}
    c.start_node("big")
    assert work.state == "PLACED"


def test_a_nested_minimum_beyond_its_parents_maximum_gets_no_machine():
    c = make({"web": {"resources": {"CPU": 2}}})
    outer = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}, "flexible_resource_max": {"CPU": 4}})
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 3}}, parent=outer)
    found = c.plan()
    assert found.add == {"web": 2}
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}}, parent=outer)
    assert "vc-2 is before it in the queue" not in words(c.plan(), "vc-2")
    assert words(c.plan(), "vc-3") == (
        "the virtual cluster vc-1 is at its maximum of 4 CPU, and its minimum of 2 CPU would be beyond it: "
        "no new node would help"
    )


def test_work_and_groups_in_a_queued_cluster_wait_for_it():
    c = make({"web": {"resources": {"CPU": 2}, "max_workers": 1}})
    vc = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})
    blocked = c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}})
    c.submit("task", name="in", resources={"CPU": 1}, virtual_cluster=vc)
    c.submit("task", name="behind", resources={"CPU": 1}, virtual_cluster=blocked)
    found = c.plan()
    assert found.add == {"web": 1}
    assert words(found, "in") == "1 node of type web to be started"
    assert words(found, "behind") == "its virtual cluster vc-2 is queued"


def test_a_cluster_that_lost_a_node_comes_before_the_queue():
    c = make({"web": {"resources": {"CPU": 2}, "max_workers": 2}})
    for _ in range(2):
        c.start_node("web")
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 4}})
    c.create_virtual_cluster({"flexible_resource_min": {"CPU": 2}}, priority=9)
    c.remove_node("web-2")
    found = c.plan()
    assert words(found, "vc-1") == "1 node of type web to be started"
    assert words(found, "vc-2").startswith("its minimum of 2 CPU needs 1 node of type web, more than may be started")


# Limits, costs, machines on their way


def test_machines_on_their_way_count_as_there_and_what_is_not_needed_is_not_awaited():
    c = make()
    submit(c, 4, resources={"CPU": 1}, label_selector={"zone": "a"})
    found = c.plan({"web": 1, "big": 1})
    assert (found.add, dict(found.awaited), found.wanted) == ({"web": 1}, {"web": 1}, {"web": 2})
    found = c.plan({"web": 3})
    assert (found.add, dict(found.awaited)) == ({}, {"web": 2})


def test_cheaper_machines_first_and_fewer_where_costs_are_not_known():
    types = {"small": {"resources": {"CPU": 2}, "cost": 1}, "large": {"resources": {"CPU": 8}, "cost": 5}}
    c = make(types)
    submit(c, 8, resources={"CPU": 1})
    assert c.plan().add == {"small": 4}
    c = make({name: {"resources": each["resources"]} for name, each in types.items()})
    submit(c, 8, resources={"CPU": 1})
    assert c.plan().add == {"large": 1}


def test_priority_decides_between_types_that_are_equally_good():
    types = {"spot": {"resources": {"CPU": 2}, "priority": 1, "max_workers": 2}, "reserved": {"resources": {"CPU": 2}}}
    c = make(types)
    submit(c, 6, resources={"CPU": 1})
    assert c.plan().add == {"reserved": 1, "spot": 2}


def test_a_type_that_cannot_be_had_is_replaced_by_another_and_the_reason_says_so():
    c = make(resting={"web": "no capacity in zone a"})
    submit(c, resources={"CPU": 1})
    submit(c, 1, "only", resources={"CPU": 1}, label_selector={"zone": "a"})
    found = c.plan()
    assert found.add == {"big": 1}
    assert words(found, "t-0") == (
        "1 node of type big to be started; type web cannot be had now (no capacity in zone a): others are started instead"
    )
    assert words(found, "only-0") == "type web cannot be had now (no capacity in zone a): it is tried again later"


def test_while_a_type_cannot_be_had_the_next_choice_is_tried():
    c = make(resting={"web": "no capacity"})
    submit(c, resources={"CPU": 1}, label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}])
    assert c.plan().add == {"big": 1}


def test_while_a_type_cannot_be_had_work_runs_on_nodes_of_its_next_choice():
    c = make(resting={"web": "no capacity"})
    c.add_node("n1", resources={"CPU": 1}, labels={"zone": "b"})
    fallback = {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]}
    first, second = submit(c, 2, resources={"CPU": 1}, **fallback)
    assert (first.node, second.node) == ("n1", None)
    c.offer_node_types({"node_types": TYPES})  # it can be had again: the second waits for it
    assert c.plan().add == {"web": 1}


def test_the_minimum_of_a_type_is_started_and_used_first():
    c = make({"web": {"resources": {"CPU": 2}, "min_workers": 2, "max_workers": 4}})
    assert c.plan().add == {"web": 2}
    submit(c, 5, resources={"CPU": 1})
    found = c.plan()
    assert (found.add, dict(found.awaited)) == ({"web": 3}, {})
    assert [(start.count, start.parties[0][0].name) for start in found.starts] == [(2, "the minimum of type web"), (1, "t-0")]


def test_actors_that_need_a_cpu_only_to_start_need_one_place_for_all():
    c = make()
    for _ in range(50):
        c.submit("actor")
    assert c.plan().add == {"web": 1}


def test_wholes_and_work_share_machines_where_that_needs_fewer():
    c = make({"two": {"resources": {"CPU": 2}}, "eight": {"resources": {"CPU": 8}}})
    c.placement_group([{"CPU": 1}] * 2, "STRICT_SPREAD")
    submit(c, 14, resources={"CPU": 1})
    assert c.plan().add == {"eight": 2}


def test_demand_that_others_count_is_planned_for_without_objects_for_each():
    request = parse_request("task", resources={"CPU": 1})
    table = TypeTable(parse_node_types({"node_types": {"web": {"resources": {"CPU": 4}}}}))
    found = plan(Cluster(), Waiting(work=(Demand("etl", "etl", request, 1_000_000),)), table)
    assert found.add == {"web": 250_000}
    answer = found.answer("etl")
    assert answer is not None
    assert (answer.served, found.answer("other")) == (1_000_000, None)


def test_nothing_waits_nothing_is_started():
    c = make()
    assert c.plan().to_dict() == {"add": {}, "awaited": {}, "starts": [], "answers": [], "held": {}}
    assert SimCluster().plan() == c.plan()


# Zones and racks (001): a machine in another domain is what helps

ZONES = {
    "here": {"resources": {"CPU": 4}, "labels": {"zone": "a"}, "max_workers": 5},
    "there": {"resources": {"CPU": 4}, "labels": {"zone": "b"}, "max_workers": 5},
    "far": {"resources": {"CPU": 4}, "labels": {"zone": "c"}, "max_workers": 5},
}


def test_anti_affinity_by_zone_starts_a_machine_in_each_zone():
    c = make(ZONES)
    rule = actor_affinity(label_not_in("svc", ["web"], topology="zone"))
    for _ in range(4):
        c.submit("actor", name=None, resources={"CPU": 1}, labels={"svc": "web"}, scheduling_strategy=rule)
    found = c.plan()
    assert dict(found.add) == {"here": 1, "there": 1, "far": 1}
    assert any("that its rules leave open" in answer.reason for answer in found.answers)


def test_a_floor_of_zones_starts_machines_in_as_many():
    c = make(ZONES)
    c.add_node("n0", {"CPU": 8}, labels={"zone": "a"})
    for _ in range(6):
        c.submit("actor", resources={"CPU": 1}, labels={"svc": "web"}, scheduling_strategy=spread(over="zone", min_domains=3))
    assert dict(c.plan().add) == {"there": 1, "far": 1}


def test_what_wants_to_be_in_the_zone_of_another_gets_a_machine_there():
    c = make(ZONES)
    c.add_node("n0", {"CPU": 1}, labels={"zone": "b"})
    c.submit("actor", resources={"CPU": 1}, labels={"svc": "db"})
    c.submit("actor", resources={"CPU": 1}, scheduling_strategy=actor_affinity(label_in("svc", ["db"], topology="zone")))
    assert dict(c.plan().add) == {"there": 1}


def test_what_keeps_apart_by_zone_in_a_virtual_cluster_is_planned_for():
    """Whom it has rules about is looked up where there are no virtual clusters."""
    c = make()
    c.add_node("n1", resources={"CPU": 2}, labels={"zone": "a"})
    vc = c.create_virtual_cluster({"flexible_resource_max": {"CPU": 8}})
    apart = actor_affinity(label_not_in("type", ["cat"], False, topology="zone"))
    cats = [
        c.submit("actor", name=f"cat-{number}", labels={"type": "cat"}, scheduling_strategy=apart, virtual_cluster=vc)
        for number in range(2)
    ]
    assert [cat.state for cat in cats] == ["PLACED", "PENDING"]
    assert c.plan().add
