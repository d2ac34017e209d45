"""The controller over the in-memory port: rounds, fences, memory; and the values that travel."""

from __future__ import annotations

from typing import Any

import pytest

from remora import Exists, UnknownNameError, label_in, node_affinity
from remora.controller.core import Controller
from remora.seam.memory import MemoryPort
from remora.seam.port import Observation
from remora.wire.classes import IDLE_SECONDS, ClassSpec
from remora.wire.fences import fence_key, read_fence
from remora.wire.options import Defaults, rewrite
from remora.wire.tokens import OFFERED, class_of_token, class_token, is_token


def spec(**options: Any) -> ClassSpec:
    return rewrite(options, Defaults()).spec


PLAIN = spec()
TOLERANT = spec(tolerations={"gpu": Exists()})
IN_B = spec(label_selector={"zone": "b"})


@pytest.fixture
def port() -> MemoryPort:
    port = MemoryPort()
    port.join("n1", {"CPU": 4}, {"zone": "a"})
    port.join("n2", {"CPU": 4}, {"zone": "b", "taint.remora.io/gpu": "true"})
    return port


def offers(port: MemoryPort, of: ClassSpec) -> set[str]:
    return {view.node_id for view in port.observe().nodes if view.total.get(class_token(of.class_id)) == OFFERED}


def test_a_class_is_offered_on_the_nodes_that_it_admits(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    assert controller.ensure(PLAIN) == ["n1"]
    assert controller.ensure(TOLERANT) == ["n1", "n2"]
    assert controller.ensure(IN_B) == []
    assert (offers(port, PLAIN), offers(port, TOLERANT), offers(port, IN_B)) == ({"n1"}, {"n1", "n2"}, set())


def test_a_node_that_joins_offers_nothing_until_the_controller_has_seen_its_taints(port: MemoryPort):
    controller = Controller(port)
    controller.ensure(PLAIN)
    port.join("n3", {"CPU": 1}, {"taint.remora.io/x": "y"})
    port.join("n4", {"CPU": 1})
    assert offers(port, PLAIN) == set()
    controller.round()
    assert offers(port, PLAIN) == {"n1", "n4"}


def test_a_round_with_nothing_to_do_writes_nothing(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    controller.round()
    writes = port.writes
    controller.round()
    assert port.writes == writes


def test_a_taint_takes_all_but_a_held_remnant_and_the_rest_when_it_is_given_back(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    token = class_token(PLAIN.class_id)
    port.take("n1", {token: 0.0003})
    assert controller.taint("n1", (("k", "v"),)) is True
    assert read_fence(port.get(fence_key("n1"))).classes == {PLAIN.class_id}
    assert (total(port, "n1", token), free(port, "n1", token)) == (0.0004, 0)
    assert not controller.steering.settled
    port.give("n1", {token: 0.0003})
    controller.round()
    assert (total(port, "n1", token), free(port, "n1", token)) == (0.0001, 0)
    assert controller.steering.settled
    writes = port.writes
    controller.round()
    assert port.writes == writes
    controller.taint("n1", drop=["k"])
    assert offers(port, PLAIN) == {"n1"}
    assert read_fence(port.get(fence_key("n1"))).classes == frozenset()


def test_the_remnant_is_kept_for_as_long_as_somebody_uses_the_class_and_no_longer(port: MemoryPort):
    now = [0.0]
    controller = Controller(port, lambda: now[0])
    controller.round()
    controller.ensure(PLAIN)
    controller.taint("n1", (("k", "v"),))
    second = Controller(port, lambda: now[0])  # the first was killed
    second.round()
    assert len(port.holds) == 1
    now[0] += IDLE_SECONDS + 1
    second.round()
    second.round()
    assert port.holds == {}
    assert total(port, "n1", class_token(PLAIN.class_id)) == 0


def test_nothing_is_taken_away_while_it_could_not_be_held(port: MemoryPort, monkeypatch: pytest.MonkeyPatch):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    with monkeypatch.context() as broken:
        broken.setattr(port, "hold", lambda *_: False)
        controller.taint("n1", (("k", "v"),))
        assert offers(port, PLAIN) == {"n1"}
        assert read_fence(port.get(fence_key("n1"))).classes == {PLAIN.class_id}
        assert not controller.steering.settled
    controller.round()
    assert offers(port, PLAIN) == set()


def total(port: MemoryPort, node_id: str, name: str) -> float:
    return next(view.total.get(name, 0.0) for view in port.observe().nodes if view.node_id == node_id)


def free(port: MemoryPort, node_id: str, name: str) -> float:
    return next(view.available.get(name, 0.0) for view in port.observe().nodes if view.node_id == node_id)


def test_labels_and_taints_said_at_run_time_are_remembered_by_the_next_controller(port: MemoryPort):
    first = Controller(port)
    first.round()
    first.ensure(PLAIN)
    first.ensure(IN_B)
    first.label("n1", (("zone", "b"),))
    first.taint("n2", drop=["gpu"])
    assert (offers(port, PLAIN), offers(port, IN_B)) == ({"n1", "n2"}, {"n1", "n2"})
    second = Controller(port)
    second.round()
    assert (offers(port, PLAIN), offers(port, IN_B)) == ({"n1", "n2"}, {"n1", "n2"})
    second.label("n1", drop=["zone"])
    assert offers(port, IN_B) == {"n2"}


def test_what_was_lost_is_repaired_by_a_round_soon_after(port: MemoryPort):
    now = [0.0]
    controller = Controller(port, lambda: now[0])
    controller.round()
    controller.ensure(PLAIN)
    port.resize("n1", {class_token(PLAIN.class_id): 0, "remora/class/stray": 5})
    now[0] += 1  # the report is not older any more than what we wrote
    controller.round()
    assert offers(port, PLAIN) == {"n1"}
    assert not any("stray" in name for view in port.observe().nodes for name in view.total)


class LaggingPort(MemoryPort):
    """Reports what was, as GCS does for about a tenth of a second after a resize."""

    old: Observation | None = None

    def observe(self) -> Observation:
        return self.old or super().observe()


def test_a_taint_right_after_an_untaint_holds_although_the_report_is_old():
    port = LaggingPort()
    port.join("n1", {"CPU": 4})
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    controller.taint("n1", (("k", "v"),))
    port.old = port.observe()  # without the token, for as long as it lasts
    controller.taint("n1", drop=["k"])
    controller.taint("n1", (("k", "v"),))
    port.old = None
    assert offers(port, PLAIN) == set()


def test_an_untaint_right_after_a_taint_lets_work_in_although_the_report_is_old():
    port = LaggingPort()
    port.join("n1", {"CPU": 4})
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    port.old = port.observe()  # with the token
    controller.taint("n1", (("k", "v"),))
    controller.taint("n1", drop=["k"])
    port.old = None
    assert offers(port, PLAIN) == {"n1"}


def test_a_node_that_left_is_forgotten(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    port.leave("n1")
    controller.round()
    assert list(controller.nodes) == ["n2"]
    with pytest.raises(UnknownNameError, match="no node has the id 'n1': the nodes are n2"):
        controller.taint("n1", (("k", "v"),))


def test_withdrawing_leaves_a_stock_cluster(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    controller.taint("n1", (("k", "v"),))
    assert controller.withdraw() == []
    assert not any(is_token(name) for view in port.observe().nodes for name in view.total)
    assert port.keys("") == []


def test_withdrawing_says_where_something_still_holds_a_token(port: MemoryPort):
    controller = Controller(port)
    controller.round()
    controller.ensure(PLAIN)
    port.take("n1", {class_token(PLAIN.class_id): 0.0001})
    assert controller.withdraw() == ["n1"]
    port.give("n1", {class_token(PLAIN.class_id): 0.0001})
    assert controller.withdraw() == []


def test_fallbacks_move_the_offer_only_when_the_first_choice_could_never_hold_it(port: MemoryPort):
    chain = [{"label_selector": {"zone": "a"}}]
    options = {"label_selector": {"zone": "b"}, "fallback_strategy": chain, "tolerations": {"gpu": "true"}}
    small, large = (rewrite(options, Defaults(), {"CPU": cpus}) for cpus in (4, 5))
    controller = Controller(port)
    controller.round()
    assert controller.ensure(small.spec) == ["n2"]
    assert controller.ensure(large.spec) == []
    port.join("n3", {"CPU": 8}, {"zone": "a"})
    controller.round()
    assert offers(port, large.spec) == {"n1", "n3"}


EITHER = spec(scheduling_strategy=node_affinity([label_in("z", ["a"]), label_in("y", ["b"])], True))


@pytest.mark.parametrize("made", [PLAIN, TOLERANT, IN_B, EITHER])
def test_a_class_survives_its_journey(made: ClassSpec):
    again = ClassSpec.decode(made.encode())
    assert (again, again.class_id) == (made, made.class_id)
    assert class_of_token(class_token(made.class_id)) == made.class_id
    assert class_of_token("CPU") is None


def test_the_defaults_of_a_job_hold_unless_a_call_says_otherwise():
    defaults = Defaults.parse({"zone": "a"}, {"gpu": Exists()})
    assert rewrite({}, defaults).spec == spec(label_selector={"zone": "a"}, tolerations={"gpu": "exists()"})
    assert rewrite({"label_selector": {"zone": "b"}, "tolerations": {}}, defaults).spec == IN_B
