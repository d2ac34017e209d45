"""Whatever happens in whatever order: no node and no virtual cluster ever has more shares than it may, nor after a crash."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.controller.worlds import Killed, MortalPort, World

from remora.errors import InvalidVirtualClusterError
from remora.model.resources import Resources
from remora.port.contract import ENDED
from remora.wire.tokens import share_token

CPUS = 4


class Shares(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.port = MortalPort()
        self.world = World(CPUS, port=self.port, chance=random.Random(0))
        self.most: dict[str, float] = {}
        self.jobs: dict[str, str] = {}
        self.parents: dict[str, str | None] = {}
        self.running: list[tuple[str, str, dict[str, float]]] = []

    @rule(
        least=st.integers(0, 3),
        more=st.integers(0, 4),
        nested=st.integers(0, 5),
        priority=st.integers(0, 1),
    )
    def create(self, least: int, more: int, nested: int, priority: int) -> None:
        ready = [vc for vc in self.living() if self.world.state(vc) == "READY"]
        parent = ready[nested] if nested < len(ready) else None
        job = f"j{len(self.most)}"
        spec: dict[str, Any] = {"flexible_resource_min": {"CPU": least}, "flexible_resource_max": {"CPU": least + more}}
        try:
            made = self.world.create(parent, job, priority, **spec)
        except InvalidVirtualClusterError:
            return
        self.most[made], self.jobs[made] = least + more, job
        self.parents = {vc: above for vc, above in self.parents.items() if above != made} | {made: parent}

    @precondition(lambda self: self.living())
    @rule(which=st.integers(0, 20), count=st.integers(1, 9), size=st.sampled_from([0.5, 1, 2]))
    def want(self, which: int, count: int, size: float) -> None:
        vc = self.living()[which % len(self.living())]
        self.world.want(vc, count, Resources.parse({"CPU": size}))

    @precondition(lambda self: self.living())
    @rule(which=st.integers(0, 20))
    def start(self, which: int) -> None:
        """As a raylet would: wherever there is a token and a CPU."""
        vc = self.living()[which % len(self.living())]
        token = share_token(vc, "CPU")
        for view in self.world.views():
            if view.available.get(token, 0.0) >= 1 and view.available.get("CPU", 0.0) >= 1:
                self.running.append((vc, view.node_id, self.world.run(vc, view.node_id)))
                return

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 20))
    def end(self, which: int) -> None:
        _, node, held = self.running.pop(which % len(self.running))
        self.world.port.give(node, held)

    @precondition(lambda self: self.living())
    @rule(which=st.integers(0, 20))
    def end_job(self, which: int) -> None:
        self.world.job(self.jobs.pop(self.living()[which % len(self.living())]), ENDED)
        self.world.later(0.1)

    @rule(seconds=st.sampled_from([0.1, 1.0, 7.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.world.later(seconds)

    @rule()
    def crash(self) -> None:
        self.world.restart()

    @rule(seconds=st.sampled_from([0.1, 7.0]), after=st.integers(0, 6))
    def crash_in_the_middle(self, seconds: float, after: int) -> None:
        self.port.lives = after
        try:
            self.world.later(seconds)
        except Killed:
            self.no_node_has_more_than_it_has()
            self.nobody_has_more_than_its_maximum()
            self.world.restart()
        self.port.lives = None

    def living(self) -> list[str]:
        known = self.world.clusters()
        return [vc for vc in self.jobs if vc in known]

    @invariant()
    def no_node_has_more_than_it_has(self) -> None:
        assert all(total <= CPUS + 1e-6 for total in self.world.sums().values()), self.world.sums()

    @invariant()
    def nobody_has_more_than_its_maximum(self) -> None:
        for vc in self.living():
            assert self.share(vc) <= self.most[vc] + 1e-6, (vc, self.share(vc), self.most[vc])

    def share(self, vc: str) -> float:
        """All that it and those inside it have."""
        token = share_token(vc, "CPU")
        own = sum(view.total.get(token, 0.0) - self.world.held(view.node_id, token) for view in self.world.views())
        return own + sum(self.share(each) for each, above in self.parents.items() if above == vc)


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
