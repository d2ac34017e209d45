"""In line: work that would use more than its virtual cluster may waits until there is room, or is submitted once more.

It waits in ``ray.get``, so that its CPU is free for others meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray

from remora.ray_seam.blocking import Told, Who, come_back, held_share, insist, said_already
from remora.ray_seam.layer import CONTROLLER, NAMESPACE
from remora.ray_seam.pledges import pledges
from remora.wire.fences import ELSEWHERE, RENEW_SECONDS, ROOT
from remora.wire.tokens import is_real, reserves_resources


def stand_in_line(cluster_id: str | None, dead: list[str], *, may_go: bool, read_fence: Callable[[], None]) -> bool:
    """Waits for leave; whether what this process is about to run may start here. If not, it has to be submitted once more,
    because there will be no room for it on this node; only what ``may_go`` is told so. What runs in a placement group needs no
    room, because the group has it; but where its cluster uses too much it waits like all others.

    ``dead`` are workers that it found to have died over their pledges. They are told of, and forgotten only when the fence that
    was written because of them has been read here: until then they alone stop the next to start.
    """
    who = _who(cluster_id)
    if not who[3] and not _is_in_group(cluster_id):
        return True
    controller = _controller()
    if controller is None:
        return True
    with pledges().given(who[0]), said_already():
        answer = insist(lambda again: controller.enter.remote(*who, again, may_go, dead))
    if dead:
        read_fence()
        pledges().forget(dead)
    return bool(answer != ELSEWHERE)


@contextlib.contextmanager
def handed_on(cluster_id: str | None) -> Iterator[None]:
    """While the same call runs somewhere else this process keeps its token and uses nothing of its share. Before it ends it
    asks for that again: its raylet will give the token to whoever is next."""
    who = _who(cluster_id)
    controller = _controller()
    with said_already():
        if cluster_id is None or not who[3] or controller is None:
            yield
            return
        over = threading.Event()

        def say() -> None:
            told = Told()
            told.note(controller.sent_on.remote(*who))
            while not over.wait(RENEW_SECONDS):
                told.note(controller.sent_on.remote(*who))
            told.settle()

        saying = threading.Thread(target=say, name="remora-handed-on", daemon=True)
        with pledges().given(who[0]):
            saying.start()
            try:
                yield
            finally:
                over.set()
                saying.join()
                come_back(controller, who)


def _controller() -> Any:
    """None when there is none any more."""
    with contextlib.suppress(ValueError):
        return ray.get_actor(CONTROLLER, namespace=NAMESPACE)
    return None


def _who(cluster_id: str | None) -> Who:
    worker = ray._private.worker.global_worker
    return worker.worker_id.hex(), cluster_id or ROOT, ray.get_runtime_context().get_node_id(), _amounts(worker, cluster_id)


def _is_in_group(cluster_id: str | None) -> bool:
    """Whether a placement group holds the share that this process is about to use."""
    held = ray._private.worker.global_worker.core_worker.resource_ids()
    return cluster_id is not None and any(map(reserves_resources, held))


def _amounts(worker: Any, cluster_id: str | None) -> dict[str, float]:
    if cluster_id is not None:
        found = held_share(worker, cpus_only=False)
        return found[1] if found is not None else {}
    held = worker.core_worker.resource_ids()
    return {name: sum(amount for _, amount in parts) for name, parts in held.items() if is_real(name)}
