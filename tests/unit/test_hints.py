"""What clients tell of work on its way: at once, all of it, and ever less often in a long stream."""

import time

from remora.model.requests import NodeClass
from remora.model.selectors import LabelSelector
from remora.model.taints import Tolerations
from remora.ray_seam.hints import Hint, Hints
from remora.wire.classes import ClassSpec

SPEC = ClassSpec((NodeClass(LabelSelector(), Tolerations()),), cluster="vc1")


def test_the_first_is_told_at_once_and_a_stream_in_few_words_without_losing_any() -> None:
    told: list[list[Hint]] = []
    hints = Hints(told.append)
    hints.note(SPEC, {"CPU": 1.0})
    assert told == [[(SPEC.encode(), {"CPU": 1.0}, 1)]]
    for _ in range(3_000):
        hints.note(SPEC, {"CPU": 1.0})
    deadline = time.monotonic() + 5
    while sum(count for hint in told for _, _, count in hint) < 3_001:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(told) < 12
