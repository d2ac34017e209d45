"""What clients say to the controller, in which order, and what they do about each answer."""

import msgspec
import pytest
from tests.unit.protocol.scripted import Scripted

from remora.errors import ControllerAwayError, ControllerError, UnknownNameError, VirtualClusterTimeoutError
from remora.protocol import steps
from remora.protocol.admission_steps import Verdict, begin_resubmission, end_resubmission, judge, wait_for_admission
from remora.protocol.cluster_steps import close_cluster, open_cluster
from remora.protocol.lease_steps import create_with_lease
from remora.protocol.lending_steps import wait_and_lend
from remora.wire.calls import Claim, CloseCluster, CreateCluster, Enter, GiveUp, Lend, LookAtCluster, Place, Reclaim, Who
from remora.wire.fences import ELSEWHERE, GO, LATER, OPEN, ROOT, Fence
from remora.wire.timing import CROWDED_SECONDS, RENEW_SECONDS

WHO = Who("w1", "vc1", "n1", {"CPU": 1.0})
CREATE = CreateCluster("question-1", "{}", None, "01", 0, [], 5.0)


def queued(reason="it is full"):
    return {"cluster_id": "vc1", "state": "QUEUED", "reason": reason}


READY = {"cluster_id": "vc1", "state": "READY", "reason": ""}


# Judging


@pytest.mark.parametrize(
    ("class_id", "cluster_id", "fence", "orphans", "want"),
    [
        ("ab", None, OPEN, [], Verdict.START),
        ("ab", None, Fence(frozenset({"ab"})), [], Verdict.RESUBMIT),
        ("cd", None, Fence(frozenset({"ab"})), [], Verdict.START),
        (None, None, Fence(frozenset({"ab"})), [], Verdict.START),
        ("ab", "vc1", Fence(full=frozenset({"vc1"})), [], Verdict.QUEUE),
        ("ab", "vc2", Fence(full=frozenset({"vc1"})), [], Verdict.START),
        ("ab", None, Fence(full=frozenset({ROOT})), [], Verdict.QUEUE),
        ("ab", "vc1", OPEN, ["w9"], Verdict.QUEUE),
        ("ab", "vc1", Fence(frozenset({"ab"}), frozenset({"vc1"})), ["w9"], Verdict.RESUBMIT),
    ],
)
def test_what_is_about_to_start_is_judged(class_id, cluster_id, fence, orphans, want):
    assert judge(class_id, cluster_id, fence, orphans) is want


# Admission


def test_who_waits_for_admission_is_marked_meanwhile_and_asks_until_it_is_told():
    script = Scripted({Enter: [None, None, GO]})
    assert script.perform(wait_for_admission(WHO, [], class_id="ab", in_group=False)) is True
    assert script.kinds() == ["MarkIdle", "Enter", "Enter", "Enter", "UnmarkIdle", "ReadFence"]
    asked = [step.call for step in script.done if isinstance(step, steps.Ask)]
    assert [call.again for call in asked if isinstance(call, Enter)] == [False, True, True]


def test_one_that_is_told_elsewhere_is_submitted_once_more():
    script = Scripted({Enter: ELSEWHERE})
    assert script.perform(wait_for_admission(WHO, [], class_id="ab", in_group=False)) is False


def test_one_that_is_told_elsewhere_stays_marked_until_that_has_begun():
    """Others use its share from that moment on: should it die, whoever gets its token has to know."""
    script = Scripted({Enter: ELSEWHERE})
    script.perform(wait_for_admission(WHO, ["w9"], class_id="ab", in_group=False))
    assert script.kinds() == ["MarkIdle", "Enter", "RereadFence", "ForgetOrphans"]
    script = Scripted({Enter: ELSEWHERE})
    script.perform(wait_for_admission(Who("w1", ROOT, "n1", {"CPU": 1.0}), [], class_id="ab", in_group=False))
    assert script.kinds() == ["MarkIdle", "Enter", "UnmarkIdle"]


def test_what_was_admitted_where_its_class_is_no_longer_accepted_is_submitted_once_more():
    script = Scripted({Enter: GO, steps.ReadFence: Fence(frozenset({"ab"}))})
    assert script.perform(wait_for_admission(WHO, [], class_id="ab", in_group=False)) is False
    script = Scripted({Enter: GO, steps.ReadFence: Fence(frozenset({"ab"}))})
    assert script.perform(wait_for_admission(WHO, [], class_id=None, in_group=False)) is True


def test_whatever_a_worker_says_is_of_a_later_turn_than_what_it_said_before():
    script = Scripted({steps.WaitForObjects: [False, True], Reclaim: [None, GO], steps.Tell: lambda step: step.call})
    script.perform(wait_and_lend(WHO, None))
    calls = [step.call for step in script.done if isinstance(step, (steps.Ask, steps.Tell))]
    lent, *reclaimed = [call.who.turn for call in calls if isinstance(call, (Lend, Reclaim))]
    assert 0 < lent < reclaimed[0] == reclaimed[1]


def test_where_many_wait_each_pauses_before_it_asks_again():
    script = Scripted({Enter: [LATER, LATER, GO]})
    script.perform(wait_for_admission(WHO, [], class_id="ab", in_group=False))
    assert script.kinds() == ["MarkIdle", "Enter", "Pause", "Enter", "Pause", "Enter", "UnmarkIdle", "ReadFence"]
    assert script.now == 100 + 2 * CROWDED_SECONDS


def test_orphans_are_forgotten_only_after_the_fence_was_read_again():
    script = Scripted({Enter: GO})
    script.perform(wait_for_admission(WHO, ["w9"], class_id=None, in_group=False))
    assert script.kinds() == ["MarkIdle", "Enter", "UnmarkIdle", "RereadFence", "ForgetOrphans"]


def test_what_uses_nothing_of_a_share_needs_no_admission():
    script = Scripted()
    nothing = Who("w1", "vc1", "n1", {})
    assert script.perform(wait_for_admission(nothing, [], class_id="ab", in_group=False)) is True
    assert script.done == []
    script = Scripted({Enter: GO})
    script.perform(wait_for_admission(nothing, [], class_id="ab", in_group=True))
    assert "Enter" in script.kinds()


@pytest.mark.parametrize("error", [ControllerAwayError("gone"), UnknownNameError("no vc1")])
def test_without_anybody_who_knows_it_work_starts(error):
    script = Scripted({Enter: error})
    assert script.perform(wait_for_admission(WHO, [], class_id="ab", in_group=False)) is True
    assert script.kinds() == ["MarkIdle", "Enter", "UnmarkIdle", "ReadFence"]


def test_a_controller_that_fails_is_asked_again_but_not_for_ever():
    script = Scripted({Enter: ControllerError("it failed")})
    assert script.perform(wait_for_admission(WHO, [], class_id="ab", in_group=False)) is True
    assert script.kinds().count("Enter") == 20
    assert [step.text for step in script.done if isinstance(step, steps.Say)] == ["it failed; it is asked again"]


def test_whoever_is_submitted_once_more_says_so_until_it_has_its_share_again():
    script = Scripted({Reclaim: GO})
    script.perform(begin_resubmission(WHO))
    script.perform(end_resubmission(WHO))
    assert script.kinds() == ["MarkIdle", "SentOn", "StopRenewing", "Reclaim", "UnmarkIdle"]


# Lending


def test_a_wait_that_is_over_in_a_moment_is_not_told():
    script = Scripted({steps.WaitForObjects: True})
    assert script.perform(wait_and_lend(WHO, None)) is True
    assert script.kinds() == ["WaitForObjects"]


def test_a_long_wait_is_told_again_and_again_and_ends_with_the_share_reclaimed():
    script = Scripted({steps.WaitForObjects: [False, False, True], Reclaim: [None, GO], steps.Tell: lambda step: step.call})
    assert script.perform(wait_and_lend(WHO, None)) is True
    assert script.kinds() == [
        *("WaitForObjects", "MarkIdle", "Lend"),
        *("WaitForObjects", "Lend", "WaitForObjects"),
        *("UntilHeard", "Reclaim", "Reclaim", "UnmarkIdle"),
    ]
    (heard,) = (step for step in script.done if isinstance(step, steps.UntilHeard))
    said = Lend(msgspec.structs.replace(WHO, turn=100.0))
    assert heard.messages == (said, said)


def test_what_the_user_gets_is_raised_after_the_share_is_reclaimed():
    script = Scripted({steps.WaitForObjects: [False, KeyError("the user's")], Reclaim: GO})
    with pytest.raises(KeyError, match="the user's"):
        script.perform(wait_and_lend(WHO, None))
    assert script.kinds()[-3:] == ["UntilHeard", "Reclaim", "UnmarkIdle"]


def test_a_wait_with_a_time_limit_ends_then():
    script = Scripted({Reclaim: GO})

    def wait(step):
        script.now += step.seconds
        return False

    script.answers[steps.WaitForObjects] = wait
    assert script.perform(wait_and_lend(WHO, 100.0 + RENEW_SECONDS + 1)) is False
    assert script.now == pytest.approx(100.0 + RENEW_SECONDS + 1)


# Leases


@pytest.mark.parametrize(
    ("made", "want"),
    [
        ("actor-1", steps.Tell(Claim("1.7", "actor-1", "question-1"))),
        (None, steps.TellWhenDone(GiveUp("1.7", "question-1"))),
        (RuntimeError("no"), steps.Tell(GiveUp("1.7", "question-1"))),
    ],
)
def test_what_became_of_a_slot_is_told_with_the_question_that_it_answered(made, want):
    script = Scripted({Place: lambda _: ["1.7", "n1"], steps.CreateWithLease: made})
    if isinstance(made, Exception):
        with pytest.raises(RuntimeError):
            script.perform(create_with_lease("question-1", "{}", "01"))
    else:
        script.perform(create_with_lease("question-1", "{}", "01"))
    assert script.done[-1] == want
    assert script.done[1] == steps.CreateWithLease("1.7", "n1")


# Virtual clusters


def test_a_cluster_that_is_ready_at_once_costs_one_question():
    script = Scripted({CreateCluster: READY})
    assert script.perform(open_cluster(CREATE, "VirtualCluster({})", None)) == "vc1"
    assert script.kinds() == ["CreateCluster"]


def test_why_a_cluster_waits_is_said_once_for_each_reason_and_when_it_is_ready():
    looks = [queued()] * 20 + [queued("others are first")] * 20 + [READY]
    script = Scripted({CreateCluster: queued(), LookAtCluster: looks})
    assert script.perform(open_cluster(CREATE, "VirtualCluster({})", None)) == "vc1"
    said = [step.text for step in script.done if isinstance(step, steps.Say)]
    assert said == [
        "virtual cluster vc1 waits: it is full",
        "virtual cluster vc1 waits: others are first",
        "virtual cluster vc1 is ready after 8 s",
    ]


@pytest.mark.parametrize("number", range(1, 7))
def test_whoever_stops_waiting_gives_the_place_back_by_the_question(number):
    script = Scripted({CreateCluster: queued(), LookAtCluster: queued()})

    def interrupt(_):
        if len(script.done) > number:
            raise KeyboardInterrupt
        return queued()

    script.answers.update({CreateCluster: interrupt, LookAtCluster: interrupt})
    with pytest.raises(KeyboardInterrupt):
        script.perform(open_cluster(CREATE, "VirtualCluster({})", None))
    assert script.done[-1] == steps.Ask(CloseCluster("question-1", True))


def test_a_cluster_that_is_not_reserved_in_time_leaves_the_queue_with_the_reason():
    script = Scripted({CreateCluster: queued(), LookAtCluster: queued()})
    with pytest.raises(VirtualClusterTimeoutError, match=r"not reserved within 3 s: it is full. It has left the queue"):
        script.perform(open_cluster(CREATE, "VirtualCluster({})", 3.0))
    assert script.done[-1] == steps.Ask(CloseCluster("question-1", True))
    assert script.now == pytest.approx(103)


def test_that_the_controller_is_away_does_not_hide_why_somebody_stopped():
    script = Scripted({CreateCluster: KeyboardInterrupt(), CloseCluster: ControllerAwayError("gone")})
    with pytest.raises(KeyboardInterrupt):
        script.perform(open_cluster(CREATE, "VirtualCluster({})", None))


def test_closing_is_one_message():
    script = Scripted()
    script.perform(close_cluster("question-1", unused=False))
    assert script.done == [steps.Tell(CloseCluster("question-1", False), urgent=False)]
