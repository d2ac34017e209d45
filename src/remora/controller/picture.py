"""The picture: what the cluster reports, made the kernel's. The only caller of what observes nodes and use.

Only nodes whose report has changed are looked at, and those of which something else has changed that counts on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from remora.controller.assumed import Assumed
from remora.controller.clusters.use import Use
from remora.controller.context import Context
from remora.controller.store import Store
from remora.controller.tokens.book import Book
from remora.controller.tokens.class_tokens import in_use
from remora.kernel.cycle import Scheduler
from remora.model.labels import Labels, show_labels
from remora.model.resources import UNIT, Resources
from remora.model.taints import rare_resources, rare_taints, split_taints
from remora.port.contract import Demand, NodeView, Observation
from remora.wire.keys import OVERRIDES, Overrides
from remora.wire.tokens import is_real

DRAINING = "remora.io/draining"
"""The taint of a node that is about to be ended."""


class Picture:
    def __init__(self, context: Context, scheduler: Scheduler, store: Store, use: Use, assumed: Assumed, book: Book) -> None:
        self._context = context
        self._cluster = scheduler.cluster
        self._store = store
        self._use = use
        self._assumed = assumed
        self._book = book
        self._views: dict[str, NodeView] = {}
        self._overrides: dict[str, Overrides] = {}
        self._classes: dict[str, frozenset[str]] = {}  # by node: classes of which work holds tokens
        self._classes_in_use: Counter[str] = Counter()
        self._stale: set[str] = set()
        self._counts: dict[str, int] = {}
        self._relabelled: set[str] = set()
        self._nodes: tuple[NodeView, ...] = ()  # of the last report
        self.demands: tuple[Demand, ...] = ()
        self.rare: frozenset[str] = frozenset()
        self.reported_at = 0.0
        self.changes = 0
        """Goes up with every report that says something new of a node."""
        self.minds_draining = False
        """Whether a node that is about to be ended is tainted: nothing new is decided there."""

    @property
    def views(self) -> Mapping[str, NodeView]:
        """The last report of every live node."""
        return self._views

    @property
    def classes_in_use(self) -> Counter[str]:
        """The classes of which work on any node holds tokens, by the last reports."""
        return self._classes_in_use

    def overrides(self, node_id: str) -> Overrides:
        """Return the labels and taints that were set at run time on a node."""
        return self._overrides.get(node_id) or Overrides()

    def set_overrides(self, node_id: str, overrides: Overrides) -> None:
        """Set labels and taints of a node; they hold with the next look at it."""
        self._overrides[node_id] = overrides
        self._relabelled.add(node_id)
        self._store.set(OVERRIDES.key(node_id), OVERRIDES.write(overrides))

    def is_remembered(self, node_id: str) -> bool:
        """Return whether the next controller knows the labels and taints that were set on a node."""
        return self._store.is_confirmed(OVERRIDES.key(node_id))

    def restore_overrides(self, node_id: str, overrides: Overrides) -> None:
        self._overrides[node_id] = overrides

    def recount(self, node_id: str) -> None:
        """Something has changed that counts on a node: what is free there is counted anew."""
        self._stale.add(node_id)

    def left(self, observation: Observation) -> list[str]:
        """Return the nodes that a report no longer has."""
        if observation.nodes is self._nodes:
            return []
        reported = {view.node_id for view in observation.nodes}
        return [node_id for node_id in self._views if node_id not in reported]

    def see(self, observation: Observation, *, sure: bool = True, is_news: bool = True) -> list[str]:
        """Take in a report: nodes that joined, and what has changed of others. Return the nodes that have to be written to.

        ``sure``: whatever a node that joined reports is all that stands there. ``is_news``: it was not told before that it
        joined.
        """
        self.reported_at = self._context.now()
        self.demands = observation.demands
        if observation.nodes is self._nodes:
            return []
        self._nodes, known = observation.nodes, self._views
        changed = [view for view in observation.nodes if known.get(view.node_id) is not view]
        if not changed:
            return []
        self.changes += 1
        rare = next((rare_resources(view.labels) for view in observation.nodes if view.is_head), self.rare)
        if rare != self.rare:
            self.rare = rare
            self._relabelled.update(known)
        dirty = []
        for view in changed:
            with self._context.aside.care_of("node", view.node_id, "seeing"):
                if self._see_node(view, sure=sure, is_news=is_news):
                    dirty.append(view.node_id)
            if self._views.get(view.node_id) is not view:
                self.look_again()
        return dirty

    def look_again(self) -> None:
        """Look at the next report, also when it says nothing new: something could not be taken in."""
        self._nodes = ()

    def counted(self, node_id: str) -> int:
        """Return a number that changes whenever what is in use and free on a node was counted anew."""
        return self._counts.get(node_id, 0)

    def settle(self) -> None:
        """Count anew what is free on nodes of which anything has changed."""
        for node_id in self._due(self._relabelled, "marking"):
            with self._context.aside.care_of("node", node_id, "marking"):
                self._mark(self._views[node_id])
                self._relabelled.discard(node_id)
        self._stale |= self._assumed.touched
        self._assumed.touched.clear()
        for node_id in self._due(self._stale, "counting"):
            with self._context.aside.care_of("node", node_id, "counting"):
                self._count(self._views[node_id])
                self._stale.discard(node_id)

    def forget(self, node_id: str) -> None:
        """The node is gone; the kernel knows it no more."""
        del self._views[node_id]
        self._classes_in_use.subtract(self._classes.pop(node_id, ()))
        self._stale.discard(node_id)
        self._counts.pop(node_id, None)
        self._relabelled.discard(node_id)
        if self._overrides.pop(node_id, None) is not None:
            self._store.set(OVERRIDES.key(node_id), None)

    # The rest

    def _due(self, nodes: set[str], what: str) -> list[str]:
        """Return those of these nodes that are there and did not just fail; those that are gone are dropped."""
        nodes &= self._views.keys()
        return [node_id for node_id in nodes if self._context.aside.is_due("node", node_id, what)]

    def _see_node(self, view: NodeView, *, sure: bool, is_news: bool) -> bool:
        before = self._views.get(view.node_id)
        if before is None:
            labels, taints = self._marks(view)
            self._cluster.add_node(view.node_id, real(view.total), _pairs(labels), _pairs(taints), view.node_type)
            if is_news:
                tainted = f", tainted {show_labels(taints)}" if taints else ""
                self._context.note("node", view.node_id, f"the node {view.address} joined{tainted}")
        dirty = self._book.see(view, sure=sure or before is not None)
        self._assumed.see(view)
        self._views[view.node_id] = view
        if before is not None and (before.labels != view.labels or before.draining != view.draining):
            self._relabelled.add(view.node_id)
        self._stale.add(view.node_id)
        return dirty

    def _see_classes(self, view: NodeView) -> None:
        now = frozenset(in_use(view.total, view.available, lambda name: self._book.held(view.node_id, name)))
        before = self._classes.get(view.node_id, frozenset())
        if now != before:
            self._classes[view.node_id] = now
            self._classes_in_use.update(now - before)
            self._classes_in_use.subtract(before - now)

    def _mark(self, view: NodeView) -> None:
        """Bring the labels and taints of a node up to date."""
        labels, taints = self._marks(view)
        node = self._cluster.nodes.get(view.node_id)
        if node.labels != labels:
            self._cluster.relabel_node(node, _pairs(labels), [key for key in node.labels if key not in labels])
        if node.taints != taints:
            self._cluster.nodes.retaint(node, _pairs(taints), [key for key in node.taints if key not in taints])

    def _marks(self, view: NodeView) -> tuple[dict[str, str], dict[str, str]]:
        """Return the labels and taints that hold now: those that the node was started with, then what was said since."""
        labels, taints = split_taints(view.labels)
        taints = {**dict.fromkeys(rare_taints(view.total, self.rare), "true"), **taints}
        overrides = self._overrides.get(view.node_id)
        if overrides is not None:
            labels = _overridden(labels, overrides.labels)
            taints = _overridden(taints, overrides.taints)
        if view.draining and self.minds_draining:
            taints[DRAINING] = "true"
        return labels, taints

    def _count(self, view: NodeView) -> None:
        """Count what is in use and what is free on a node; what our own holds take there may have changed since its report."""
        self._counts[view.node_id] = self._counts.get(view.node_id, 0) + 1
        self._use.see(view)
        self._see_classes(view)
        node = self._cluster.nodes.get(view.node_id)
        for account in self._use.clusters_on(view.node_id):
            self._use.mark(account, node.number)
        total = real(view.total)
        free = self._use.count_outside(view, total, real(view.available))
        self._cluster.observe_node(node, total, free)


def real(amounts: Mapping[str, float]) -> Resources:
    """Return what a node has, or work asks for, beside tokens. Ray reports floats, so whole units may be missed by a hair."""
    return Resources({name: round(amount * UNIT) for name, amount in amounts.items() if is_real(name)})


def _overridden(static: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**static, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _pairs(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
