"""Who owns a share token: a virtual cluster, a bundle of a placement group in it, or the part of it that a class selects."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from remora.wire.tokens import OF_CLUSTER, OF_GROUP, share_of_token, share_token


class ShareOwner(NamedTuple):
    """``cluster`` is the virtual cluster whose work runs on the share. ``group`` is the number of a placement group in it and
    ``bundle`` the index of its bundle; ``part`` is the class that selects a part of the cluster."""

    cluster: str
    group: int | None = None
    bundle: int | None = None
    part: str | None = None

    @property
    def account(self) -> str:
        """Return the id that the share is counted for: of the cluster, or of its placement group's share."""
        return self.cluster if self.group is None else f"{self.cluster}{OF_GROUP}{self.group}"

    @property
    def is_part(self) -> bool:
        """Return whether the share stands beside that of its cluster, as a part of it, and is in no sum."""
        return self.part is not None

    def token(self, resource: str) -> str:
        return share_token(str(self), resource)

    def __str__(self) -> str:
        if self.part is not None:
            return f"{self.cluster}{OF_CLUSTER}{self.part}"
        return self.account if self.bundle is None else f"{self.account}{OF_GROUP}{self.bundle}"


class Share(NamedTuple):
    """What a share token says: whose it is, and of which resource."""

    owner: ShareOwner
    resource: str


@lru_cache(maxsize=65_536)
def share_in(token: str) -> Share | None:
    """Return what a share token says; None for any other resource name."""
    found = share_of_token(token)
    return None if found is None else Share(owner_of(found[0]), found[1])


@lru_cache(maxsize=65_536)
def owner_of(text: str) -> ShareOwner:
    """Return the owner that is spelled so in a token or as the id of a cluster."""
    cluster, dot, part = text.partition(OF_CLUSTER)
    if dot:
        return ShareOwner(cluster, part=part)
    cluster, *rest = text.split(OF_GROUP)
    numbers: list[int | None] = [*(int(each) for each in rest), None, None]
    return ShareOwner(cluster, numbers[0], numbers[1])
