"""What clients may ask the controller: each call changes what is known, and is answered when what follows from it is there.

``begin`` takes a call in; its ``Pending`` is polled until there is an answer. In between whoever runs the controller performs
the effects that it plans. A call that arrives twice is answered twice and changes things once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from remora.controller import operating  # noqa: F401 - it answers calls too
from remora.controller.answering import Pending, Reply, answers, handlers, value
from remora.controller.clusters.lending import Kind
from remora.controller.clusters.records import CLOSED
from remora.controller.controller import Controller
from remora.controller.groups.group_shares import IN_USE
from remora.controller.marking import find_node, mark
from remora.controller.views.machine_words import suggestions_for, with_machines
from remora.controller.views.reasons import why_waiting, why_work
from remora.controller.views.status import status
from remora.controller.views.tree_view import look_at, root_row, tree
from remora.controller.views.unsubmitted import plan_for
from remora.errors import ControllerAwayError, RemoraError
from remora.kernel.explaining.explain import Explanation
from remora.kernel.explaining.explain_groups import explain_group
from remora.kernel.explaining.never_fits import lookalikes, resources_of
from remora.kernel.placing.group_fit import first_possible, is_there
from remora.kernel.state.cluster_tree import VCluster
from remora.kernel.state.workloads import Group
from remora.model.resources import Resources
from remora.model.strategies import ACTOR
from remora.model.virtual_clusters import VirtualCluster
from remora.port.contract import JOB
from remora.wire import calls
from remora.wire.asks import decode_ask
from remora.wire.classes import ClassSpec, choice_from
from remora.wire.group_requests import class_of, decode_group
from remora.wire.keys import OBJECTS, TASK_LEASES
from remora.wire.shapes import shape_key
from remora.wire.timing import OFFER_SECONDS, TOLD_SECONDS
from remora.wire.tokens import class_of_token, class_token

_NO_MACHINES = "the nodes that are there could not hold it, even when nothing else ran"

_LOWERED_SECONDS = 3.0
"""So long a taint waits for its node to lower what is free there: while a placement group is moved, GCS makes no hold."""


def begin(controller: Controller, call: calls.Call) -> Pending:
    """Take in a call. Whatever goes wrong with it is the caller's answer, and nobody else's."""
    if controller.is_withdrawn and not isinstance(call, calls.Withdraw):
        return _now(
            Reply(error=ControllerAwayError("the controller of this cluster was shut down: attach again to start another"))
        )
    name = type(call).__name__
    try:
        pending = handlers[type(call)](controller, call)
    except RemoraError as error:
        return _now(Reply(error=error))
    except Exception as error:  # noqa: BLE001 - one call that fails stops no other
        controller.context.aside.add("call", name, error)
        return _now(Reply(error=error))
    controller.context.aside.well("call", name)
    return pending


def _now(reply: Reply) -> Pending:
    return Pending(lambda: reply)


def _once_stored(controller: Controller, key: str) -> Pending:
    """Answer when what is remembered is as it should be: whoever is answered does not say it again, and whoever comes after us
    knows only what is remembered."""
    return Pending(lambda: Reply() if controller.store.is_confirmed(key) else None)


# Classes and leases


@answers(calls.EnsureClass)
def _ensure(controller: Controller, call: calls.EnsureClass) -> Pending:
    spec = _spec(call.spec)
    return _once_remembered(controller, [spec], _need(controller, spec))


@answers(calls.Place)
def _place(controller: Controller, call: calls.Place) -> Pending:
    ask = decode_ask(call.request)
    slot, node_id = controller.leases.place(call.ask, ask, call.job_id, call.worker_id)
    controller.growing.offer(ask.request.cluster, ask.request.demand)
    if ask.request.kind == ACTOR:  # GCS keeps its labels, by which whoever comes after us finds it
        return value((slot, node_id))
    key = TASK_LEASES.key(slot)
    return Pending(lambda: Reply((slot, node_id)) if controller.store.is_confirmed(key) else None)


@answers(calls.Claim)
def _claim(controller: Controller, call: calls.Claim) -> Pending:
    controller.leases.claim(call.slot, call.actor_id, call.ask)
    return value(None)


@answers(calls.GiveUp)
def _give_up(controller: Controller, call: calls.GiveUp) -> Pending:
    controller.leases.give_up(call.slot, call.ask)
    return _once_stored(controller, TASK_LEASES.key(call.slot))


@answers(calls.PutObject)
def _put_object(controller: Controller, call: calls.PutObject) -> Pending:
    bystanders = controller.leases.bystanders
    bystanders.put_object(call.object_id, call.labels, call.node_id, call.namespace, call.job_id)
    return _once_stored(controller, OBJECTS.key(call.object_id))


@answers(calls.DropObject)
def _drop_object(controller: Controller, call: calls.DropObject) -> Pending:
    controller.leases.bystanders.drop(call.object_id)
    return _once_stored(controller, OBJECTS.key(call.object_id))


# Placement groups


@answers(calls.OfferGroup)
def _offer_group(controller: Controller, call: calls.OfferGroup) -> Pending:
    request = decode_group(call.group)
    group = Group("", request)
    option = first_possible(controller.cluster, group)
    if option is not None and request.cluster is None and not is_there(controller.cluster, group, option):
        # Only with machines that are not there: until they are, GCS would find it infeasible.
        controller.scaling.waits.offer(call.ask, request)
        return value(_refused(controller, Explanation(_NO_MACHINES), call.ask))
    if option is None:
        # Not even with all machines that there may be. Where it is planned for, that says which limit is in the way.
        if request.cluster is None:
            controller.scaling.waits.offer(call.ask, request)
        return value(_refused(controller, explain_group(controller.cluster, group), call.ask))
    if request.cluster is None and not request.levels(option):
        controller.scaling.waits.place(call.ask)
        kinds = dict.fromkeys(bundle.nodes for bundle in request.options[option])
        nodes = {class_token(spec.class_id): _need(controller, spec) for spec in map(class_of, kinds)}
        return Pending(lambda: Reply(_offer(option, nodes, Explanation(""))) if _stand(controller, nodes) else None)
    record, why = controller.groups.offer(group, option, call.job_id, call.ask)
    if record is None:
        controller.scaling.waits.offer(call.ask, request)
        return value(_refused(controller, why, call.ask))
    controller.scaling.waits.place(call.ask)
    share_id = record.cluster_id

    def poll() -> Reply | None:
        """Its tokens stand, or there was no room for them: then nothing of it stays."""
        group = record.group
        if group is None or group.released or controller.registry.records.get(share_id) is not record:
            return Reply(_offer(None, {}, Explanation(IN_USE)))
        if controller.groups.in_place(record) and controller.registry.is_saved(share_id):
            return Reply(_offer(option, controller.groups.tokens(record), Explanation(""), share_id))
        # What has to make room for it may have to be held first, and a hold waits for the report that shows its token.
        young = controller.now() - record.made_at < OFFER_SECONDS
        writing = controller.groups.is_writing(record) or not controller.shares.lacks(share_id)
        if record.vcluster.whole and (young or writing):
            controller.shares.look = True
            return None
        controller.groups.release(share_id)
        return Reply(_offer(None, {}, Explanation(IN_USE)))

    return Pending(poll)


@answers(calls.ConfirmGroup)
def _confirm_group(controller: Controller, call: calls.ConfirmGroup) -> Pending:
    controller.groups.confirm(call.share_id, call.group_id)
    return value(None)


@answers(calls.ReleaseGroup)
def _release_group(controller: Controller, call: calls.ReleaseGroup) -> Pending:
    known = controller.groups.release(call.share_or_group, call.ask)
    controller.scaling.waits.place(call.share_or_group)
    controller.shares.look = True
    return value(known)


# Virtual clusters


@answers(calls.CreateCluster)
def _create_cluster(controller: Controller, call: calls.CreateCluster) -> Pending:
    record = controller.registry.by_ask(call.ask)
    past = controller.registry.past(call.ask)
    if record is None and past is not None:
        return value({"cluster_id": past, "state": CLOSED, "position": 0, "reason": ""})
    if record is None:
        tolerations = choice_from([], call.tolerations, [], None).tolerations
        spec = VirtualCluster.parse(call.spec)
        record = controller.registry.create(
            spec, call.parent, call.job_id, call.priority, tolerations, call.idle_seconds, call.ask, call.worker_id
        )
    cluster_id = record.cluster_id
    controller.registry.save([cluster_id])

    def poll() -> Reply | None:
        """It is queued or reserved, and whoever comes after us knows of it. Its tokens are on their way: what is submitted
        meanwhile waits for them in Ray, as it does in a cluster that grows."""
        if not controller.registry.is_saved(cluster_id):
            return None
        return Reply({**look_at(controller, cluster_id), "warnings": _misspelled(controller, record.vcluster)})

    return Pending(poll)


@answers(calls.LookAtCluster)
def _look_at_cluster(controller: Controller, call: calls.LookAtCluster) -> Pending:
    return value(look_at(controller, call.cluster_id))


@answers(calls.CloseCluster)
def _close_cluster(controller: Controller, call: calls.CloseCluster) -> Pending:
    """By its id, or by the question that it was the answer to. That it is unused says nothing about those inside."""
    asked = controller.registry.by_ask(call.cluster_id)
    cluster_id = asked.cluster_id if asked is not None else call.cluster_id
    if cluster_id not in controller.registry.records:
        controller.registry.refuse(call.cluster_id)
    closed = controller.registry.close(cluster_id)
    for record in closed:
        controller.growing.close(record, unused=call.unused if record.cluster_id == cluster_id else not record.offered)
    controller.shares.refresh()  # that sets what is remembered
    names = {cluster_id, *(record.cluster_id for record in closed)}
    return Pending(lambda: Reply() if all(map(controller.registry.is_saved, names)) else None)


@answers(calls.WantShares)
def _want_shares(controller: Controller, call: calls.WantShares) -> Pending:
    asked = _wants(call.hints)
    for spec, _, _ in asked:
        _need(controller, spec)
    controller.growing.hear(asked)
    return _once_remembered(controller, [spec for spec, _, _ in asked], None)


@answers(calls.RequestShares)
def _request_shares(controller: Controller, call: calls.RequestShares) -> Pending:
    asked = _wants(call.hints)
    for spec, _, _ in asked:
        _need(controller, spec)
    controller.growing.request(call.cluster_id, asked)
    return _once_remembered(controller, [spec for spec, _, _ in asked], None)


@answers(calls.Lend)
def _lend(controller: Controller, call: calls.Lend) -> Pending:
    _hear(controller, call.who, Kind.LENT)
    return value(None)


@answers(calls.SentOn)
def _sent_on(controller: Controller, call: calls.SentOn) -> Pending:
    _hear(controller, call.who, Kind.RESUBMITTED)
    return value(None)


@answers(calls.Reclaim)
def _reclaim(controller: Controller, call: calls.Reclaim) -> Pending:
    return _wait_for_admission(controller, call.who, Kind.RETURNING, again=call.again)


@answers(calls.Enter)
def _enter(controller: Controller, call: calls.Enter) -> Pending:
    for worker_id in call.dead:
        controller.leases.worker_ended(worker_id)
        controller.lending.mark_dead(worker_id)
    return _wait_for_admission(controller, call.who, Kind.STARTING if call.may_go else Kind.BOUND, again=call.again)


def _wait_for_admission(controller: Controller, who: calls.Who, kind: Kind, *, again: bool) -> Pending:
    if not (again and controller.lending.is_admitted(who.worker_id)):
        _hear(controller, who, kind)

    def poll() -> Reply | None:
        answer = controller.lending.answered(who.worker_id, who.turn) or controller.admission.answer(who.worker_id)
        if answer is None and controller.lending.find(who.worker_id) is None:
            _hear(controller, who, kind)  # it was forgotten, because it was not heard of for a while
        return Reply(answer) if answer is not None else None

    return Pending(poll)


def _hear(controller: Controller, who: calls.Who, kind: Kind) -> None:
    amounts = Resources.parse(who.amounts)
    controller.lending.hear(who.worker_id, who.cluster_id, who.node_id, amounts, kind, who.turn or None, who.part)
    controller.shares.look = True


# People and programs that look or change something


@answers(calls.FindNode)
def _find_node(controller: Controller, call: calls.FindNode) -> Pending:
    return value(find_node(controller, call))


@answers(calls.LabelNode)
def _label(controller: Controller, call: calls.LabelNode) -> Pending:
    return _mark(controller, call)


@answers(calls.TaintNode)
def _taint(controller: Controller, call: calls.TaintNode) -> Pending:
    return _mark(controller, call)


def _mark(controller: Controller, call: calls.LabelNode | calls.TaintNode) -> Pending:
    """Answered, where taints are concerned, when nothing that does not tolerate them can start on the node any more."""
    node_id, tainted = mark(controller, call)
    if not tainted:
        return Pending(lambda: Reply() if controller.picture.is_remembered(node_id) else None)
    controller.touch(node_id)  # a fence of before may still be up: what is asked for is this one

    def poll() -> Reply | None:
        if node_id not in controller.picture.views:
            return Reply(False)
        controller.class_tokens.refresh()  # or a fence of before would be taken for the one that follows from this
        if node_id in controller.class_tokens.dirty or not controller.picture.is_remembered(node_id):
            return None
        fenced = bool(controller.fences.classes(node_id))
        if not fenced:
            return Reply(False) if controller.fences.is_confirmed(node_id) else None
        told_for = controller.fences.confirmed_for(node_id) - TOLD_SECONDS
        # Every worker knows. Actors and groups ask nobody: they start for as long as their tokens are free there.
        is_over = controller.class_tokens.is_lowered(node_id) or told_for > _LOWERED_SECONDS
        return Reply(True) if told_for >= 0 and is_over else None

    return Pending(poll)


@answers(calls.GetStatus)
def _status(controller: Controller, _: calls.GetStatus) -> Pending:
    return value(status(controller))


@answers(calls.GetWaiting)
def _waiting(controller: Controller, call: calls.GetWaiting) -> Pending:
    demands = {shape_key(demand.shapes): demand for demand in controller.picture.demands}
    found = [demands.get(key) for key in call.keys]
    return value(
        [
            None if each is None else {"count": each.count, **why_waiting(controller, each.shapes, each.strategy)}
            for each in found
        ]
    )


@answers(calls.Explain)
def _explain(controller: Controller, call: calls.Explain) -> Pending:
    def poll() -> Reply | None:
        works = controller.questions.inquire(call.id_or_name)
        return None if works is None else Reply([why_work(controller, work) for work in works if work.kind != JOB])

    return Pending(poll)


@answers(calls.GetEvents)
def _events(controller: Controller, call: calls.GetEvents) -> Pending:
    return value(controller.context.journal.entries(call.since))


@answers(calls.GetClusters)
def _clusters(controller: Controller, _: calls.GetClusters) -> Pending:
    return value(tree(controller))


@answers(calls.GetTree)
def _tree(controller: Controller, _: calls.GetTree) -> Pending:
    return value([root_row(controller.cluster), *tree(controller)])


@answers(calls.PlanFor)
def _plan_for(controller: Controller, call: calls.PlanFor) -> Pending:
    spec = VirtualCluster.parse(call.spec) if call.spec else None
    return value(plan_for(controller, spec, call.priority, [(decode_ask(ask), count) for ask, count in call.work]))


@answers(calls.Withdraw)
def _withdraw(controller: Controller, _: calls.Withdraw) -> Pending:
    controller.withdraw()

    def poll() -> Reply | None:
        left = controller.withdrawal.left()
        still_asking = not controller.scaling.machines.is_over and controller.withdrawal.is_patient
        return Reply(left) if left is not None and not still_asking else None

    return Pending(poll)


# The rest


def _need(controller: Controller, spec: ClassSpec) -> list[str]:
    """Offer a class that somebody is about to use. Return the nodes that it is offered on."""
    controller.growing.offer(spec.cluster)
    if controller.roster.need(spec):
        nodes = controller.class_tokens.wake(spec)  # before its cluster grows for it
        where = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}"
        controller.context.note("class", spec.class_id, f"{spec.describe() or 'any node'}: offered on {where}")
        return nodes
    return controller.class_tokens.nodes_of(spec)


def _once_remembered(controller: Controller, specs: list[ClassSpec], answer: Any) -> Pending:
    """Give this answer when whoever comes after us would know of these classes: nobody says them again so soon."""
    ids = [spec.class_id for spec in specs]
    return Pending(lambda: Reply(answer) if all(map(controller.roster.is_saved, ids)) else None)


def _stand(controller: Controller, nodes: dict[str, list[str]]) -> bool:
    """Return whether tokens stand on all their nodes that can be written to."""
    controller.class_tokens.refresh()
    dirty, views = controller.class_tokens.dirty, controller.picture.views
    if not all(controller.roster.is_saved(class_of_token(token) or "") for token in nodes):
        return False
    wanted = {node_id for each in nodes.values() for node_id in each if node_id in views}
    return not any(node_id in dirty or controller.book.is_writing(node_id) for node_id in wanted)


def _offer(option: int | None, nodes: dict[str, list[str]], why: Explanation, share_id: str | None = None) -> dict[str, Any]:
    suggestions = [str(each) for each in why.suggestions]
    return {"option": option, "nodes": nodes, "share_id": share_id, "reason": why.reason, "suggestions": suggestions}


def _refused(controller: Controller, why: Explanation, ask: str) -> dict[str, Any]:
    """No place now: why, and what is done about machines for it. Where a limit of theirs is in the way, that is what would
    help."""
    offer = _offer(None, {}, with_machines(controller, why, ("group", ask)))
    return {**offer, "suggestions": suggestions_for(controller, ("group", ask)) or offer["suggestions"]}


def _misspelled(controller: Controller, vcluster: VCluster) -> list[str]:
    """Return what the limits of a cluster name that no node has, and that looks like what some have: it limits nothing."""
    found = lookalikes(resources_of(controller.cluster), vcluster.spec.flexible_resource_max or ())
    return [f"no node has {name}, so its maximum limits nothing: did you mean {other}?" for name, other in found]


def _wants(hints: Iterable[calls.Hint]) -> list[tuple[ClassSpec, Resources, int]]:
    return [(_spec(hint.spec), Resources.parse(hint.resources), hint.count) for hint in hints]


@lru_cache(maxsize=1024)
def _spec(data: bytes) -> ClassSpec:
    return ClassSpec.decode(data)
