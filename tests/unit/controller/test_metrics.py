"""What is exported: every name that is listed and no other, of bounded number, and dashboards that ask for nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from tests.served import MemoryBackend, settled
from tests.unit.controller.leased import wanted

from remora.controller.views.gauges import MOST_CLUSTERS, MOST_RESOURCES
from remora.controller.views.metric_names import COUNTER, GAUGE, HISTOGRAM, METRICS, Metric
from remora.live.host.exporting import Exporter, rays
from remora.wire import calls
from remora.wire.asks import encode_ask

DASHBOARD = json.loads(files("remora.dashboard").joinpath("grafana.json").read_text(encoding="utf-8"))


class Heard:
    """One metric, and what was told of it."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[tuple[tuple[str, str], ...], float] = {}
        self.seen: list[float] = []

    def __call__(self, value: float, tags: dict[str, str]) -> None:
        assert set(tags) == set(self.metric.labels)
        key = tuple(sorted(tags.items()))
        before = self.values.get(key, 0) if self.metric.kind == COUNTER else 0
        self.values[key] = before + value
        self.seen.append(value)


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    made = MemoryBackend()
    made.port.join("n1", {"CPU": 4}, {"zone": "a"})
    made.port.join("n2", {"CPU": 4}, {"taint.remora.io/k": "v"})
    settled(made)
    yield made
    made.close()


def exporter(backend: MemoryBackend) -> tuple[Exporter, dict[str, Heard]]:
    heard: dict[str, Heard] = {}

    def make(metric: Metric) -> Heard:
        return heard.setdefault(metric.name, Heard(metric))

    return Exporter(backend.engine, make), heard


def test_every_metric_says_how_things_are(backend: MemoryBackend) -> None:
    cluster_id = backend.create(flexible_resource_min={"CPU": 2}, flexible_resource_max={"CPU": 3})
    backend.create("j2", flexible_resource_min={"CPU": 4})
    backend.ask(calls.Place("question", encode_ask(wanted()), "j1"))
    backend.wait(3, label_selector={"zone": "z"})
    backend.ask(calls.SentOn(calls.Who("w", cluster_id, "n1", {"CPU": 1})))
    settled(backend)
    exports, heard = exporter(backend)
    exports.export()
    told = {name: each.values for name, each in heard.items()}
    assert told["remora_nodes"] == {(("tainted", "yes"),): 1, (("tainted", "no"),): 1}
    assert told["remora_waiting"][("reason", "labels, taints or size"),] == 3
    assert told["remora_leases"][("state", "placed"),] == 1
    vc = (("cluster", cluster_id), ("resource", "CPU"))
    assert (told["remora_cluster_reserved"][vc], told["remora_cluster_maximum"][vc]) == (2, 3)
    assert told["remora_queued_clusters"] == {(): 1}
    assert max(told["remora_cluster_queued_seconds"].values()) > 0
    assert told["remora_decisions"] == {(): 1}
    assert told["remora_handed_on"] == {(): 1}
    assert told["remora_rounds"][()] > 0
    assert told["remora_writes"][("kind", "Resize"),] > 0
    assert len(heard["remora_decision_seconds"].seen) == 1
    assert heard["remora_round_seconds"].seen
    assert heard.keys() == {metric.name for metric in METRICS}


def test_counts_go_up_by_what_is_new_and_what_is_gone_is_nothing(backend: MemoryBackend) -> None:
    exports, heard = exporter(backend)
    cluster_id = backend.create(flexible_resource_min={"CPU": 2})
    exports.export()
    rounds = heard["remora_rounds"].values[()]
    backend.ask(calls.EndCluster(cluster_id, False))
    until = time.monotonic() + 20
    while backend.ask(calls.GetClusters()) and time.monotonic() < until:
        time.sleep(0.05)  # it is gone when its tokens are
    exports.export()
    assert rounds < heard["remora_rounds"].values[()] == backend.engine.measure().counts["remora_rounds", ""]
    assert heard["remora_cluster_reserved"].values[("cluster", cluster_id), ("resource", "CPU")] == 0


def test_there_are_never_too_many_labels(backend: MemoryBackend) -> None:
    resources = {f"R{number}": 1.0 for number in range(30)}
    backend.port.join("n3", {"CPU": 400, **resources}, {})
    settled(backend)
    for number in range(MOST_CLUSTERS + 20):
        backend.create(f"j{number}", flexible_resource_max=resources)
    exports, heard = exporter(backend)
    exports.export()
    assert len(heard["remora_cluster_maximum"].values) <= MOST_CLUSTERS * MOST_RESOURCES
    assert len(heard["remora_cluster_queued_seconds"].values) == MOST_CLUSTERS


def test_the_dashboard_for_grafana_asks_for_what_is_exported_and_nothing_else() -> None:
    known: dict[str, Metric] = {}
    for metric in METRICS:
        endings = {GAUGE: ("",), COUNTER: ("_total",), HISTOGRAM: ("_bucket", "_sum", "_count")}[metric.kind]
        known |= {f"ray_{metric.name}{ending}": metric for ending in endings}
    asked = set()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            names = re.findall(r"ray_remora_\w+", target["expr"])
            assert names, target
            asked |= set(names)
            for name in names:
                grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
                labels = {label.strip() for each in grouped for label in each.split(",")} - {"le", ""}
                assert labels <= set(known[name].labels), target["expr"]
    assert asked <= known.keys(), asked - known.keys()
    shown = {known[name].name for name in asked}
    assert shown == {metric.name for metric in METRICS}, "a metric that no panel shows"


def test_ray_takes_every_metric() -> None:
    for metric in METRICS:
        info: dict[str, Any] = rays(metric).args[0].info  # type: ignore[attr-defined]
        assert (info["name"], info["tag_keys"]) == (metric.name, metric.labels)
