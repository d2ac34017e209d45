"""``make demo``: a Ray of four nodes on this machine, the stories on it one after another, then one that grows, and everything
stopped again.

It keeps its state in a folder of its own, so that a cluster of ``remora up`` is left in peace.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from types import FrameType

from rich.console import Console
from rich.status import Status

from remora.machine import local_ray
from remora.machine.nodes_file import load_nodes
from remora.machine.state import HOME


def main() -> int:
    began = time.monotonic()
    console = Console(highlight=False)
    logging.getLogger("remora").setLevel(logging.ERROR)  # what waits is told in the stories
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="remora-demo-") as home:
        os.environ.update({HOME: home, **local_ray.auth_mode(os.environ)})
        os.environ.pop("RAY_ADDRESS", None)
        try:
            with console.status("starting Ray") as status:
                played = _play(console, status)
                local_ray.down(os.environ, lambda line: None)
                _grow(played + 1, status)
        except KeyboardInterrupt:
            console.print("\ninterrupted")
            return 130
        finally:
            # Once is enough: whoever presses Ctrl-C again would leave nodes behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            local_ray.down(os.environ, console.print)
    console.print(f"stopped everything; it took {time.monotonic() - began:.0f} s")
    console.print("Next: 'remora up' starts such a cluster to keep, examples/ has short programs")
    console.print("for it, and 'remora simulate --list' has stories on clusters that do not exist.")
    return 0


def _grow(number: int, status: Status) -> None:
    from examples.demo.growth import machines_come_and_go

    machines_come_and_go(number, status)


def _play(console: Console, status: Status) -> int:
    from remora.live.adapter.local_nodes import living_nodes  # imports Ray, which takes a while

    cluster, ids = local_ray.up(load_nodes(None), os.environ, living_nodes, console.print)
    status.update("connecting")
    import ray
    from examples.demo.stage import Stage
    from examples.demo.stories import STORIES

    import remora

    remora.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        stage = Stage(ids, cluster.address)
        for number, story in enumerate(STORIES, 1):
            stage.title(number, (story.__doc__ or "").strip())
            status.update("starting its processes")
            story(stage)
            stage.clear()
    finally:
        ray.shutdown()
    return len(STORIES)


def _end(number: int, frame: FrameType | None) -> None:
    # As an exception, so that what was started is stopped.
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
