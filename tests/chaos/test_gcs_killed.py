"""GCS killed, and started again on what Redis kept for it, amid placing, the creation of groups, and the end of clusters."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.breakable import breakable, part
from tests.chaos.checker import Checker
from tests.chaos.load import Load, twins

MOMENTS = ("placing", "group", "closing", "tainted")
KILLS = 8


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis of this test's own, which keeps nothing beyond it; its address."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("no redis-server: apt-get install redis-server (or what your system calls it)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_gcs_killed_and_started_again(checker_of: Callable[[str], Checker], survived: Any, tmp_path: Path) -> None:
    kills = part(KILLS)
    killed: dict[str, int] = dict.fromkeys(MOMENTS, 0)
    with redis(tmp_path) as address, breakable("gcs", environment={"RAY_REDIS_ADDRESS": address}, is_kept=False) as rig:
        restarting: list[threading.Thread] = []
        failed: list[BaseException] = []

        def during(moment: str) -> None:
            """Kill it in this very moment, or in a little while, and each moment about as often."""
            is_away = restarting and restarting[-1].is_alive()
            if moment not in killed or is_away or killed[moment] > min(killed.values()) or sum(killed.values()) >= kills:
                return
            killed[moment] += 1
            before, away = rig.chance.uniform(0, 0.2), rig.chance.uniform(0, 3)

            def restart() -> None:
                try:
                    time.sleep(before)
                    rig.restart_gcs(away)
                except BaseException as error:  # noqa: BLE001 - raised where it can be seen
                    failed.append(error)

            restarting.append(threading.Thread(target=restart, name="chaos-gcs"))
            restarting[-1].start()

        def is_over() -> bool:
            if failed:
                raise failed[0]
            return sum(killed.values()) >= kills

        def life(load: Load, faults: bool) -> None:
            load.run(part(10), lambda: not faults or is_over())
            for thread in restarting:
                thread.join()

        figures = twins(rig, checker_of, life, during)
        assert is_over()
        assert len(restarting) == kills
    survived(gcs_killed=kills, **figures)
