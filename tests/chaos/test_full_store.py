"""The object stores of all nodes full to the brim, amid a bit of everything, and with large arguments that are handed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import ray
from tests.chaos.breakable import WORKERS, breakable, part
from tests.chaos.checker import Checker
from tests.chaos.load import Load, twins

import remora

STORE = 80 * 1024 * 1024
PIECE = 8 * 1024 * 1024
PIECES = 15


@ray.remote
def put(pieces: int) -> list[Any]:
    """More than the store of this node can hold, all of it in use."""
    return [ray.put(np.full(PIECE, number, np.uint8)) for number in range(pieces)]


@ray.remote(max_retries=-1)
def look(piece: np.ndarray, number: int) -> bool:
    return bool(piece[0] == piece[-1] == number)


def test_all_object_stores_full(checker_of: Callable[[str], Checker], survived: Any) -> None:
    workers = {name: {**arguments, "object_store_memory": STORE} for name, arguments in WORKERS.items()}
    with breakable("store", workers=workers) as rig:

        def life(load: Load, faults: bool) -> None:
            kept = []
            if faults:
                zones = ["a", "b"]
                kept = ray.get([put.options(label_selector={"zone": zone}, num_cpus=0.5).remote(PIECES) for zone in zones])
                assert 2 * PIECES * PIECE > 1.4 * 2 * STORE
            load.run(part(30 if faults else 10))
            for number in range(PIECES if faults else 0):
                refs = [
                    look.options(label_selector={"zone": "in(a, b)"}, num_cpus=0.5).remote(each[number], number)
                    for each in kept
                ]
                if number == PIECES // 2:
                    remora.taint_node(rig.node_id("b"), {"full": "true"})
                    assert all(ray.get(refs, timeout=120))
                    remora.untaint_node(rig.node_id("b"), ["full"])
                assert all(ray.get(refs, timeout=120))

        figures = twins(rig, checker_of, life)
    survived(megabytes_beyond_the_stores=(2 * PIECES * PIECE - 2 * STORE) >> 20, **figures)
