"""Placement groups in GCS: reserved one at a time, by what nodes reported last, and at the raylets themselves after that.

One that no node could hold is looked at again only when a node joins. One for which there is no room is tried again later. One
that has lost a node, could be held and finds no room is tried without a pause, and nothing else is reserved meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tests.world.raylet import UNIT, Shape, Units, fits, to_floats

from remora.port.contract import ENDED, GROUP, RUNNING, WAITING, Demand, NodeView, Work

if TYPE_CHECKING:
    from tests.world.world import World

    from remora.wire.classes import ClassSpec

PENDING, CREATED, RESCHEDULING, REMOVED = "PENDING", "CREATED", "RESCHEDULING", "REMOVED"
_STATES = {CREATED: RUNNING, REMOVED: ENDED}
_BUSY_SECONDS = 0.02  # so often one that lost a node is tried: far less often than by Ray, and as much in the way
_BUNDLES = 1000 * UNIT


class GroupEntry:
    def __init__(
        self,
        group_id: str,
        name: str,
        job_id: str,
        bundles: Sequence[Units],
        strategy: str,
        *,
        detached: bool = False,
        pinned: str | None = None,
        cluster: str | None = None,
        classes: Sequence[ClassSpec] = (),
    ) -> None:
        self.group_id = group_id
        self.name = name
        self.job_id = job_id
        self.bundles: list[Shape] = [tuple(sorted(bundle.items())) for bundle in bundles]
        self.strategy = strategy
        self.detached = detached
        self.pinned = pinned
        self.cluster = cluster
        self.classes = list(classes)  # what each bundle asks of its node
        self.fresh: list[int] = []  # bundles that were reserved last
        self.state = PENDING
        self.nodes: list[str | None] = [None] * len(bundles)
        self.is_hopeless = False  # no node could hold it when it was looked at last
        self.tries = 0
        self.due = 0.0

    def work(self) -> Work:
        nodes = tuple(dict.fromkeys(node for node in self.nodes if node is not None))
        shapes = tuple(to_floats(dict(bundle)) for bundle in self.bundles)
        state = _STATES.get(self.state, WAITING)
        return Work(GROUP, self.group_id, self.name, self.job_id, state, self.state, shapes, nodes, self.strategy, "tests")

    def inside(self, bundle: Shape) -> Shape:
        """What a bundle offers to the work of its group, under the names that Ray gives it."""
        names = [(f"{name}_group_{self.group_id}", units) for name, units in bundle]
        return (*names, (f"bundle_group_{self.group_id}", _BUNDLES))


class GroupTable:
    def __init__(self, world: World, views: Mapping[str, NodeView]) -> None:
        self.world = world
        self._views = views
        self.entries: dict[str, GroupEntry] = {}

    # What is asked for

    def create(self, entry: GroupEntry) -> None:
        self.entries[entry.group_id] = entry
        entry.due = self.world.now
        self.world.note("GCS knows {}", entry.group_id)
        self.world.after(self.world.chance.between(f"group {entry.group_id}", 0.001, 0.01), self._try_all)

    def remove(self, id_or_name: str) -> None:
        for entry in [entry for entry in self.entries.values() if id_or_name in (entry.group_id, entry.name)]:
            if entry.state != REMOVED:
                before, was, entry.state = entry.nodes, entry.state, REMOVED
                entry.nodes = [None] * len(entry.bundles)
                self.world.note("{} is removed", entry.group_id)
                if was != PENDING:
                    self.world.end_waiting_in(entry.group_id)
                raylets = [self.world.raylets.get(node_id or "") for node_id in before]
                for raylet, bundle in zip(raylets, entry.bundles, strict=True):
                    if raylet is not None:
                        raylet.drop_total(entry.inside(bundle))
                self.world.end_running_in(entry)
                for raylet, bundle in zip(raylets, entry.bundles, strict=True):
                    if raylet is not None:
                        if entry.pinned is None:
                            raylet.note_returned(bundle)
                        raylet.give(bundle)
            self.entries.pop(entry.group_id, None)

    def hold(self, name: str, node_id: str, amounts: Units) -> bool:
        """A group of one bundle on one node, now or not at all."""
        if any(entry.name == name for entry in self.entries.values()):
            self.remove(name)  # from before its maker died
            return False
        entry = GroupEntry(f"hold-{name}", name, "", [amounts], "PACK", detached=True, pinned=node_id)
        if self.is_busy() or not self._reserve(entry):
            return False
        self.entries[entry.group_id] = entry
        return True

    def job_ended(self, job_id: str) -> None:
        for entry in [entry for entry in self.entries.values() if entry.job_id == job_id and not entry.detached]:
            self.remove(entry.group_id)

    def of(self, text: str) -> list[GroupEntry]:
        return [entry for entry in self.entries.values() if text in (entry.group_id, entry.name)]

    def waiting(self) -> list[Demand]:
        """As they are reported: that bundles must lie apart or together is told, weaker wishes are not."""
        found = []
        for entry in self.entries.values():
            if entry.state in (PENDING, RESCHEDULING):
                strategy = entry.strategy if entry.strategy.startswith("STRICT") else "PACK"
                lacking = [b for b, node in zip(entry.bundles, entry.nodes, strict=True) if node is None]
                found.append(Demand({}, 1, tuple(to_floats(dict(bundle)) for bundle in lacking), strategy))
        return found

    # What happens to nodes

    def node_joined(self) -> None:
        for entry in self.entries.values():
            entry.is_hopeless, entry.due = False, self.world.now
        if self.entries:
            self.world.after(0.0, self._try_all)

    def node_left(self, node_id: str) -> None:
        for entry in list(self.entries.values()):
            if node_id in entry.nodes:
                if entry.pinned is not None:
                    self.entries.pop(entry.group_id)  # nobody will see it again
                    continue
                entry.nodes = [None if node == node_id else node for node in entry.nodes]
                entry.state, entry.due, entry.is_hopeless = RESCHEDULING, self.world.now, False
                self.world.note("{} has lost {}", entry.group_id, node_id)
                self.world.after(0.0, self._try_all)

    # Reserving

    def is_busy(self) -> bool:
        """Whether one that has lost a node is tried again and again."""
        return any(entry.state == RESCHEDULING and not entry.is_hopeless for entry in self.entries.values())

    def _try_all(self) -> None:
        waiting = [e for e in self.entries.values() if e.state in (PENDING, RESCHEDULING) and not e.is_hopeless]
        for entry in sorted(waiting, key=lambda each: each.state != RESCHEDULING):
            if entry.due > self.world.now or entry.state == REMOVED:
                continue
            if self._reserve(entry):
                self.world.group_reserved(entry)
            elif entry.is_hopeless:
                self.world.note("{} fits no node: GCS looks again when one joins", entry.group_id)
            elif entry.state == RESCHEDULING:
                entry.due = self.world.now + _BUSY_SECONDS
                self.world.after(_BUSY_SECONDS, self._try_all)
                return
            else:
                entry.tries += 1
                wait = min(0.1 * 2**entry.tries, 1.0)
                entry.due = self.world.now + wait
                self.world.after(wait, self._try_all)

    def _reserve(self, entry: GroupEntry) -> bool:
        lacking = [index for index, node in enumerate(entry.nodes) if node is None]
        if not self._could(entry):
            entry.is_hopeless = True
            return False
        chosen = self._choose(entry, lacking)
        if chosen is None or not self._take(entry, chosen):
            return False
        for index, node_id in chosen.items():
            entry.nodes[index] = node_id
        entry.state, entry.fresh = CREATED, list(chosen)
        for index, node_id in chosen.items():
            self.world.raylets[node_id].add_total(entry.inside(entry.bundles[index]))
        return True

    def _could(self, entry: GroupEntry) -> bool:
        totals = {node_id: _units(view.total) for node_id, view in self._nodes(entry)}
        fitting = [{n for n, total in totals.items() if fits(total, bundle)} for bundle in entry.bundles]
        if entry.strategy == "STRICT_SPREAD" and len(totals) < len(entry.bundles):
            return False
        if entry.strategy == "STRICT_PACK":
            return any(fits(total, _sum(entry.bundles)) for total in totals.values())
        return all(fitting)

    def _nodes(self, entry: GroupEntry) -> list[tuple[str, NodeView]]:
        return [(node_id, view) for node_id, view in self._views.items() if entry.pinned in (None, node_id)]

    def _choose(self, entry: GroupEntry, lacking: list[int]) -> dict[int, str] | None:
        """By what nodes reported: greedily, as Ray does."""
        free = {node_id: _units(view.available) for node_id, view in self._nodes(entry)}
        used = {node for node in entry.nodes if node is not None}
        chosen: dict[int, str] = {}
        for index in sorted(lacking, key=lambda each: -sum(units for _, units in entry.bundles[each])):  # the largest first
            bundle = entry.bundles[index]
            nodes = [node for node in sorted(free) if fits(free[node], bundle)]
            if entry.strategy == "STRICT_SPREAD":
                nodes = [node for node in nodes if node not in used]
            elif entry.strategy == "STRICT_PACK":
                nodes = [node for node in nodes if not used or node in used]
                nodes = nodes if used else [node for node in nodes if fits(free[node], _sum(entry.bundles))]
            else:
                nodes.sort(key=lambda node: (node in used) == (entry.strategy == "SPREAD"))
            if not nodes:
                return None
            chosen[index] = nodes[0]
            used.add(nodes[0])
            for name, units in bundle:
                free[nodes[0]][name] -= units
        return chosen

    def _take(self, entry: GroupEntry, chosen: dict[int, str]) -> bool:
        """At the raylets: all or nothing."""
        taken: list[tuple[str, Shape]] = []
        for index, node_id in chosen.items():
            raylet, bundle = self.world.raylets.get(node_id), entry.bundles[index]
            if raylet is None or not fits(raylet.available, bundle):
                for before, shape in taken:
                    self.world.raylets[before].give(shape)
                return False
            raylet.take(bundle)
            taken.append((node_id, bundle))
        return True


def _units(amounts: Mapping[str, float]) -> Units:
    return {name: round(amount * UNIT) for name, amount in amounts.items()}


def _sum(bundles: Sequence[Shape]) -> Shape:
    total: Units = {}
    for bundle in bundles:
        for name, units in bundle:
            total[name] = total.get(name, 0) + units
    return tuple(sorted(total.items()))
