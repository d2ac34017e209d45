"""What every rule shares: the query it is asked, the screens it answers with, the changes it suggests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from remora.kernel.state.node_sets import NodeSet, without
from remora.model.labels import Labels
from remora.model.requests import NodeClass, Request
from remora.model.resources import from_units

if TYPE_CHECKING:
    from remora.kernel.state.cluster import Cluster

_MOST_NAMED = 4


class Query(NamedTuple):
    """One request with one of its choices, for one newcomer with its own labels and id."""

    request: Request
    choice: NodeClass
    labels: Labels = ()
    workload_id: str = ""


class Screen(NamedTuple):
    """One hard constraint: ``nodes`` are the ones that pass (``wanted``) or the ones that are refused. ``topology`` is the
    label whose domains it passes or refuses as a whole; empty where it is about each node by itself."""

    nodes: NodeSet
    wanted: bool
    rule: Rule
    subject: Any
    topology: str = ""

    def passing(self, among: NodeSet) -> NodeSet:
        return among & self.nodes if self.wanted else without(among, self.nodes)


@dataclass(frozen=True)
class Change:
    """Something that a person can do. ``action`` and ``subject`` are for programs, ``text`` is for people.

    Actions: ``tolerate`` (a taint key), ``drop_selector`` (an expression), ``drop_node_any`` (expressions), ``drop_affinity``
    (owner and expressions), ``drop_spread`` (the spread), ``drop_pin`` (a node id), ``drop_label`` (a label of the newcomer),
    ``free`` (node or cluster id, resource, units), ``reduce`` (resource, units to ask for at most), ``add_node`` (resources,
    labels), ``raise_max`` (cluster id, resource, units).
    """

    action: str
    subject: Any
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain values; what an operator can do is there for programs too."""
        found: dict[str, Any] = {"action": self.action, "text": self.text}
        if self.action == "raise_max":
            cluster_id, name, units = self.subject
            found |= {"cluster_id": cluster_id, "resource": name, "amount": from_units(units)}
        return found | ({"key": self.subject} if self.action == "tolerate" else {})


class Rule(Protocol):
    name: str

    def screens(self, cluster: Cluster, query: Query) -> Iterable[Screen]:
        """Return the hard constraints that this rule puts on a query."""
        ...

    def wishes(self, cluster: Cluster, query: Query) -> Iterable[NodeSet]:
        """Return node sets that the query would rather be in, one a wish."""
        ...

    def refusal(self, subject: Any, count: int, domains: tuple[str, ...] = ()) -> str:
        """Return why ``count`` nodes are refused: "2 have the untolerated taint gpu_node=true". ``domains`` are those in
        which they are, where the screen has a topology: "8 are in zones a, b that already host an actor with svc in (web)"."""
        ...

    def remedy(self, cluster: Cluster, query: Query, subject: Any, number: int) -> tuple[Change, ...]:
        """Return the changes that together lift this constraint for the node with that number; none when nothing can."""
        ...


def where(count: int, topology: str, domains: tuple[str, ...]) -> str:
    """Return ``8 are in zones a, b that``: the subject of a sentence about as many domains as there are."""
    shown = ", ".join(domains[:_MOST_NAMED])
    if len(domains) > _MOST_NAMED:
        shown += f" and {len(domains) - _MOST_NAMED} more"
    return f"{verb(count, 'is', 'are')} in {topology}{'s' if len(domains) != 1 else ''} {shown} that"


def outside(count: int, topology: str) -> str:
    """Return why nodes without the label of a topology are refused."""
    return f"{verb(count, 'has', 'have')} no label {topology}, so {'it is' if count == 1 else 'they are'} in no domain"


def verb(count: int, one: str, many: str) -> str:
    """Return ``1 lacks`` or ``2 lack``."""
    return f"{count} {one if count == 1 else many}"
