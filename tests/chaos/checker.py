"""What must hold whatever happened: by the journal, by Ray's own records, and by what work itself wrote down.

Nothing here asks Remora what it believes where Ray knows it. Reports of different nodes are of different moments, so what is
looked at while things move counts only when it has lasted (``_LASTED_SECONDS``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
from ray.core.generated.gcs_pb2 import ActorTableData
from tests.chaos import tally

import remora
from remora.live.adapter import messages
from remora.live.adapter.ray_port import RayPort
from remora.live.api import virtual_clusters
from remora.live.link import CONTROLLER
from remora.port.contract import ENDED, JOB, Observation
from remora.wire.asks import LEASE_LABEL
from remora.wire.keys import CLUSTERS, HOLDS, JOURNAL, OUTLIVES_WITHDRAWAL, kind_of
from remora.wire.tokens import TAKEN, is_hold, is_in_group, is_part, is_real, is_token, share_of_token, slot_of_token, works_in

_LASTED_SECONDS = 3.0
_QUIET_SECONDS = 120.0
_LEFT_OVER = ("vc/", "lease/", "object/", "late/")
_NOISE = ("node:", "object_store_memory")
_AWAY = ("RpcError", "RaySystemError", "RayError", "TimeoutError", "GetTimeoutError", "_InactiveRpcError", "AioRpcError")
"""Failures that say that somebody could not be reached; every other one that something is set aside for is a bug."""

Problems = list[str]


class Checker:
    """Watches one cluster while it is harmed (``watching``), and looks at what is left when all work is over (``settled``)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = RayPort()
        self.journal: dict[tuple[str, str, str, str], None] = {}
        self.looked = 0
        self._lasting: dict[str, float] = {}
        self._found: Problems = []
        self._limits: dict[tuple[str, str], float] = {}

    # While things move

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look ten times a second at what Ray says is taken; raise what was wrong for long."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                with contextlib.suppress(Exception):  # GCS may be away
                    self._look(self.port.observe())

        watching = threading.Thread(target=watch, name="chaos-watch")
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()
        assert self.looked > 0, "nothing was looked at"
        assert not self._found, _listed(self._found)

    def _look(self, observation: Observation) -> None:
        self.looked += 1
        self._read_journal()
        now, wrong = time.monotonic(), {*self._taken_twice(observation), *self._beyond(observation)}
        self._lasting = {text: self._lasting.get(text, now) for text in wrong}
        self._found += [
            text for text, since in self._lasting.items() if now - since > _LASTED_SECONDS and text not in self._found
        ]

    def _read_journal(self) -> None:
        """From the store, where it survives; it keeps the last few hundred entries only."""
        data = self.port.get(JOURNAL.key())
        for entry in JOURNAL.read(data) if data is not None else ():
            self.journal[entry["at"], entry["kind"], entry["subject"], entry["text"]] = None

    def _taken_twice(self, observation: Observation) -> Iterator[str]:
        """A slot is somebody's on one node only."""
        nodes: dict[str, list[str]] = defaultdict(list)
        for view in observation.nodes:
            for name, total in view.total.items():
                slot = slot_of_token(name)
                if slot is not None and total - view.available.get(name, 0.0) > TAKEN / 2:
                    nodes[slot].append(view.node_id[:12])
        yield from (f"the slot {slot} is taken on {len(on)} nodes" for slot, on in nodes.items() if len(on) > 1)

    def _beyond(self, observation: Observation) -> Iterator[str]:
        """No virtual cluster uses more than it may. (Nobody comes back from ``ray.get`` here.)"""
        taken: dict[tuple[str, str], float] = defaultdict(float)
        for view in observation.nodes:
            for name, total in view.total.items():
                _count(taken, name, total - view.available.get(name, 0.0))
        for key in self.port.keys(HOLDS.prefix):
            data = self.port.get(key)
            for name, amount in (HOLDS.read(data) if data is not None else {}).items():
                _count(taken, name, -amount)
        for key in self.port.keys(CLUSTERS.prefix):
            data = self.port.get(key)
            body: dict[str, Any] = CLUSTERS.read(data) if data is not None else {"spec": None, "ask": ""}
            (cluster_id,) = CLUSTERS.parts(key)
            most = (body["spec"] or {}).get("flexible_resource_max") or {}
            for name, now in most.items():
                # One that is made smaller gives back the rest as its work ends.
                limit = max(now, self._limits.get((body["ask"], name), now))
                self._limits[body["ask"], name] = limit
                if taken[cluster_id, name] > limit + TAKEN:
                    yield f"{cluster_id} uses more {name} than {limit:g}"

    # When all is over

    def settled(self) -> None:
        """Wait until nothing is left of anything; raise what still is after a minute. Then take everything away, and see that
        it is gone."""
        until = time.monotonic() + _QUIET_SECONDS
        while left := self._left():
            assert time.monotonic() < until, f"{_listed(left)}\n{self._story()}"
            time.sleep(0.2)
        wrong = [*self._granted_twice(), *self._told()]
        assert not wrong, _listed(wrong)
        remora.shutdown_controller()
        until = time.monotonic() + _QUIET_SECONDS
        while left := self._left_for_ever():
            assert time.monotonic() < until, _listed(left)
            time.sleep(0.2)
        remora.attach()

    def _left(self) -> Problems:
        """What is still there though no work is. Classes are offered for a while yet, and tokens of theirs held where they are
        fenced: those go with the controller."""
        found = self._left_on_nodes()
        jobs = {work.work_id for work in self.port.find(None) if work.kind == JOB}
        found += [f"the key {key}" for key in self.port.keys("") if key.startswith(_LEFT_OVER) and not self._lingers(key, jobs)]
        found += [
            f"the actor {work.name} {work.work_id[:12]} is {work.detail}"
            for work in self.port.find(None)
            if work.kind == "actor" and work.name != CONTROLLER
        ]
        groups = [messages.group(data) for data in _accessor().get_placement_group_table()]
        found += [
            f"the placement group {group.name} is {group.detail}"
            for group in groups
            if group.state != ENDED and not is_hold(group.name)
        ]
        status = remora.status()
        found += [f"waits: {row['count']} x {row['wants']}" for row in status["waiting"]]
        found += [f"set aside: {row['kind']} {row['id']}: {row['error']}" for row in status["set_aside"]]
        return found + [
            f"the virtual cluster {row['cluster_id']} is {row['state']}" for row in virtual_clusters() if row["job_id"]
        ]

    def _lingers(self, key: str, jobs: set[str]) -> bool:
        """Whether it is a cluster that was closed and has nothing: it is remembered for work of its program that comes late."""
        data = self.port.get(key) if key.startswith(CLUSTERS.prefix) else None
        body = CLUSTERS.read(data) if data is not None else {"closing": False}
        return bool(body["closing"] and not body["vnodes"] and body["job"] in jobs)

    def _left_on_nodes(self) -> Problems:
        found = []
        for view in self.port.observe().nodes:
            for name, total in view.total.items():
                free, where = view.available.get(name, 0.0), f"on {view.node_id[:12]}"
                if is_real(name) and not name.startswith(_NOISE) and abs(total - free) > TAKEN / 2:
                    found.append(f"{total - free:g} of {total:g} {name} {where} is not available")
                elif is_token(name) and (slot_of_token(name) is not None or share_of_token(name) is not None):
                    found.append(f"the token {name} ({total:g}) {where}")
        return found

    def _left_for_ever(self) -> Problems:
        """After ``shutdown_controller`` there is nothing of ours but what outlives it."""
        names = {name for view in self.port.observe().nodes for name in view.total}
        tokens = [f"the token {name}" for name in names if is_token(name)]
        tokens += [f"what a placement group had: {name}" for name in names if is_in_group(name)]
        return tokens + [f"the key {key}" for key in self.port.keys("") if kind_of(key) not in OUTLIVES_WITHDRAWAL]

    def _granted_twice(self) -> Iterator[str]:
        """By GCS's table: no two actors that lived at the same time had one slot."""
        by_slot: dict[str, list[tuple[int, float, str]]] = defaultdict(list)
        for data in _accessor().get_actor_table(None, None):
            actor = ActorTableData.FromString(data)
            slot = actor.labels.get(LEASE_LABEL)
            if slot and actor.start_time:
                ended = actor.end_time or float("inf")
                by_slot[slot].append((actor.start_time, ended, actor.actor_id.hex()[:12]))
        for slot, lives in by_slot.items():
            lives.sort()
            for (_, ended, one), (began, _, other) in pairwise(lives):
                if began < ended:
                    yield f"the slot {slot} was that of {one} and of {other} at the same time"

    def _told(self) -> Iterator[str]:
        """What the journal says that must never be said."""
        self._read_journal()
        for _, kind, subject, text in self.journal:
            if kind == "set aside" and not any(word in text for word in _AWAY):
                yield f"{subject}: {text}"

    def _story(self) -> str:
        """The end of the journal, for who has to find out how it came to that."""
        self._read_journal()
        return "\n".join(f"{at} {kind} {subject}: {text}" for at, kind, subject, text in [*self.journal][-80:])

    # What work wrote down

    def lines(self) -> list[tally.Line]:
        return tally.read(self.path)


def _count(taken: dict[tuple[str, str], float], name: str, amount: float) -> None:
    share = share_of_token(name)
    if share is not None and not is_part(share[0]):
        taken[works_in(share[0]), share[1]] += amount


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()


def _listed(problems: Problems) -> str:
    shown = problems[:30]
    return "\n".join([f"{len(problems)} things are wrong:", *shown])
