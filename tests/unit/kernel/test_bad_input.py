"""Bad input of any kind is a ValueError at the call that made it, and nothing of it stays behind."""

import pytest

from remora import (
    DoesNotExist,
    Exists,
    FixedSizeNode,
    FixedSizeNodes,
    InvalidInputError,
    NodeAffinitySchedulingStrategy,
    VirtualCluster,
    label_in,
)
from remora.sim import SimCluster
from remora.testing.builders import make_cluster, make_node


class World:
    """A cluster with something of every kind in it, and one that is not related to it."""

    def __init__(self):
        self.c = c = make_cluster(
            make_node("n1").cpu(4).gpu(1).label({"zone": "a", "ray.io/node-id": "1"}).taint(gpu_node="true"),
            make_node("n2").cpu(4).label(zone="b"),
        )
        self.cat = c.submit("actor", name="cat", resources={"CPU": 1}, labels={"type": "cat"})
        self.waiting = c.submit("task", name="waiting", resources={"CPU": 64})
        self.done = c.submit("task", name="done", resources={"CPU": 1})
        c.finish(self.done)
        self.vc = c.create_virtual_cluster(VirtualCluster({"CPU": 1}, {"CPU": 2}))
        self.inside = c.submit("task", resources={"CPU": 1}, virtual_cluster=self.vc)
        self.queued = c.create_virtual_cluster(VirtualCluster({"CPU": 4}))
        self.gone = c.create_virtual_cluster()
        self.gone.destroy()
        self.group = c.placement_group([{"CPU": 1}], name="group")
        self.waiting_group = c.placement_group([{"CPU": 64}], name="waiting-group")
        self.done_group = c.placement_group([{"CPU": 0.5}], name="done-group")
        c.finish(self.done_group)
        other = make_cluster(make_node("n1").cpu(4))
        self.foreign_vc = other.create_virtual_cluster(VirtualCluster({"CPU": 1}))
        self.foreign_group = other.placement_group([{"CPU": 1}], name="group")
        self.foreign = other.submit("actor", name="cat", resources={"CPU": 1})
        self.others = other
        assert self.queued.state == "QUEUED"

    def dump(self):
        """Everything that anybody could see of both clusters."""
        return [dump(self.c), dump(self.others)] + [
            (handle.state, getattr(handle, "node", None))
            for handle in (self.cat, self.waiting, self.done, self.inside, self.foreign)
        ]


def dump(c):
    cluster = c.scheduler.cluster
    return {
        "nodes": [
            (
                node.node_id,
                node.number,
                node.total.to_dict(),
                dict(node.labels),
                dict(node.taints),
                cluster.available.amounts(node.number),
            )
            for node in cluster.nodes.by_id.values()
        ],
        "placed": {work_id: (work.node, work.labels, work.request.fingerprint) for work_id, work in cluster.placed.items()},
        "waiting": [
            getattr(entry, "group_id", None) or [work.workload_id for work in line]
            for entry, line in c.scheduler.waiting.items()
        ],
        "queue": [vc.cluster_id for vc in c.scheduler.queue],
        "clusters": {
            name: (
                vc.state,
                vc.spec,
                sorted(vc.children),
                [(v.vnode_id, v.node, dict(v.total), dict(v.used)) for v in vc.vnodes()],
            )
            for name, vc in cluster.tree.clusters.items()
        },
        "made": cluster.tree.made,
        "groups": {name: (group.option, [host.node for host in group.hosts if host]) for name, group in cluster.groups.items()},
        "labels": cluster.nodes.labels.recount(),
        "taints": cluster.nodes.taints.recount(),
        "presence": cluster.presence.recount(),
        "refusals": cluster.refusals.recount(),
        "names": sorted(c._names),
        "known": (sorted(c._work), sorted(c._groups)),
    }


def submit(**options):
    return lambda w: w.c.submit(**{"kind": "actor", **options})


def group(*bundles, **options):
    return lambda w: w.c.placement_group(list(bundles) or [{"CPU": 1}], **options)


def create(*spec, **options):
    return lambda w: w.c.create_virtual_cluster(*spec, **options)


CALLS = {
    # nodes
    "add_node: an id that is taken": lambda w: w.c.add_node("n1"),
    "add_node: an empty id": lambda w: w.c.add_node(""),
    "add_node: an id that is a number": lambda w: w.c.add_node(5),
    "add_node: an id that is None": lambda w: w.c.add_node(None),
    "add_node: a negative amount": lambda w: w.c.add_node("n9", resources={"CPU": -1}),
    "add_node: a reserved resource": lambda w: w.c.add_node("n9", resources={"remora/class/x": 1}),
    "add_node: resources that are a list": lambda w: w.c.add_node("n9", resources=["CPU"]),
    "add_node: a bad label": lambda w: w.c.add_node("n9", labels={"a b": "c"}),
    "add_node: labels that are a list": lambda w: w.c.add_node("n9", labels=["a"]),
    "add_node: a bad taint": lambda w: w.c.add_node("n9", taints={"a": "b c"}),
    "add_node: taints that are a string": lambda w: w.c.add_node("n9", taints="gpu_node"),
    "remove_node: unknown": lambda w: w.c.remove_node("n9"),
    "remove_node: None": lambda w: w.c.remove_node(None),
    "remove_node: a list": lambda w: w.c.remove_node(["n1"]),
    "taint: an unknown node": lambda w: w.c.taint("n9", {"a": "b"}),
    "taint: a bad key": lambda w: w.c.taint("n1", {"a b": "c"}),
    "taint: one good and one bad": lambda w: w.c.taint("n1", {"good": "1", "bad": 1}),
    "taint: a list": lambda w: w.c.taint("n1", ["gpu_node"]),
    "taint: an empty list": lambda w: w.c.taint("n1", []),
    "untaint: an unknown node": lambda w: w.c.untaint("n9", ["gpu_node"]),
    "untaint: a taint that is not there": lambda w: w.c.untaint("n1", ["gpu_type"]),
    "untaint: one there and one not": lambda w: w.c.untaint("n1", ["gpu_node", "gpu_type"]),
    "untaint: a string": lambda w: w.c.untaint("n1", "gpu_node"),
    "untaint: None": lambda w: w.c.untaint("n1", None),
    "label: an unknown node": lambda w: w.c.label("n9", {"a": "b"}),
    "label: a bad value": lambda w: w.c.label("n1", {"a": "b c"}),
    "label: one good and one bad": lambda w: w.c.label("n1", {"a": "b", "c": None}),
    "label: a label of Ray's": lambda w: w.c.label("n1", {"ray.io/node-id": "x"}),
    "label: a label that is a taint": lambda w: w.c.label("n1", {"taint.remora.io/x": "y"}),
    "label: a list": lambda w: w.c.label("n1", ["zone"]),
    "unlabel: an unknown node": lambda w: w.c.unlabel("n9", ["zone"]),
    "unlabel: a label that is not there": lambda w: w.c.unlabel("n1", ["rack"]),
    "unlabel: one there and one not": lambda w: w.c.unlabel("n1", ["zone", "rack"]),
    "unlabel: a label of Ray's": lambda w: w.c.unlabel("n1", ["ray.io/node-id"]),
    "unlabel: a string": lambda w: w.c.unlabel("n1", "zone"),
    # work
    "submit: an unknown kind": submit(kind="job"),
    "submit: a kind that is a list": submit(kind=[]),
    "submit: a name that is taken": submit(name="cat"),
    "submit: a name that waits": submit(name="waiting"),
    "submit: an empty name": submit(name=""),
    "submit: a name that is a number": submit(name=5),
    "submit: a negative amount": submit(resources={"CPU": -1}),
    "submit: an amount that is a string": submit(resources={"CPU": "1"}),
    "submit: an amount that is True": submit(resources={"CPU": True}),
    "submit: an amount that is not a number": submit(resources={"CPU": float("nan")}),
    "submit: an amount that is too fine": submit(resources={"CPU": 0.00001}),
    "submit: a reserved resource": submit(resources={"remora/lease/1": 1}),
    "submit: resources that are a list": submit(resources=[]),
    "submit: a bad label": submit(labels={"a": "b c"}),
    "submit: labels that are a list": submit(labels=["a"]),
    "submit: labels that are 0": submit(labels=0),
    "submit: the label actor_id": submit(labels={"actor_id": "x"}),
    "submit: an unknown operator": submit(label_selector={"zone": "like(a)"}),
    "submit: a selector that is a number": submit(label_selector=5),
    "submit: a soft selector": submit(label_selector=label_in("zone", ["a"], True)),
    "submit: a bad fallback": submit(fallback_strategy=[{"zone": "a"}]),
    "submit: tolerations that are a list": submit(tolerations=["gpu_node"]),
    "submit: a toleration of nothing": submit(tolerations={"gpu_node": DoesNotExist()}),
    "submit: a strategy that is unknown": submit(scheduling_strategy="BEST"),
    "submit: a strategy that is a number": submit(scheduling_strategy=5),
    "submit: an affinity that is a name": submit(affinity="SPREAD"),
    "submit: an affinity that is a name in a list": submit(affinity=["SPREAD"]),
    "submit: two different pins": submit(
        scheduling_strategy=NodeAffinitySchedulingStrategy("n1"), affinity=NodeAffinitySchedulingStrategy("n2")
    ),
    "submit: an unknown virtual cluster": submit(virtual_cluster="vc-9"),
    "submit: a virtual cluster that is a number": submit(virtual_cluster=5),
    "submit: a destroyed virtual cluster": lambda w: w.c.submit("task", virtual_cluster=w.gone),
    "submit: a virtual cluster of another SimCluster": lambda w: w.c.submit("task", virtual_cluster=w.foreign_vc),
    "submit: a namespace that is a number": submit(namespace=5),
    "submit: a namespace that is a list": submit(namespace=[]),
    "finish: finished already": lambda w: w.c.finish(w.done),
    "finish: None": lambda w: w.c.finish(None),
    "finish: a name": lambda w: w.c.finish("cat"),
    "finish: of another SimCluster": lambda w: w.c.finish(w.foreign),
    "finish: a group that is finished": lambda w: w.c.finish(w.done_group),
    "finish: a group of another SimCluster": lambda w: w.c.finish(w.foreign_group),
    "fail: finished already": lambda w: w.c.fail(w.done),
    "fail: a group": lambda w: w.c.fail(w.group),
    "fail: a name": lambda w: w.c.fail("cat"),
    "fail: of another SimCluster": lambda w: w.c.fail(w.foreign),
    # groups
    "placement_group: no bundles": lambda w: w.c.placement_group([]),
    "placement_group: an empty bundle": group({}),
    "placement_group: a negative bundle": group({"CPU": -1}),
    "placement_group: an unknown strategy": group(strategy="PACKED"),
    "placement_group: a strategy that is a number": group(strategy=3),
    "placement_group: too few selectors": group({"CPU": 1}, {"CPU": 1}, bundle_label_selector=[{}]),
    "placement_group: a bad selector": group(bundle_label_selector=[{"zone": "in()"}]),
    "placement_group: bad tolerations": group(tolerations=["x"]),
    "placement_group: a bad fallback": group(fallback_strategy=[{"label_selector": {}}]),
    "placement_group: a name that is taken": group(name="group"),
    "placement_group: the name of one that waits": group(name="waiting-group"),
    "placement_group: a name that is a number": group(name=5),
    "placement_group: a name that is a list": group(name=["x"]),
    "placement_group: an unknown virtual cluster": group(virtual_cluster="vc-9"),
    "placement_group: a virtual cluster that is a number": group(virtual_cluster=5),
    # virtual clusters
    "create_virtual_cluster: larger than the cluster": create(VirtualCluster({"CPU": 9})),
    "create_virtual_cluster: a fixed node larger than any": create(
        VirtualCluster(fixed_size_nodes=[FixedSizeNodes([FixedSizeNode({"GPU": 2})])])
    ),
    "create_virtual_cluster: larger than its parent": lambda w: w.c.create_virtual_cluster(VirtualCluster({"CPU": 3}), w.vc),
    "create_virtual_cluster: no JSON": create("{"),
    "create_virtual_cluster: an unknown field": create({"cpu": 1}),
    "create_virtual_cluster: a number": create(5),
    "create_virtual_cluster: a priority that is a string": create(priority="high"),
    "create_virtual_cluster: a priority that is True": create(priority=True),
    "create_virtual_cluster: a priority that is 0.5": create(priority=0.5),
    "create_virtual_cluster: bad tolerations": create(tolerations=["x"]),
    "create_virtual_cluster: a destroyed parent": lambda w: w.c.create_virtual_cluster(parent=w.gone),
    "create_virtual_cluster: a parent that is a number": create(parent=5),
    "create_virtual_cluster: an unknown parent": create(parent="vc-9"),
    "create_virtual_cluster: a parent of another SimCluster": lambda w: w.c.create_virtual_cluster(parent=w.foreign_vc),
    "destroy: a number": lambda w: w.c.destroy(5),
    "destroy: of another SimCluster": lambda w: w.c.destroy(w.foreign_vc),
}


@pytest.mark.parametrize("call", list(CALLS.values()), ids=list(CALLS))
def test_it_is_a_value_error_and_nothing_changed(call):
    world = World()
    before = world.dump()
    with pytest.raises(InvalidInputError) as caught:
        call(world)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value)
    assert world.dump() == before


@pytest.mark.parametrize("seed", [1.5, "0", None, True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match=r"is not a whole number; for example SimCluster\(seed=0\)"):
        SimCluster(seed=seed)


def test_a_parent_named_by_its_id_is_taken_as_everywhere_else_or_refused():
    world = World()
    try:
        child = world.c.create_virtual_cluster(parent=world.vc.cluster_id)
    except InvalidInputError:
        return
    assert child._inner.parent is world.vc._inner


def test_good_input_after_bad_input_works():
    world = World()
    with pytest.raises(ValueError, match="already"):
        world.c.submit("actor", name="cat")
    world.c.finish(world.cat)
    assert world.c.submit("actor", name="cat", resources={}).state == "PLACED"
    assert world.c.submit("actor", resources={"GPU": 1}, tolerations={"gpu_node": Exists()}).node == "n1"
