"""Every metric that is exported: its name, its kind, what it says and by what it is told apart. Ray puts ``ray_`` before the
names.

There are few labels, and none has many values: virtual clusters have names that are used again, and of very many only some are
told apart.
"""

from __future__ import annotations

from typing import NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Metric(NamedTuple):
    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()


METRICS = (
    Metric("remora_nodes", GAUGE, "Live nodes.", ("tainted",)),
    Metric("remora_waiting", GAUGE, "Tasks, actors and placement groups that wait, by what holds them back.", ("reason",)),
    Metric("remora_queued_clusters", GAUGE, "Virtual clusters that wait for their minimum."),
    Metric("remora_leases", GAUGE, "Actors and tasks that are placed one by one.", ("state",)),
    Metric("remora_shares", GAUGE, "Parts of nodes that virtual clusters have."),
    Metric("remora_classes", GAUGE, "Kinds of requests whose tokens are offered."),
    Metric("remora_fenced_nodes", GAUGE, "Nodes where something may not start without asking."),
    Metric("remora_set_aside", GAUGE, "Things whose care failed; remora status names them."),
    Metric("remora_generation", GAUGE, "How many controllers this cluster had: it goes up with every restart."),
    Metric("remora_cluster_used", GAUGE, "What a virtual cluster uses.", ("cluster", "resource")),
    Metric("remora_cluster_reserved", GAUGE, "What is reserved for it: its minimum.", ("cluster", "resource")),
    Metric("remora_cluster_borrowed", GAUGE, "What it has above its minimum.", ("cluster", "resource")),
    Metric("remora_cluster_maximum", GAUGE, "What it may have at most; not there without a limit.", ("cluster", "resource")),
    Metric("remora_cluster_queued_seconds", GAUGE, "For how long it has waited for its minimum.", ("cluster",)),
    Metric("remora_decisions", COUNTER, "Placements that were decided when somebody asked."),
    Metric("remora_decision_seconds", HISTOGRAM, "How long the answer to such a question took."),
    Metric("remora_rounds", COUNTER, "Times that everything was decided anew."),
    Metric("remora_round_seconds", HISTOGRAM, "How long that took."),
    Metric("remora_writes", COUNTER, "What was done to the cluster, by kind.", ("kind",)),
    Metric("remora_write_errors", COUNTER, "What of it failed, and is tried again.", ("kind",)),
    Metric("remora_fences", COUNTER, "Fences that were written."),
    Metric("remora_handed_on", COUNTER, "Tasks that were handed on because their node no longer accepts them."),
)
