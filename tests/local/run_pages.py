"""A driver that runs the examples of every page, says in a line of JSON what went wrong on it, and waits for its input to end.

One driver for all, so that workers are started once; a process of its own, so that it connects as a user's does.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import traceback
from typing import Any

import ray
from tests.documents import blocks, with_blocks

import remora

_PAGE_SECONDS = 60


class Waiting:
    """There is no place for it: something to ask about."""


def run_page(page: str) -> str:
    namespace: dict[str, object] = {"__name__": "__main__"}
    signal.alarm(_PAGE_SECONDS)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what an example prints is not what we say
            for block in blocks(page, "py"):
                exec(compile(block, page, "exec"), namespace)
    except Exception:  # noqa: BLE001 - whatever an example raises is what the test tells
        return traceback.format_exc()
    finally:
        signal.alarm(0)
        namespace.clear()  # its actors end
        remora.detach()
    return ""


def stop(*_: object) -> None:
    raise TimeoutError(f"it took more than {_PAGE_SECONDS} s")


def main() -> None:
    signal.signal(signal.SIGALRM, stop)
    remora.init(logging_level="ERROR", log_to_driver=False)
    for page in with_blocks("py"):
        sys.stdout.write(json.dumps([page, run_page(page)]) + "\n")
        sys.stdout.flush()
    remora.attach()
    actor: Any = ray.remote(Waiting)
    stuck = actor.options(name="stuck", label_selector={"zone": "nowhere"}).remote()
    sys.stdin.read()
    del stuck


if __name__ == "__main__":
    main()
