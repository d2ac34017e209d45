"""Placement groups: created when they fit, kept while they do not, nothing left behind, whoever dies or removes them when."""

import itertools
from typing import Any

import msgspec
import pytest

from remora.errors import ControllerAwayError, UnknownNameError
from remora.model.groups import parse_group
from remora.protocol import steps
from remora.protocol.group_steps import drop_group, keep_group, make_group, remove_group
from remora.protocol.steps import Found
from remora.wire.calls import ConfirmGroup, DropGroup, OfferGroup, ReleaseGroup
from remora.wire.group_plans import CREATED, REMOVED, WAITING, GroupPlan, LateEntry
from remora.wire.group_requests import encode_group
from remora.wire.tokens import is_token, share_of_token

ID = "ab" * 18
FITS = {"option": 0, "nodes": {"token": ["n1"]}, "share_id": None, "reason": "", "suggestions": []}
SHARED = {**FITS, "share_id": "vc1+1"}
NOT_YET: dict[str, Any] = {"option": None, "nodes": {}, "share_id": None, "reason": "it is full", "suggestions": ["wait"]}


def plan(**options):
    request = parse_group([{"CPU": 1}, {"CPU": 2}], "PACK", virtual_cluster=options.pop("cluster", None))
    return GroupPlan(ID, encode_group(request), "01", **options)


class Gcs:
    """GCS, the store and the controller, as far as groups see them. ``offers`` are given one after another, the last always."""

    def __init__(self, *offers, found=Found.RESERVED):
        self.offers = list(offers)
        self.found = found
        self.groups = {}
        self.kept = {}
        self.signals = {}
        self.shares = set()
        self.confirmed = set()
        self.heard = []
        self.wanted = True
        self.names = set()
        self.tokens_seen = True
        self.before = {}  # by the kind of a step: what happens just before it is done
        self.count = 0
        self.refuses = ""

    def play(self, protocol, die_at=None, most=400):
        answer, error = None, None
        for number in itertools.count():
            try:
                step = protocol.send(answer) if error is None else protocol.throw(error)
            except StopIteration as end:
                return end.value
            if number == die_at:
                return None
            assert number < most, "it never ends"
            self.count += 1
            answer, error = None, None
            try:
                happening = self.before.pop(type(step), None)
                if happening is not None:
                    happening()
                answer = self.do(step)
            except Exception as raised:  # noqa: BLE001 - it is the protocol's
                error = raised
        return None

    def do(self, step):
        match step:
            case steps.Ask(call=OfferGroup()):
                offer = self.offers.pop(0) if len(self.offers) > 1 else self.offers[0]
                if isinstance(offer, Exception):
                    raise offer
                if offer["share_id"]:
                    self.shares.add(offer["share_id"])
                return offer
            case steps.Ask(call=DropGroup(group_id=group_id)):
                return self.play(drop_group(group_id))
            case steps.Tell(call=call):
                self.heard.append(call)
                if isinstance(call, ReleaseGroup):
                    known = self.shares if call.share_or_group == ID else {call.share_or_group}
                    self.shares -= known
                    self.confirmed -= known
                elif isinstance(call, ConfirmGroup):
                    self.confirmed.add(call.share_id)
            case steps.WaitForTokens():
                return self.tokens_seen
            case steps.CreateGroup(plan=made, bundles=bundles):
                if self.refuses:
                    return self.refuses
                self.groups[made.group_id] = bundles
                return ""
            case steps.LookAtGroup(group_id=group_id):
                return self.found if group_id in self.groups else Found.HOPELESS
            case steps.RemoveGroup(group_id=group_id):
                self.groups.pop(group_id, None)
            case steps.IsNameFree(plan=made):
                return made.name not in self.names
            case steps.IsWanted():
                return self.wanted
            case steps.Remember(entry=entry):
                self.kept[entry.plan.group_id] = entry
            case steps.Recall(group_id=group_id):
                return self.kept.get(group_id)
            case steps.Advance(before=before, entry=entry):
                kept = self.kept.get(entry.plan.group_id)
                if kept is None or kept.state != before:
                    return False
                self.kept[entry.plan.group_id] = entry
                return True
            case steps.Forget(group_id=group_id):
                self.kept.pop(group_id, None)
            case steps.Signal(group_id=group_id, created=created):
                self.signals[group_id] = created
            case steps.EndSignal() | steps.Pause():
                pass
            case _:
                raise AssertionError(step)
        return None

    def is_clean(self):
        """Nothing of the group is anywhere."""
        return not self.groups and not self.kept and not self.shares


def waiting(gcs, **options):
    """A group that waits, as it is kept."""
    entry = LateEntry(WAITING, plan(**options), "it is full", ["wait"])
    gcs.kept[ID] = entry
    return entry


# Making


def test_a_group_that_fits_is_created_at_once_with_its_classes_tokens():
    gcs = Gcs(FITS)
    assert gcs.play(make_group(plan()))["state"] == CREATED
    assert not gcs.kept
    for bundle, cpus in zip(gcs.groups[ID], (1, 2), strict=True):
        (token,) = (name for name in bundle if is_token(name))
        assert bundle["CPU"] == cpus
        assert bundle[token] == 0.0001
    assert not gcs.heard


def test_in_a_virtual_cluster_each_bundle_takes_a_share_of_its_own_and_that_is_confirmed():
    gcs = Gcs(SHARED)
    assert gcs.play(make_group(plan(cluster="vc1")))["state"] == CREATED
    owners = [share_of_token(name) for bundle in gcs.groups[ID] for name in bundle if is_token(name)]
    assert owners == [("vc1+1+0", "CPU"), ("vc1+1+1", "CPU")]
    assert gcs.heard == [ConfirmGroup("vc1+1", ID)]


def test_one_that_fits_nowhere_is_remembered_with_the_reason():
    gcs = Gcs(NOT_YET)
    answer = gcs.play(make_group(plan()))
    assert answer == {"state": WAITING, "reason": "it is full", "suggestions": ["wait"], "error": "", "shapes": []}
    assert gcs.kept[ID] == LateEntry(WAITING, plan(), "it is full", ["wait"])


def test_one_that_gcs_tries_by_itself_is_left_to_it_outside_of_virtual_clusters():
    gcs = Gcs(FITS, found=Found.QUEUED)
    answer = gcs.play(make_group(plan()))
    assert answer["state"] == CREATED
    assert answer["shapes"] == gcs.groups[ID]


@pytest.mark.parametrize(("offer", "found"), [(SHARED, Found.QUEUED), (SHARED, Found.HOPELESS), (FITS, Found.HOPELESS)])
def test_one_that_gcs_cannot_reserve_is_taken_back_and_kept(offer, found):
    gcs = Gcs(offer, found=found)
    answer = gcs.play(make_group(plan()))
    assert answer["state"] == WAITING
    assert "Ray has no room for it" in answer["reason"]
    assert not gcs.groups
    assert not gcs.shares


def test_one_whose_tokens_are_not_seen_is_not_created():
    """Ray would find it infeasible, and would not look again."""
    gcs = Gcs(SHARED)
    gcs.tokens_seen = False
    assert gcs.play(make_group(plan()))["state"] == WAITING
    assert not gcs.groups
    assert not gcs.shares


def test_the_second_of_a_name_is_refused_as_by_ray_and_keeps_nothing():
    gcs = Gcs(SHARED)
    gcs.names = {"mine"}
    answer = gcs.play(make_group(plan(name="mine")))
    assert answer["error"] == f"Failed to create placement group '{ID}' because name 'mine' already exists."
    gcs.names.clear()
    gcs.refuses = "GCS has it already"  # somebody else was quicker
    assert gcs.play(make_group(plan(name="mine")))["error"] == "GCS has it already"
    assert gcs.is_clean()


@pytest.mark.parametrize("offer", [FITS, SHARED, NOT_YET], ids=["outside", "inside", "waits"])
def test_made_twice_it_is_the_same(offer):
    gcs = Gcs(offer)
    first = gcs.play(make_group(plan()))
    before = dict(gcs.groups), dict(gcs.kept)
    assert gcs.play(make_group(plan())) == first
    assert (gcs.groups, gcs.kept) == before


# Keeping


def test_a_group_is_created_as_soon_as_it_fits_and_whoever_waits_is_told():
    gcs = Gcs(NOT_YET, NOT_YET, SHARED)
    gcs.play(keep_group(waiting(gcs)))
    assert ID in gcs.groups
    assert gcs.confirmed == {"vc1+1"}
    assert gcs.signals == {ID: True}
    assert not gcs.kept


def test_the_reason_is_kept_up_to_date():
    gcs = Gcs(NOT_YET, {**NOT_YET, "reason": "others are first"}, FITS)
    reasons = []
    entry = waiting(gcs)
    protocol = keep_group(entry)
    gcs.before[steps.CreateGroup] = lambda: reasons.append(gcs.kept[ID].reason)
    gcs.play(protocol)
    assert reasons == ["others are first"]


def test_what_goes_wrong_is_a_reason_and_no_end():
    gcs = Gcs(UnknownNameError("there is no virtual cluster 'vc1'"), ControllerAwayError("away"), SHARED)
    entry = waiting(gcs)
    seen = []
    gcs.before[steps.CreateGroup] = lambda: seen.append(gcs.kept[ID].reason)
    gcs.play(keep_group(entry))
    assert seen == ["away"]
    assert ID in gcs.groups


def test_one_that_gcs_tries_by_itself_is_watched_until_it_is_reserved():
    gcs = Gcs(FITS, found=Found.QUEUED)
    entry = waiting(gcs)
    looks = iter([Found.HOPELESS, Found.QUEUED, Found.QUEUED, Found.RESERVED])
    stock = gcs.do
    setattr(gcs, "do", lambda step: next(looks) if isinstance(step, steps.LookAtGroup) else stock(step))  # noqa: B010
    gcs.play(keep_group(entry))
    assert gcs.signals == {ID: True}


def test_of_a_job_that_has_ended_nothing_is_created():
    gcs = Gcs(SHARED)
    gcs.wanted = False
    gcs.play(keep_group(waiting(gcs)))
    assert gcs.is_clean()


def test_a_job_that_ends_while_its_group_is_created_leaves_none_behind():
    """GCS removes the groups of a job when it ends; this one comes a moment later."""
    gcs = Gcs(SHARED)
    gcs.before[steps.CreateGroup] = lambda: setattr(gcs, "wanted", False)
    gcs.play(keep_group(waiting(gcs)))
    assert gcs.is_clean()


OFFERS = pytest.mark.parametrize(
    ("offer", "found"), [(FITS, Found.RESERVED), (SHARED, Found.RESERVED), (FITS, Found.QUEUED), (SHARED, Found.QUEUED)]
)


def length_of(offer, found):
    gcs = Gcs(NOT_YET, offer, found=found)
    if found is Found.QUEUED:
        return 40
    gcs.play(keep_group(waiting(gcs)))
    return gcs.count


@OFFERS
def test_a_group_that_is_removed_while_it_is_being_created_is_gone(offer, found):
    """Before any step whatever: it must not be there in the end, and whoever waits for it is told."""
    for number in range(length_of(offer, found)):
        gcs = Gcs(NOT_YET, offer, found=found)
        protocol = keep_group(waiting(gcs))
        answer = None
        for at in itertools.count():
            try:
                step = protocol.send(answer)
            except StopIteration:
                break
            if at == number:
                gcs.play(remove_group(ID))
            answer = gcs.do(step)
            assert at < 400
        assert not gcs.groups, number
        assert not gcs.shares, number
        assert not gcs.kept, number


@OFFERS
def test_whoever_keeps_a_group_may_die_at_any_step_and_another_keeps_it_on(offer, found):
    """It is created once, confirmed, announced; and nothing else is left."""
    if found is Found.QUEUED and offer is SHARED:
        return  # it never ends
    for number in range(30):
        gcs = Gcs(NOT_YET, offer, found=found)
        gcs.play(keep_group(waiting(gcs)), die_at=number)
        gcs.found = Found.RESERVED
        if ID in gcs.kept:
            gcs.play(keep_group(gcs.kept[ID]))
        assert ID in gcs.groups, number
        assert gcs.signals == {ID: True}, number
        assert not gcs.kept, number


@OFFERS
def test_whatever_fails_once_is_tried_again(offer, found):
    """GCS may be away for a moment, at any step."""
    if found is Found.QUEUED:
        return
    for number in range(20):
        gcs = Gcs(NOT_YET, offer, found=found)
        protocol, answer, error = keep_group(waiting(gcs)), None, None
        for at in itertools.count():
            try:
                step = protocol.send(answer) if error is None else protocol.throw(error)
            except StopIteration:
                break
            assert at < 400
            fails = at in (number, number + 1) and not isinstance(step, steps.Pause)
            answer, error = (None, ConnectionError("GCS")) if fails else (gcs.do(step), None)
        assert ID in gcs.groups, number
        assert gcs.signals == {ID: True}, number
        assert not gcs.kept, number


def test_what_one_who_died_had_created_is_found_and_announced():
    gcs = Gcs(NOT_YET)
    gcs.groups[ID] = []
    gcs.play(keep_group(waiting(gcs)))
    assert gcs.signals == {ID: True}


@OFFERS
def test_it_may_die_while_the_group_is_being_removed(offer, found):
    for dies, removed in itertools.product(range(20), range(20)):
        gcs = Gcs(NOT_YET, offer, found=found)
        protocol = keep_group(waiting(gcs))
        answer = None
        for at in range(dies):
            try:
                step = protocol.send(answer)
            except StopIteration:
                break
            if at == removed:
                gcs.play(remove_group(ID))
            answer = gcs.do(step)
        else:
            if dies <= removed:
                gcs.play(remove_group(ID))
            if ID in gcs.kept:
                gcs.play(keep_group(gcs.kept[ID]))
            assert not gcs.groups, (dies, removed)
            assert not gcs.kept, (dies, removed)


def test_without_a_controller_a_group_that_waits_can_be_removed():
    gcs = Gcs(NOT_YET)
    waiting(gcs)
    stock = gcs.do

    def do(step):
        if isinstance(step, steps.Ask):
            raise ControllerAwayError("there is none")
        return stock(step)

    setattr(gcs, "do", do)  # noqa: B010
    gcs.play(remove_group(ID))
    assert gcs.kept[ID].state == REMOVED
    setattr(gcs, "do", stock)  # noqa: B010
    gcs.play(keep_group(gcs.kept[ID]))  # the next controller's
    assert gcs.is_clean()
    assert gcs.signals == {ID: False}


def test_removing_one_that_was_created_gives_its_share_back():
    gcs = Gcs(SHARED)
    gcs.play(make_group(plan(cluster="vc1")))
    gcs.play(remove_group(ID))
    assert gcs.heard[-1] == ReleaseGroup(ID)
    assert gcs.is_clean()


def test_an_entry_is_what_is_kept_and_travels():
    entry = LateEntry(WAITING, plan(name="mine", topology={"rack": "PACK"}), "it is full")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=LateEntry) == entry
