"""A cluster in memory that behaves like Ray where it matters: totals clamp to what is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from remora.port.contract import ACTOR, ENDED, GROUP, JOB, RUNNING, WORKER, Demand, NodeGoneError, NodeView, Observation, Work
from remora.port.scaler import Scaler


class MemoryPort:
    """The in-memory body of ``Port``, with what only a test can do to a cluster: join, leave, take and give back."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeView] = {}
        self._observed: tuple[NodeView, ...] = ()
        self._demands: list[Demand] = []
        self._kv: dict[str, bytes] = {}
        self._work: list[Work] = []
        self._wakes: list[Callable[[Work | None], None]] = []
        self.scaler: Scaler | None = None
        self.writes = 0
        self.restarted: list[str] = []
        self.given_up: list[Demand] = []
        self.holds: dict[str, tuple[str, Mapping[str, float]]] = {}

    def observe(self) -> Observation:
        nodes = tuple(self._nodes.values())
        if len(nodes) != len(self._observed) or any(one is not other for one, other in zip(nodes, self._observed, strict=True)):
            self._observed = nodes
        return Observation(self._observed, tuple(self._demands))

    def resize(self, node_id: str, amounts: Mapping[str, float]) -> Mapping[str, float]:
        self.writes += bool(amounts)
        node = self._nodes.get(node_id)
        if node is None:
            raise NodeGoneError(node_id)
        total, available = dict(node.total), dict(node.available)
        for name, amount in amounts.items():
            used = round(total.get(name, 0.0) - available.get(name, 0.0), 4)
            new = max(amount, used)
            total[name], available[name] = new, round(new - used, 4)
            if not new:
                del total[name], available[name]
        self._nodes[node_id] = replace(node, total=total, available=available)
        return dict(total)

    def put(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._kv.pop(key, None)
        else:
            self._kv[key] = value

    def get(self, key: str) -> bytes | None:
        return self._kv.get(key)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._kv if key.startswith(prefix))

    def find(self, id_or_name: str | None) -> list[Work]:
        if id_or_name is None:
            return [work for work in self._work if work.kind in (ACTOR, JOB) and work.state != ENDED]
        held = [
            Work(GROUP, name, name, "", RUNNING, "CREATED", (amounts,), (node,)) for name, (node, amounts) in self.holds.items()
        ]
        return [
            work
            for work in (*self._work, *held)
            if id_or_name in (work.work_id, work.name) or (id_or_name == work.job_id and work.state != ENDED)
        ]

    def ended(self, worker_ids: Iterable[str]) -> list[str]:
        dead = {work.work_id for work in self._work if work.kind == WORKER and work.state == ENDED}
        return [worker_id for worker_id in worker_ids if worker_id in dead]

    def restart(self, actor_id: str) -> None:
        self.restarted.append(actor_id)

    def give_up(self, shapes: Iterable[Mapping[str, float]]) -> None:
        lost = [dict(shape) for shape in shapes]
        self.given_up += [demand for demand in self._demands if dict(demand.shape) in lost and not demand.bundles]
        self._demands = [demand for demand in self._demands if dict(demand.shape) not in lost or demand.bundles]

    def watch(self, wake: Callable[[Work | None], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake)

    def hold(self, name: str, node_id: str, amounts: Mapping[str, float]) -> bool:
        if name in self.holds:  # there is one of that name, from before
            self.let_go(name)
            return False
        node = self._nodes.get(node_id)
        if node is None or any(node.available.get(token, 0.0) < amount for token, amount in amounts.items()):
            return False
        self.take(node_id, amounts)
        self.holds[name] = (node_id, amounts)
        return True

    def let_go(self, name: str) -> None:
        node_id, amounts = self.holds.pop(name, ("", {}))
        if node_id in self._nodes:
            self.give(node_id, amounts)

    def join(
        self, node_id: str, resources: Mapping[str, float], labels: Mapping[str, str] | None = None, node_type: str = ""
    ) -> None:
        head, has = not self._nodes, dict(resources)
        self._nodes[node_id] = NodeView(node_id, "127.0.0.1", dict(labels or {}), has, dict(has), head, node_type)
        self._wake()

    def drain(self, node_id: str) -> None:
        """The node is about to be ended."""
        self._nodes[node_id] = replace(self._nodes[node_id], draining=True)

    def leave(self, node_id: str) -> None:
        del self._nodes[node_id]
        self._wake()

    def take(self, node_id: str, amounts: Mapping[str, float]) -> None:
        """Something starts there and holds these."""
        node = self._nodes[node_id]
        available = {name: round(left - amounts.get(name, 0.0), 4) for name, left in node.available.items()}
        assert all(left >= 0 for left in available.values()), available
        assert all(name in available for name in amounts), amounts
        self._nodes[node_id] = replace(node, available=available)

    def give(self, node_id: str, amounts: Mapping[str, float]) -> None:
        """Something ended there."""
        node = self._nodes[node_id]
        self._nodes[node_id] = replace(
            node, available={name: round(left + amounts.get(name, 0.0), 4) for name, left in node.available.items()}
        )

    def stop_waiting(self) -> None:
        """Nothing waits any more."""
        self._demands.clear()

    def wait(self, shape: Mapping[str, float], count: int = 1) -> None:
        self._demands.append(Demand(dict(shape), count))

    def wait_as_group(self, bundles: Iterable[Mapping[str, float]], strategy: str) -> None:
        self._demands.append(Demand({}, 1, tuple(dict(bundle) for bundle in bundles), strategy))

    def submit(self, work: Work) -> None:
        """Something is known to the cluster under its id, or is known to have changed."""
        self._work = [known for known in self._work if known.work_id != work.work_id] + [work]
        self._wake(work if work.kind in (ACTOR, JOB, WORKER) else None)

    def _wake(self, work: Work | None = None) -> None:
        for wake in self._wakes:
            wake(work)
