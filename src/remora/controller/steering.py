"""Steer: make the tokens on the nodes those that are wanted, without hurting what is queued or running there.

Taking a class away from a node has three steps. The *fence* goes up first: workers hand on what it names instead of starting
it. Then a *hold* takes the smallest amount of each token and keeps it: Ray fails work that is queued at a raylet when no node
in the cluster has any of what it asks for, so a class that somebody uses never vanishes from a node that has offered it. Then
the rest is taken, again and again while something that runs there gives back.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from math import inf

from remora.seam.port import GROUP, RUNNING, NodeGoneError, NodeView, Port
from remora.wire.fences import fence_key, write_fence
from remora.wire.tokens import OFFERED, TAKEN, class_of_token, hold_name, is_token, share_of_token

Tokens = dict[str, float]
Note = Callable[[str, str, str], None]

_HOLD = "hold/"
_EPSILON = TAKEN / 2
_REPORTED_SECONDS = 0.7
_OPEN = write_fence(())


class Steering:
    def __init__(self, port: Port, note: Note, now: Callable[[], float]) -> None:
        self._port = port
        self._now = now
        self._written_at: dict[str, float] = {}
        self._note = note
        self.fences: dict[str, frozenset[str]] = {}
        self.full: dict[str, frozenset[str]] = {}  # by node: virtual clusters that use more than they may
        # The tokens of a node as its raylet last told us: what the cluster reports is about a tenth of a second older.
        self._latest: dict[str, Tokens] = {}
        self._told: dict[str, bytes] = {}
        self._holds: dict[str, dict[str, Tokens]] = {}
        self.spare: dict[str, Tokens] = {}  # by node: what is there only to be held in a moment
        self.may_hold = True  # not while GCS is busy with something else, and would not come to it
        for key in port.keys(_HOLD):
            _, node_id, name = key.split("/")
            if any(found.kind == GROUP and found.state == RUNNING for found in port.find(name)):
                self._holds.setdefault(node_id, {})[name] = json.loads(port.get(key) or b"{}")
            else:
                self._drop(node_id, name)  # a controller before us died over it

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be taken away as soon as it is given back."""
        return all(
            self._latest.get(node_id, {}).get(name, 0.0) <= self.held(node_id, name) + _EPSILON
            for node_id, names in self.fences.items()
            for name in names
        )

    def steer(self, node_id: str, reported: Mapping[str, float], wanted: Tokens, awake: frozenset[str]) -> None:
        """Write the difference. ``awake`` are the tokens of classes that somebody uses."""
        latest = self._latest.get(node_id, reported)
        # For a moment the report is older than what the raylet itself said; after that, it has the last word.
        fresh = self._now() - self._written_at.get(node_id, -inf) < _REPORTED_SECONDS
        changes = {
            name: amount
            for name, amount in wanted.items()
            if latest.get(name) != amount or (reported.get(name) != amount and not fresh)
        }
        unwanted = {name for name in (*reported, *latest) if _is_steered(name) and name not in wanted}
        fenced = unwanted & awake
        self._fence(node_id, frozenset(fenced))
        bare = {name for name in fenced if not self.held(node_id, name)}
        if bare and not self.hold(node_id, dict.fromkeys(bare, TAKEN)):
            changes.update(dict.fromkeys(bare, OFFERED))  # fenced; the next round tries again to hold it
            unwanted -= bare
        for name in unwanted:
            least = self.held(node_id, name) if name in fenced else 0.0
            if max(reported.get(name, 0.0), latest.get(name, 0.0)) > least + _EPSILON or not least:
                changes[name] = 0.0
        if changes:
            self.write(node_id, changes)
        self._let_go(node_id, awake)

    def write(self, node_id: str, tokens: Tokens) -> Tokens:
        """Resize; which tokens the node has now."""
        try:
            totals = self._port.resize(node_id, tokens)
        except NodeGoneError:
            return {}  # the next observation will not have it
        # Of others it may tell less than we know: two calls may be answered in another order than they were made.
        latest = self._latest.setdefault(node_id, {name: amount for name, amount in totals.items() if is_token(name)})
        for name in tokens:
            if totals.get(name):
                latest[name] = totals[name]
            else:
                latest.pop(name, None)
        self._written_at[node_id] = self._now()
        return latest

    def held(self, node_id: str, name: str) -> float:
        """How much of a token our own holds take on a node, or will in a moment."""
        taken = sum(amounts.get(name, 0.0) for amounts in self._holds.get(node_id, {}).values())
        return taken + self.spare.get(node_id, {}).get(name, 0.0)

    def held_names(self) -> set[str]:
        return {name for holds in self._holds.values() for amounts in holds.values() for name in amounts}

    def latest(self, node_id: str) -> Tokens:
        """The tokens of a node, as its raylet said last; it is asked if it has not said anything yet. A report would be older,
        and whoever adds up what is out by that gives too much."""
        return dict(self._latest[node_id] if node_id in self._latest else self.write(node_id, {}))

    def in_use(self, view: NodeView) -> list[str]:
        """The tokens that work on this node holds."""
        taken = {name: total - view.available.get(name, 0.0) for name, total in view.total.items() if is_token(name)}
        return [name for name, amount in taken.items() if amount > self.held(view.node_id, name) + _EPSILON]

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self.spare.pop(node_id, None)
        self.fences.pop(node_id, None)
        self.full.pop(node_id, None)
        self._told.pop(node_id, None)
        self._latest.pop(node_id, None)
        for name in list(self._holds.pop(node_id, {})):
            self._drop(node_id, name)
        self._port.put(fence_key(node_id), None)

    def withdraw(self) -> list[str]:
        """Take every token from every node; which nodes still have tokens that something holds."""
        for node_id, holds in self._holds.items():
            for name in holds:
                self._drop(node_id, name)
        self._holds.clear()
        left = []
        for view in self._port.observe().nodes:
            tokens = {name: 0.0 for name in view.total if is_token(name)}
            if tokens and self.write(view.node_id, tokens):
                left.append(view.node_id)
        return left

    def tell_full(self, node_id: str, clusters: frozenset[str]) -> None:
        """Nothing of these virtual clusters starts on the node without leave."""
        if self.full.get(node_id, frozenset()) != clusters:
            self.full[node_id] = clusters
            self._tell(node_id)

    def _fence(self, node_id: str, names: frozenset[str]) -> None:
        before = self.fences.get(node_id, frozenset())
        self.fences[node_id] = names
        self._tell(node_id)
        if before != names:
            self._note("fence", node_id, f"up for {len(names)} of the classes in use" if names else "down")

    def _tell(self, node_id: str) -> None:
        names = self.fences.get(node_id, frozenset())
        classes = [class_id for name in names if (class_id := class_of_token(name)) is not None]
        data = write_fence(classes, self.full.get(node_id, ()))
        if node_id not in self._told:
            self._told[node_id] = self._port.get(fence_key(node_id)) or _OPEN  # of a controller before us
        if self._told[node_id] != data:
            self._port.put(fence_key(node_id), data)
            self._told[node_id] = data

    def hold(self, node_id: str, amounts: Tokens) -> bool:
        """Take so much on a node and keep it; whether it was free."""
        if not self.may_hold:
            return False
        holds = self._holds.setdefault(node_id, {})
        taken = (hold_name(node_id, number) for number in itertools.count())
        name = next(name for name in taken if name not in holds)
        self._port.put(f"{_HOLD}{node_id}/{name}", json.dumps(amounts, sort_keys=True).encode())
        if not self._port.hold(name, node_id, amounts):
            self._drop(node_id, name)
            return False
        holds[name] = amounts
        return True

    def let_go(self, node_id: str, token: str) -> None:
        """Nothing has to be protected by holding this any more."""
        for name, amounts in list(self._holds.get(node_id, {}).items()):
            if token in amounts:
                del self._holds[node_id][name]
                self._drop(node_id, name)

    def _let_go(self, node_id: str, awake: frozenset[str]) -> None:
        """A hold whose classes nobody uses any more has nothing to protect."""
        for name, amounts in list(self._holds.get(node_id, {}).items()):
            if awake.isdisjoint(amounts):
                del self._holds[node_id][name]
                self._drop(node_id, name)

    def _drop(self, node_id: str, name: str) -> None:
        self._port.let_go(name)
        self._port.put(f"{_HOLD}{node_id}/{name}", None)


def _is_steered(name: str) -> bool:
    """Classes and leases; shares have rules of their own."""
    return is_token(name) and share_of_token(name) is None
