"""The controller in memory: rare resources, classes that sleep and wake, placement groups, why, and what happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remora import Exists, InvalidStrategyError
from remora.controller.core import Controller
from remora.controller.roster import MOST_OFFERED
from remora.controller.status import status
from remora.controller.why import why_work
from remora.model.taints import isolation_label, rare_resources
from remora.ray_seam.waiting import Waiting
from remora.seam.memory import MemoryPort
from remora.seam.port import ACTOR, ENDED, GROUP, RUNNING, TASK, WAITING, Work
from remora.wire.classes import IDLE_SECONDS, ClassSpec
from remora.wire.groups import decode_group, encode_group
from remora.wire.options import Defaults, rewrite, rewrite_group
from remora.wire.shapes import shape_key
from remora.wire.tokens import GROUPS, OFFERED, TAKEN, class_token


def spec(**options: Any) -> ClassSpec:
    return rewrite(options, Defaults()).spec


PLAIN = spec()
IN_A, IN_B = spec(label_selector={"zone": "a"}), spec(label_selector={"zone": "b"})


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def port() -> MemoryPort:
    port = MemoryPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b"})
    return port


def offers(port: MemoryPort, of: ClassSpec) -> set[str]:
    return {view.node_id for view in port.observe().nodes if view.total.get(class_token(of.class_id)) == OFFERED}


# ------------------------------------------------------------------------------------------------- rare resources


def test_a_node_with_a_rare_resource_is_tainted_and_who_asks_for_it_tolerates_that():
    port = MemoryPort()
    port.join("head", {"CPU": 1}, {isolation_label("GPU"): "true", isolation_label("odd"): "true"})
    port.join("g", {"CPU": 4, "GPU": 1})
    port.join("o", {"CPU": 4, "Odd": 1})
    controller = Controller(port)
    controller.round()
    rare = rare_resources({isolation_label("GPU"): "true", isolation_label("odd"): "true", "zone": "true"})
    assert controller.rare == rare == {"gpu", "odd"}
    assert controller.ensure(PLAIN) == ["head"]
    tolerant = PLAIN.tolerating(["rare_resource.ray.io/gpu"])
    assert controller.ensure(tolerant) == ["head", "g"]
    assert {row["node_id"]: row["taints"] for row in status(controller)["nodes"]} == {
        "head": {},
        "g": {"rare_resource.ray.io/gpu": "true"},
        "o": {"rare_resource.ray.io/odd": "true"},
    }
    controller.taint("g", drop=["rare_resource.ray.io/gpu"])
    assert offers(port, PLAIN) == {"head", "g"}


def test_bundles_tolerate_the_taints_of_the_rare_resources_that_they_ask_for():
    defaults = Defaults(rare=frozenset({"gpu"}))
    request = rewrite_group([{"CPU": 1}, {"GPU": 1}], None, {"tolerations": None}, defaults)
    assert [bundle.nodes.tolerations.to_dict() for bundle in request.options[0]] == [
        {},
        {"rare_resource.ray.io/gpu": "exists()"},
    ]


# -------------------------------------------------------------------------------------------- classes sleep and wake


def test_a_class_that_nobody_uses_is_no_longer_offered_and_wakes_when_it_is_needed(port: MemoryPort):
    clock = Clock()
    controller = Controller(port, clock)
    controller.round()
    controller.ensure(PLAIN)
    controller.ensure(IN_A)
    clock.at += IDLE_SECONDS - 1
    controller.ensure(PLAIN)  # said again: it stays
    clock.at += 5
    controller.round()
    assert (offers(port, PLAIN), offers(port, IN_A)) == ({"n1", "n2"}, set())
    assert controller.ensure(IN_A) == ["n1"]
    assert offers(port, IN_A) == {"n1"}


def test_a_class_that_is_held_or_waited_for_does_not_sleep(port: MemoryPort):
    clock = Clock()
    controller = Controller(port, clock)
    controller.round()
    controller.ensure(IN_A)
    controller.ensure(IN_B)
    port.take("n1", {class_token(IN_A.class_id): TAKEN})
    port.wait({"CPU": 9, class_token(IN_B.class_id): TAKEN})
    for _ in range(4):
        clock.at += IDLE_SECONDS
        controller.round()
    assert (offers(port, IN_A), offers(port, IN_B)) == ({"n1"}, {"n2"})


def test_work_that_waits_for_a_sleeping_class_wakes_it_also_after_a_restart(port: MemoryPort):
    clock = Clock()
    controller = Controller(port, clock)
    controller.round()
    controller.ensure(IN_A)
    clock.at += IDLE_SECONDS + 1
    controller.round()
    assert offers(port, IN_A) == set()
    port.wait({"CPU": 1, class_token(IN_A.class_id): TAKEN})
    controller.round()
    assert offers(port, IN_A) == {"n1"}


def test_there_are_never_many_more_tokens_on_a_node_than_the_limit(port: MemoryPort):
    clock = Clock()
    controller = Controller(port, clock)
    controller.round()
    classes = [spec(tolerations={f"k{number}": Exists()}) for number in range(MOST_OFFERED + 50)]
    for made in classes:
        controller.ensure(made)
    port.take("n1", {class_token(classes[0].class_id): TAKEN})
    clock.at += 10
    controller.round()
    for view in port.observe().nodes:
        assert sum(name.startswith("remora/") for name in view.total) == MOST_OFFERED
    assert offers(port, classes[0]) == {"n1", "n2"}  # in use
    assert offers(port, classes[1]) == set()  # the one unused for longest made room
    assert offers(port, classes[-1]) == {"n1", "n2"}


# --------------------------------------------------------------------------------------------------- placement groups


def group(bundles: Any, **options: Any) -> Any:
    names = ("bundle_label_selector", "tolerations", "fallback_strategy")
    return rewrite_group(bundles, options.pop("strategy", None), {name: options.get(name) for name in names}, Defaults())


def test_the_first_option_that_could_ever_fit_is_offered_with_its_tokens(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    wanted = group(
        [{"CPU": 1}] * 2,
        bundle_label_selector=[{"zone": "c"}] * 2,
        fallback_strategy=[
            {"bundles": [{"CPU": 2}] * 3, "bundle_label_selector": [{"zone": "b"}] * 3},
            {"bundles": [{"CPU": 1}]},
        ],
    )
    offer = controller.offer_group(wanted)
    assert (offer.option, offer.nodes) == (2, {class_token(replace(PLAIN, takers=GROUPS).class_id): ["n1", "n2"]})
    port.join("n3", {"CPU": 2}, {"zone": "b"})
    assert controller.offer_group(wanted).option == 1
    assert offers(port, replace(IN_B, takers=GROUPS)) == {"n2", "n3"}


def test_a_group_that_fits_nowhere_is_not_offered_and_says_why(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    offer = controller.offer_group(group([{"CPU": 1}], bundle_label_selector=[{"zone": "c"}]))
    assert (offer.option, offer.nodes) == (None, {})
    assert offer.why.reason == "1 bundle fits nowhere (of 1): 0/2 nodes fit: 2 do not match zone=c"
    assert "add a node with 1 CPU and the label zone=c" in [str(each) for each in offer.why.suggestions]


def test_what_a_placement_group_has_reserved_of_a_token_is_left_alone(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    reserved = {f"{class_token(PLAIN.class_id)}_group_0_ab": TAKEN, f"{class_token(PLAIN.class_id)}_group_ab": TAKEN}
    port.resize("n1", reserved)
    controller.round()
    controller.withdraw()
    left = next(view for view in port.observe().nodes if view.node_id == "n1").total
    assert {name: left[name] for name in reserved} == reserved
    assert class_token(PLAIN.class_id) not in left


def test_a_group_survives_its_journey():
    wanted = group(
        [{"CPU": 0.5}, {"GPU": 1}],
        strategy="SPREAD",
        tolerations={"k": Exists()},
        fallback_strategy=[{"bundles": [{"CPU": 1}]}],
    )
    assert decode_group(encode_group(wanted)) == wanted


def test_a_bad_fallback_of_a_group_is_refused():
    with pytest.raises(InvalidStrategyError, match="'bundles' and 'bundle_label_selector'"):
        group([{"CPU": 1}], fallback_strategy=[{"bundle": [{"CPU": 1}]}])


# -------------------------------------------------------------------------------------------------- why, and what happened


def work(state: str, detail: str, shape: dict[str, float], kind: str = TASK, **more: Any) -> Work:
    return Work(kind, "id", "it", "01", state, detail, (shape,), **more)


TOKEN = {class_token(IN_B.class_id): TAKEN}

WHYS = {
    "runs": (work(RUNNING, "RUNNING", {"CPU": 1}, node_ids=("n1",)), "it runs on n1"),
    "ended": (work(ENDED, "FAILED: boom", {"CPU": 1}), "it has ended (FAILED: boom)"),
    "arguments": (work(WAITING, "PENDING_ARGS_AVAIL", {"CPU": 1, **TOKEN}), "its arguments are not there yet"),
    "no token": (work(WAITING, "PENDING_NODE_ASSIGNMENT", {"CPU": 1}), "submitted by a job that is not attached"),
    "too large": (
        work(WAITING, "PENDING_CREATION", {"CPU": 9, **TOKEN}, ACTOR),
        "0/2 nodes fit: 1 does not match zone=b, 1 is too small for 9 CPU",
    ),
    "fits": (work(WAITING, "PENDING_NODE_ASSIGNMENT", {"CPU": 1, **TOKEN}), "1/2 nodes fit: it is about to start"),
    "a group": (
        Work(GROUP, "id", "", "01", WAITING, "PENDING", ({"CPU": 9, **TOKEN},), strategy="PACK"),
        "1 bundle fits nowhere (of 1): 0/2 nodes fit: 1 does not match zone=b, 1 is too small for 9 CPU",
    ),
    "in a group": (work(WAITING, "PENDING_CREATION", {"CPU_group_ab": 1}, ACTOR), "its placement group has no room"),
}


@pytest.mark.parametrize("name", WHYS)
def test_work_is_explained_by_its_state_and_its_class(port: MemoryPort, name: str):
    controller = Controller(port)
    controller.round()
    controller.ensure(IN_B)
    asked, reason = WHYS[name]
    row = why_work(controller, asked)
    assert row["reason"].startswith(reason)
    assert not any(resource.startswith("remora/") for shape in row["resources"] for resource in shape)


def test_what_happened_is_told_in_order_and_remembered_by_the_next_controller(port: MemoryPort):
    clock = Clock()
    first = Controller(port, clock)
    first.round()
    first.taint("n1", (("k", "v"),))
    port.leave("n2")
    first.round()
    second = Controller(port, clock)
    told = [(entry["kind"], entry["subject"], entry["text"]) for entry in second.journal.entries()]
    assert told == [
        ("controller", "", "the controller started; it remembers 0 classes"),
        ("node", "n1", "the node 127.0.0.1 joined"),
        ("node", "n2", "the node 127.0.0.1 joined"),
        ("taint", "n1", "k=v"),
        ("node", "n2", "the node left"),
        ("controller", "", "the controller started; it remembers 0 classes"),
    ]


# --------------------------------------------------------------------------------------------------- the waiting line


class Asked:
    """Answers what waits, and hears what is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.lines: list[str] = []
        self.waiting = Waiting(lambda keys: [self.rows.get(key) for key in keys], self.lines.append)
        monkeypatch.setattr("remora.ray_seam.waiting.PATIENCE_SECONDS", 0.0)
        self.waiting.stop()  # the test looks itself

    def row(self, count: int, reason: str, *, busy: bool, fits: bool = False, came: int = 0) -> None:
        row = {"count": count, "reason": reason, "busy": busy, "fits": fits}
        wants = {"wants": "zone=z", "suggestions": ["add a node", "drop zone=z"]}
        self.rows[shape_key([{"CPU": 1.0, "t": 0.0001}])] = row | wants
        for _ in range(came):
            self.waiting.note({"CPU": 1.0, "t": 0.0001}, None, "train")
        self.waiting.look()


def test_what_waits_is_said_once_and_again_when_the_reason_changes(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    asked.row(2, "0/4 nodes fit: 4 do not match zone=z", busy=False, came=2)
    asked.row(3, "0/5 nodes fit: 5 do not match zone=z", busy=False, came=1)
    (line,) = asked.lines
    assert line.startswith("remora: 2 x train (1 CPU, 0.0001 t), zone=z waits: 0/4 nodes fit: 4 do not match zone=z. ")
    assert line.endswith("What would help: add a node; or drop zone=z")
    asked.row(3, "0/5 nodes fit: 5 lack 1 CPU", busy=False)
    assert len(asked.lines) == 2


def test_a_queue_that_moves_is_no_news_and_one_that_stands_is(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    for count, came in ((50, 60), (40, 0), (30, 0)):
        asked.row(count, "0/4 nodes fit: 4 lack 1 CPU", busy=True, came=came)
    assert asked.lines == []
    asked.row(30, "0/4 nodes fit: 4 lack 1 CPU", busy=True)
    assert len(asked.lines) == 1


def test_a_queue_that_is_refilled_as_fast_as_it_moves_is_no_news_either(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    for count, came in ((50, 50), (50, 10), (60, 11)):
        asked.row(count, "0/4 nodes fit: 4 lack 1 CPU", busy=True, came=came)
    assert asked.lines == []
    asked.row(70, "0/4 nodes fit: 4 lack 1 CPU", busy=True, came=10)
    assert len(asked.lines) == 1


def test_what_is_about_to_start_is_no_news(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    for _ in range(3):
        asked.row(50, "2/2 nodes fit: it is about to start", busy=True, fits=True, came=1)
    assert asked.lines == []


def test_what_no_longer_waits_is_forgotten_and_may_be_said_anew(monkeypatch: pytest.MonkeyPatch):
    asked = Asked(monkeypatch)
    asked.row(1, "0/4 nodes fit: 4 do not match zone=z", busy=False, came=1)
    asked.rows.clear()
    asked.waiting.look()
    asked.row(1, "0/4 nodes fit: 4 do not match zone=z", busy=False, came=1)
    assert len(asked.lines) == 2
