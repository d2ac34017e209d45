"""``with`` and ``async with VirtualCluster``: who is in it, that nothing blocks, and how it ends whatever happens inside."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest
import ray
from tests.live.conftest import World, eventually, run_driver
from tests.live.test_virtual_clusters import is_gone, tree, which

import remora
from remora import VirtualCluster
from remora.errors import InvalidVirtualClusterError, VirtualClusterTimeoutError
from remora.live.clusters import scopes


@pytest.mark.core
def test_two_tenants_of_one_event_loop_are_each_in_their_own(world: World) -> None:
    async def tenant(**spec: Any) -> tuple[str | None, str | None]:
        async with VirtualCluster(timeout=60, **spec):
            return scopes.peek(), await which.remote()

    async def nobody() -> list[str | None]:
        seen = []
        for _ in range(5):
            seen.append(await which.remote())
            await asyncio.sleep(0.05)
        return seen

    async def main() -> Any:
        one = tenant(flexible_resource_max={"CPU": 1})
        two = tenant(flexible_resource_max={"CPU": 1})
        return await asyncio.gather(one, two, nobody())

    one, two, none = asyncio.run(main())
    assert one[0] == one[1] is not None
    assert two[0] == two[1] is not None
    assert one[0] != two[0]
    assert none == [None] * 5
    assert scopes.peek() is None


def test_an_event_loop_goes_on_while_a_cluster_is_queued_and_who_is_cancelled_leaves_the_queue(world: World) -> None:
    async def hold(there: asyncio.Event, over: asyncio.Event) -> None:
        async with VirtualCluster({"CPU": 5}, timeout=60):
            there.set()
            await over.wait()

    async def main() -> None:
        there, over = asyncio.Event(), asyncio.Event()
        holding = asyncio.create_task(hold(there, over))
        await there.wait()
        waiting = asyncio.create_task(enter(VirtualCluster({"CPU": 4})))
        await asyncio.sleep(1.0)
        longest, last = 0.0, time.monotonic()
        for _ in range(50):
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 0.5
        assert [row["state"] for row in tree().values()] == ["READY", "QUEUED"]
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert len(tree()) == 1
        with pytest.raises(VirtualClusterTimeoutError):
            await enter(VirtualCluster({"CPU": 4}, timeout=0.5))
        assert len(tree()) == 1
        over.set()
        await holding

    async def enter(spec: VirtualCluster) -> None:
        async with spec:
            raise AssertionError("there was no room for it")

    asyncio.run(main())
    eventually(lambda: not tree())


def test_one_object_is_one_cluster_whoever_comes_first(world: World) -> None:
    spec = VirtualCluster(flexible_resource_max={"CPU": 1}, timeout=60)
    answers: list[Any] = []
    both = threading.Barrier(2)

    def enter() -> None:
        both.wait(20)
        try:
            with spec:
                answers.append(scopes.peek())
                time.sleep(0.5)
        except InvalidVirtualClusterError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (cluster_id,) = (answer for answer in answers if "vc" in answer and "in use" not in answer)
    assert sum("is in use already" in answer for answer in answers) == 1
    eventually(lambda: not tree())
    assert is_gone(cluster_id)
    with spec:  # and afterwards it can be entered again
        assert scopes.peek() is not None


ENDINGS = {
    "shutdown": "ray.shutdown()",
    "detach": "remora.detach()",
    "away": "remora.shutdown_controller()",
    "anew": "ray.shutdown(); remora.init(address=address, logging_level='ERROR', log_to_driver=False)",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_whatever_happens_inside_the_users_exception_comes_out(world: World, how: str) -> None:
    code = f"""
        import remora
        from remora import VirtualCluster
        remora.init(address=address, logging_level="ERROR", log_to_driver=False)
        try:
            with VirtualCluster(flexible_resource_max={{"CPU": 1}}, timeout=60, cancel=True):
                ray.get(ray.remote(lambda: 1).remote())
                {ENDINGS[how]}
                raise KeyError("the user's")
        except KeyError as error:
            print("KeyError", error, ray.is_initialized(), flush=True)
        """
    driver = run_driver(world, code)
    connected = how != "shutdown"
    assert driver.communicate(timeout=120)[0] == f'KeyError "the user\'s" {connected}\n'
    if how == "away":
        remora.detach()
        remora.attach()
    eventually(lambda: not tree(), 30)


def test_with_cancel_results_are_kept_no_longer_than_their_tasks_run(world: World) -> None:
    """The object store would fill up, however early the user lets go of them."""

    def large(size: int) -> bytes:
        return b"x" * size

    @ray.remote
    def never() -> None:
        time.sleep(600)

    with VirtualCluster(flexible_resource_max={"CPU": 2}, timeout=60, cancel=True):
        ref = ray.remote(large).remote(2_000_000)
        assert len(ray.get(ref, timeout=60)) == 2_000_000
        name = ref.hex()
        del ref
        core_worker = ray._private.worker.global_worker.core_worker
        eventually(lambda: name.encode() not in core_worker.get_all_reference_counts(), 20)
        never.remote()  # nobody refers to it, and it is stopped all the same
        kept = scopes._innermost()
        assert kept is not None
        eventually(lambda: len(kept.made) == 1, 20)
        cluster_id = kept.cluster_id
    eventually(lambda: is_gone(cluster_id), 30)


def test_threads_that_are_started_inside_are_inside_and_others_are_not(world: World) -> None:
    go, answers = threading.Event(), {}

    def ask(name: str) -> None:
        go.wait(60)
        answers[name] = ray.get(which.remote(), timeout=60)

    before = threading.Thread(target=ask, args=("before",))
    before.start()
    with VirtualCluster(flexible_resource_max={"CPU": 2}, timeout=60):
        cluster_id = scopes.peek()
        during = threading.Thread(target=ask, args=("during",))
        during.start()
        go.set()
        during.join(60)
        before.join(60)
    assert answers == {"before": None, "during": cluster_id}
