"""The waist of the controller, as the played cluster has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from tests.world.gcs import DEAD
from tests.world.raylet import Shape, to_floats, to_units

from remora.port.contract import Demand, NodeGoneError, Observation, Work
from remora.port.scaler import Scaler

if TYPE_CHECKING:
    from tests.world.world import World


class UnreachableError(Exception):
    """The node is dead and GCS has not found out yet."""


class WorldPort:
    """``Port`` over the tables of GCS and the raylets themselves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gcs = world.gcs

    @property
    def scaler(self) -> Scaler | None:
        return self._world.autoscaler

    def observe(self) -> Observation:
        demands: dict[Shape, int] = {}
        for waiting in self._gcs.demands.values():
            for shape, count in waiting.items():
                demands[shape] = demands.get(shape, 0) + count
        found = [Demand(to_floats(dict(shape)), count) for shape, count in demands.items()]
        return Observation(tuple(self._gcs.views.values()), (*found, *self._gcs.groups.waiting()))

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        raylet = self._world.raylets.get(node_id)
        if raylet is None:
            if node_id in self._gcs.views:
                raise UnreachableError(node_id)
            raise NodeGoneError(node_id)
        return raylet.resize(amounts)

    def put(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._gcs.kv.pop(key, None)
        else:
            self._gcs.kv[key] = value

    def get(self, key: str) -> bytes | None:
        return self._gcs.kv.get(key)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._gcs.kv if key.startswith(prefix))

    def find(self, id_or_name: str | None) -> list[Work]:
        living = [entry for entry in self._gcs.actors.values() if entry.state != DEAD]
        if id_or_name is None:
            jobs = [self._gcs.job(job_id) for job_id, runs in self._gcs.jobs.items() if runs]
            return [*jobs, *(entry.work() for entry in living)]
        if id_or_name in self._gcs.jobs:
            return self._of_job(id_or_name)
        if id_or_name in self._gcs.actors:
            return [self._gcs.actors[id_or_name].work()]
        groups = [entry.work() for entry in self._gcs.groups.of(id_or_name)]
        actors = [entry.work() for entry in living if entry.spec.name == id_or_name]
        tasks = [run.work() for run in self._world.runs.values() if id_or_name in (run.name, run.spec.name)]
        return [*actors, *groups, *tasks]

    def _of_job(self, job_id: str) -> list[Work]:
        jobs = [self._gcs.job(job_id)] if self._gcs.jobs[job_id] else []
        actors = [entry.work() for entry in self._gcs.actors.values() if entry.job_id == job_id and entry.state != DEAD]
        groups = [entry.work() for entry in self._gcs.groups.entries.values() if entry.job_id == job_id]
        tasks = [run.work() for run in self._world.runs.values() if run.job_id == job_id and not run.is_over]
        return [*jobs, *actors, *groups, *tasks]

    def ended(self, worker_ids: Iterable[str]) -> list[str]:
        return [worker_id for worker_id in worker_ids if worker_id in self._gcs.ended_workers]

    def restart(self, actor_id: str) -> None:
        self._gcs.restart_actor(actor_id)

    def give_up(self, shapes: Iterable[Mapping[str, float]]) -> None:
        lost = [tuple(sorted(to_units(shape).items())) for shape in shapes]
        for raylet in list(self._world.raylets.values()):
            raylet.give_up(lost)

    def watch(self, wake: Callable[[Work | None], None]) -> Callable[[], None]:
        raise NotImplementedError("the host of the controller delivers what feeds tell")

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        held = self._gcs.groups.hold(name, node_id, to_units(amounts))
        self._world.note("hold {} of {} on {}: {}", name, amounts, node_id, "taken" if held else "refused")
        return held

    def let_go(self, name: str) -> None:
        self._gcs.groups.remove(name)
