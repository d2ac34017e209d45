"""Token names, spelled here and nowhere else: custom resources that say where work may run.

A *class* token stands on every node that a class admits; whatever belongs to the class takes the smallest amount of it
that Ray can count. A *lease* token stands on the one node that the kernel chose for one actor or task. A *share* token
stands wherever a virtual cluster has a share of a node; its work takes as much of it as it takes of the resource itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remora.model.resources import TOKEN_PREFIX, UNIT

_CLASS = f"{TOKEN_PREFIX}class/"
_LEASE = f"{TOKEN_PREFIX}lease/"
_SHARE = f"{TOKEN_PREFIX}vc/"
_IN_GROUP = "_group_"

KEEP = f"{TOKEN_PREFIX}keep"
"""Held on a machine that must not be ended though it looks idle: something was promised there. Nobody else takes of it, and it
is never resized while it is held, because a raylet takes what is resized for idle."""

KEPT = 1.0
"""How much of it stands on such a machine."""
_BUNDLE = "bundle_group_"

OF_CLUSTER = "."
"""Between a virtual cluster and a class of it, in the name of the class."""

OF_GROUP = "+"
"""Between a virtual cluster, the number of a placement group in it and the index of a bundle, in the name of a share."""

TASKS, ACTORS, GROUPS = "", "actors", "groups"
"""Who takes the token of a class. What one gives back on a node that no longer accepts it, its raylet hands on at once: a task
that gets it so is stopped at the guard and handed on, but an actor or a placement group could only be killed. So these have
tokens of their own, and nothing that ends lets them in."""

CLUSTER_LABEL = "remora.io/cluster"
"""No token, but its companion: a label of an actor in GCS that names the virtual cluster that it runs in."""

OFFERED = 1000.0
"""How much of a class token a node offers: enough for ten million at once."""

_HOLD = "remora-hold-"

TAKEN = 1 / UNIT
"""How much of it one task, actor or bundle takes."""


def class_token(class_id: str) -> str:
    return _CLASS + class_id


def class_of_token(name: str) -> str | None:
    """The class that a resource name stands for, or None when it is not a class token."""
    return name.removeprefix(_CLASS) if name.startswith(_CLASS) and _IN_GROUP not in name else None


def cluster_of_class(class_id: str) -> str | None:
    """The virtual cluster that a class belongs to."""
    cluster, dot, _ = class_id.partition(OF_CLUSTER)
    return cluster if dot else None


def lease_token(slot: str) -> str:
    return _LEASE + slot


def slot_of_token(name: str) -> str | None:
    """The slot that a resource name stands for, or None when it is not a lease token."""
    return name.removeprefix(_LEASE) if name.startswith(_LEASE) and _IN_GROUP not in name else None


def share_token(owner: str, resource: str) -> str:
    """``owner`` is the id of a virtual cluster; or of a class in it, for the part of the cluster that the class selects; or of
    a bundle of a placement group in it."""
    return f"{_SHARE}{owner}/{resource}"


def share_of_token(name: str) -> tuple[str, str] | None:
    """The owner and the resource that a name stands for, or None when it is not a share token."""
    if not name.startswith(_SHARE) or _IN_GROUP in name:
        return None
    owner, _, resource = name.removeprefix(_SHARE).partition("/")
    return owner, resource


def group_share_id(cluster_id: str, number: int) -> str:
    """What a placement group has of a virtual cluster is called so."""
    return f"{cluster_id}{OF_GROUP}{number}"


def bundle_id(group_share: str, index: int) -> str:
    """Who owns the share of one of its bundles."""
    return f"{group_share}{OF_GROUP}{index}"


def counts_for(owner: str) -> str:
    """The virtual cluster, or the share of a placement group in one, that the owner of a share belongs to."""
    cluster, *group = (cluster_of_class(owner) or owner).split(OF_GROUP)
    return OF_GROUP.join([cluster, *group[:1]])


def works_in(owner: str) -> str:
    """The virtual cluster whose work uses the share of an owner: in a placement group runs that of the one around it."""
    return (cluster_of_class(owner) or owner).partition(OF_GROUP)[0]


def is_part(owner: str) -> bool:
    """Whether a share stands beside that of its virtual cluster, as the part that a class selects, and not in the sums."""
    return cluster_of_class(owner) is not None


def part_in(names: Iterable[str]) -> str:
    """Return the part of a virtual cluster that work selects which holds these; empty where it selects none."""
    owners = (found[0] for name in names if (found := share_of_token(name)) is not None)
    return next((owner for owner in owners if is_part(owner)), "")


def is_token(name: str) -> bool:
    """Whether it is ours to write. What a placement group has reserved of a token bears its name too, but belongs to Ray:
    a raylet whose group resources are resized dies when the group is removed."""
    return name.startswith(TOKEN_PREFIX) and _IN_GROUP not in name


def is_real(name: str) -> bool:
    """Whether a resource is one that nodes have and work asks for: no token, and nothing reserved for a placement group."""
    return not name.startswith(TOKEN_PREFIX) and _IN_GROUP not in name


def is_in_group(name: str) -> bool:
    """Whether a resource is what a placement group has reserved: work that asks for it goes into that group."""
    return _IN_GROUP in name


def reserves_resources(name: str) -> bool:
    """Whether work that holds this uses what its placement group has reserved; every bundle has a name besides, which work of
    no size holds too."""
    return _IN_GROUP in name and not name.startswith((TOKEN_PREFIX, _BUNDLE))


def without_tokens(amounts: Mapping[str, float]) -> dict[str, float]:
    """As users see them: what a placement group has reserved of a token is hidden too."""
    return {name: amount for name, amount in amounts.items() if not name.startswith(TOKEN_PREFIX)}


def cluster_of_work(resources: Iterable[str]) -> str | None:
    """The virtual cluster whose tokens something takes."""
    for name in resources:
        share = share_of_token(name)
        if share is not None:
            return works_in(share[0])
        class_id = class_of_token(name)
        if class_id is not None and (cluster := cluster_of_class(class_id)) is not None:
            return cluster
    return None


def hold_name(node_id: str, number: int) -> str:
    """The name of a placement group that keeps tokens from others: nobody's work. Ids of nodes may begin alike, and a name is
    one group's in the whole cluster."""
    return f"{_HOLD}{node_id}-{number}"


def signal_name(signal_id: str) -> str:
    """The name of a placement group that tells others that one which waited is there: nobody's work either."""
    return f"{_HOLD}signal-{signal_id[:16]}"


def is_hold(name: str) -> bool:
    return name.startswith(_HOLD)
