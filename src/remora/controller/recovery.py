"""Recovery: a controller that knows what one before it knew, from what is remembered and what the cluster reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from remora.controller.clusters.records import restore
from remora.controller.controller import Controller
from remora.controller.effects import FindAll, ReadNodeTypes, perform
from remora.errors import UnreadableEntryError
from remora.port.contract import ACTOR, GROUP, RUNNING, Observation, Port, Work
from remora.wire.asks import LEASE_LABEL
from remora.wire.classes import ClassSpec
from remora.wire.keys import CLASSES, CLUSTERS, FENCES, GENERATION, HOLDS, JOURNAL, OBJECTS, OVERRIDES, TASK_LEASES, Kind
from remora.wire.owners import share_in
from remora.wire.tokens import KEEP, slot_of_token

B = TypeVar("B")


def recover(port: Port, clock: Callable[[], float]) -> Controller:
    """Return a controller for a cluster, whatever was there before it. One entry, actor or cluster that cannot be understood is
    set aside, and the rest is as it was:

    1. our own number among the controllers of this cluster, before anything is given in its name: above every one whose slots
       are in use
    2. nodes, as they report, with the labels and taints that were set at run time; and where there is an autoscaler, the types
       that may be started: what only they could hold is not refused. What was asked for in our name is read before anything is
    3. classes
    4. holds, and fences
    5. virtual clusters, and what placement groups have of them: parents before children
    6. objects with labels: what waits may have to keep away from them
    7. leases, of actors by GCS's table and of tasks: those that run or are decided, and then those that wait, by what is there
    8. what has ended meanwhile
    """
    found = {key: value for key in port.keys("") if (value := port.get(key)) is not None}
    began, observation, works = clock(), port.observe(), port.find(None)
    unread: dict[str, Exception] = {}
    generation = 1 + max(_read_or(GENERATION, found, 0, unread), _generations(found, observation, works))
    found[GENERATION.key()] = GENERATION.write(generation)
    port.put(GENERATION.key(), found[GENERATION.key()])
    controller = Controller(clock, generation, found, _read_or(JOURNAL, found, [], unread))
    for key, error in unread.items():
        controller.context.aside.add("entry", key, error)

    for (node_id,), overrides in _entries(controller, OVERRIDES)[0]:
        controller.picture.restore_overrides(node_id, overrides)
    _see_nodes(controller, observation)

    _find_scaler(controller, port)
    controller.scaling.machines.is_after_another = generation > 1

    for (class_id,), body in _entries(controller, CLASSES)[0]:
        with controller.context.aside.care_of("class", class_id):
            controller.roster.restore(ClassSpec.of_body(body))

    _restore_holds(controller, port)
    _restore_fences(controller)
    _restore_clusters(controller)

    for (object_id,), labelled in _entries(controller, OBJECTS)[0]:
        with controller.context.aside.care_of("object", object_id):
            controller.leases.bystanders.restore(object_id, labelled)

    actors = [work for work in works if work.kind == ACTOR]
    for work in actors:
        if controller.leases.predecessor.is_settled(work):
            controller.leases.see(work)
    tasks, _ = _entries(controller, TASK_LEASES)
    for (slot,), entry in sorted(tasks, key=lambda task: controller.leases.predecessor.token_on(task[0][0]) is None):
        with controller.context.aside.care_of("lease", slot):
            controller.leases.restore_task(slot, entry, None)
    controller.leases.see_all(actors, began)

    _end_what_ended(controller, works, began)
    count = len(controller.roster.classes)
    what = f"it remembers {count} {'class' if count == 1 else 'classes'}"
    controller.context.note("controller", "", f"the controller started; {what}")
    controller.round()
    return controller


def _see_nodes(controller: Controller, observation: Observation) -> None:
    """Shares that one before us gave may not be in the report yet: where there are any, each node is asked. That nodes joined
    is in the journal that it left."""
    shares = any(share_in(name) is not None for view in observation.nodes for name in view.total)
    sure = not shares and not controller.store.keys(CLUSTERS.prefix)
    for node_id in controller.picture.see(observation, sure=sure, is_news=not controller.context.journal.entries()):
        controller.touch(node_id)
    controller.picture.settle()


def _find_scaler(controller: Controller, port: Port) -> None:
    machines = controller.scaling.machines
    with controller.context.aside.care_of("autoscaler", "of this cluster"):
        machines.is_on = port.scaler is not None
    if not machines.is_on:
        return
    controller.picture.minds_draining = True
    machines.learned(perform(port, ReadNodeTypes()))
    machines.see(controller.picture.views, controller.picture.rare)
    if machines.refresh():
        controller.scheduler.offer_types(machines.table)


def _restore_holds(controller: Controller, port: Port) -> None:
    readable, others = _entries(controller, HOLDS, parts=2)
    for (node_id, name), amounts in readable:
        with controller.context.aside.care_of("hold", name):
            works = port.find(name)
            if node_id in controller.picture.views and any(work.kind == GROUP and work.state == RUNNING for work in works):
                controller.holds.restore(node_id, name, amounts)
            else:
                controller.holds.discard(node_id, name)  # a controller before us died over it
    for node_id, name in others:
        controller.holds.discard(node_id, name)  # it is made anew, where it is needed
    for node_id in controller.holds.holding(KEEP) if not controller.scaling.is_on else ():
        controller.holds.let_go(node_id, KEEP)  # nobody ends machines any more


def _restore_fences(controller: Controller) -> None:
    readable, others = _entries(controller, FENCES)
    for (node_id,), _ in readable:
        data = controller.store.get(FENCES.key(node_id))
        if node_id not in controller.picture.views:
            controller.fences.forget(node_id)
        elif data is not None:
            controller.fences.restore(node_id, data)
    for (node_id,) in others:
        controller.fences.renew(node_id)  # or no worker there could read it


def _restore_clusters(controller: Controller) -> None:
    readable, others = _entries(controller, CLUSTERS)
    entries = [(cluster_id, body) for (cluster_id,), body in readable]
    for (cluster_id,) in others:
        controller.registry.leave_alone(cluster_id)
    for cluster_id, body in sorted(entries, key=lambda pair: _order(pair[1])):
        with controller.context.aside.care_of("virtual cluster", cluster_id):
            above = controller.registry.records.get(body["parent"]) if body["parent"] is not None else None
            parent = above.vcluster if above is not None else None
            controller.registry.adopt(restore(controller.scheduler, parent, cluster_id, body, controller.now()))
    controller.registry.cool(each["subject"] for each in controller.context.journal.entries() if each.get("kind") == "cluster")
    controller.scheduler.mend()
    controller.shares.refresh()
    for node_id in controller.picture.views:
        controller.picture.recount(node_id)
        if controller.registry.records:
            controller.touch(node_id)
    controller.picture.settle()


def _end_what_ended(controller: Controller, works: list[Work], began: float) -> None:
    controller.questions.see_all(FindAll(controller.now() + 1.0), works)
    for node_id in [each for each in _nodes_remembered(controller) if each not in controller.picture.views]:
        controller.store.set(OVERRIDES.key(node_id), None)


def _nodes_remembered(controller: Controller) -> list[str]:
    return [OVERRIDES.parts(key)[0] for key in controller.store.keys(OVERRIDES.prefix)]


def _entries(controller: Controller, kind: Kind[B], parts: int = 1) -> tuple[list[tuple[list[str], B]], list[list[str]]]:
    """Return what is remembered of one kind, and the keys of what cannot be read; that is set aside, and stays in the store."""
    readable: list[tuple[list[str], B]] = []
    others: list[list[str]] = []
    for key in controller.store.keys(kind.prefix):
        named = kind.parts(key)
        with controller.context.aside.care_of("entry", key):
            if len(named) != parts or not all(named):
                raise UnreadableEntryError(f"the key {key!r} is none of Remora's: it should name {parts}, and names {named}")
            others.append(named)
            readable.append((named, kind.read(controller.store.get(key) or b"")))
            others.pop()
    return readable, others


def _read_or(kind: Kind[B], found: Mapping[str, bytes], default: B, unread: dict[str, Exception]) -> B:
    """Return the one entry of a kind, or what it is when there is none; one that cannot be read is noted."""
    data = found.get(kind.key())
    try:
        return kind.read(data) if data is not None else default
    except UnreadableEntryError as error:
        unread[kind.key()] = error
        return default


def _generations(found: Mapping[str, bytes], observation: Observation, works: list[Work]) -> int:
    """Return the highest generation of which a slot is in use: none of them may be given again, whatever is remembered."""
    slots = [TASK_LEASES.parts(key)[0] for key in found if key.startswith(TASK_LEASES.prefix)]
    slots += [work.labels.get(LEASE_LABEL, "") for work in works]
    slots += [slot for view in observation.nodes for name in view.total if (slot := slot_of_token(name)) is not None]
    numbers = [slot.partition(".")[0] for slot in slots]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _order(body: Any) -> int:
    order = body.get("order", 0)
    return order if isinstance(order, int) else 0
