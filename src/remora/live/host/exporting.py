"""Metrics, by Ray's own exporter: what the engine has counted, and how things are, once in a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ray.util.metrics import Counter, Gauge, Histogram

from remora.controller.engine import Engine
from remora.controller.views.metric_names import COUNTER, GAUGE, METRICS, Metric

EVERY_SECONDS = 5.0
"""Ray's own exporter takes over what there is every ten seconds."""

_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]

_log = logging.getLogger(__name__)


Tell = Callable[[float, dict[str, str]], None]
"""Takes a value of one metric, with its labels."""


def rays(metric: Metric) -> Tell:
    """Return what takes the values of one of ours for Ray's exporter."""
    if metric.kind == GAUGE:
        return partial(Gauge.set, Gauge(metric.name, metric.text, metric.labels))
    if metric.kind == COUNTER:
        return partial(Counter.inc, Counter(metric.name, metric.text, metric.labels))
    return partial(Histogram.observe, Histogram(metric.name, metric.text, _BUCKETS, metric.labels))


class Exporter:
    """``make`` returns what takes the values of one metric; tests look at them."""

    def __init__(self, engine: Engine, make: Callable[[Metric], Tell] = rays) -> None:
        self._engine = engine
        self._make = make
        self._metrics: dict[str, tuple[Metric, Tell]] = {}
        self._counted: dict[tuple[str, str], int] = {}
        self._shown: set[tuple[str, tuple[str, ...]]] = set()
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="remora-metrics", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def export(self) -> None:
        """Hand everything to Ray. Only reading takes the lock of the engine."""
        if not self._metrics:  # not before: whatever Ray says to them, the controller starts
            self._metrics = {metric.name: (metric, self._make(metric)) for metric in METRICS}
        measured = self._engine.measure()
        shown = set()
        for name, values in measured.gauges.items():
            for labels, value in values.items():
                shown.add((name, labels))
                self._set(name, labels, value)
        for name, labels in self._shown - shown:  # what is gone would be shown as it was for ever
            self._set(name, labels, 0.0)
        self._shown = shown
        for (name, kind), count in measured.counts.items():
            more = count - self._counted.get((name, kind), 0)
            if more > 0:
                metric, tell = self._metrics[name]
                tell(more, dict(zip(metric.labels, (kind,), strict=False)))
                self._counted[name, kind] = count
        for name, line in measured.durations.items():
            for seconds in line:
                self._metrics[name][1](seconds, {})

    def _set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        metric, tell = self._metrics[name]
        tell(value, dict(zip(metric.labels, labels, strict=True)))

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            try:
                self.export()
            except Exception:  # noqa: BLE001, PERF203 - numbers are for people: nothing else stops because of them
                _log.warning("the metrics could not be exported", exc_info=True)
