"""The fence that the workers of a node share: fresh, never torn, and read from GCS by one of them at a time."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

from remora.live.worker.fence_cache import SharedFence


def test_what_one_worker_has_read_the_others_need_not_read(tmp_path: Path):
    reads: list[int] = []

    def read() -> bytes:
        reads.append(1)
        return b"fence"

    first, second = (SharedFence(tmp_path / "page", read, seconds=60) for _ in range(2))
    assert [first.data(), second.data(), first.data()] == [b"fence"] * 3
    assert len(reads) == 1


def test_what_is_old_is_read_again(tmp_path: Path):
    answers = iter([b"one", b"", b"two" * 1_000])
    fence = SharedFence(tmp_path / "page", lambda: next(answers), seconds=0.0)
    assert [fence.data() for _ in range(3)] == [b"one", b"", b"two" * 1_000]


def test_once_it_was_read_for_all_nobody_trusts_what_was_read_before(tmp_path: Path):
    answers = [b"old"]
    first, second = (SharedFence(tmp_path / "page", lambda: answers[-1], seconds=60) for _ in range(2))
    assert [first.data(), second.data()] == [b"old"] * 2
    answers.append(b"new")
    assert second.data() == b"old"
    first.refresh()
    assert second.data() == b"new"
    answers.append(b"x" * 100_000)
    first.refresh()
    assert second.data() == b"x" * 100_000


def test_however_much_it_is_it_is_shared(tmp_path: Path):
    """Hundreds of classes on one node are more than a page."""
    sizes = iter([10, 100_000, 1_000_000, 20])
    reads: list[int] = []

    def read() -> bytes:
        reads.append(next(sizes))
        return b"x" * reads[-1]

    first, second, third = (SharedFence(tmp_path / "page", read, seconds=60) for _ in range(3))
    assert len(first.data()) == len(second.data()) == 10
    for size in (100_000, 1_000_000, 20):
        first.refresh()
        late = SharedFence(tmp_path / "page", read, seconds=60)  # a worker that starts must not cut it off
        assert [len(each.data()) for each in (second, third, late, first)] == [size] * 4
    assert len(reads) == 4


def test_many_workers_read_little_and_never_something_torn(tmp_path: Path):
    numbers, torn = itertools.count(1), []

    def read() -> bytes:
        number = next(numbers)
        return (b"%d;" % number) * (number % 50 + 1)

    def hammer() -> None:
        fence = SharedFence(tmp_path / "page", read, seconds=0.01)  # its own open file, as in a process of its own
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            parts = fence.data().split(b";")[:-1]
            if len(set(parts)) != 1 or len(parts) != int(parts[0]) % 50 + 1:
                torn.append(parts)

    workers = [threading.Thread(target=hammer) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert torn == []
    assert 2 < next(numbers) < 250  # about a hundred reads a second for all of them together


def test_work_that_follows_work_does_not_wait_for_a_read(tmp_path: Path):
    """It is read again in the background before it is old."""
    main = threading.current_thread()
    readers: list[threading.Thread] = []

    def read() -> bytes:
        readers.append(threading.current_thread())
        return b"%d" % len(readers)

    fence = SharedFence(tmp_path / "page", read, seconds=0.2)
    until = time.monotonic() + 3
    while len(readers) < 6 and time.monotonic() < until:
        fence.data()
        time.sleep(0.001)
    assert fence.data() in (b"5", b"6")
    assert readers.count(main) <= 2  # the first; a machine that stands still for a moment may cost another
