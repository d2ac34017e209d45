"""What goes through Ray's own code on the way from an option to a token."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from remora.wire.tokens import class_token

if TYPE_CHECKING:
    from remora.wire.classes import ClassSpec
    from remora.wire.rewrite import Rewritten

RETRIES = "__remora_max_retries__"
"""A hidden argument: how often the task may be retried, for the guard that hands it on."""

RETURNS = "__remora_num_returns__"
"""A hidden argument: how many results the task has, where it is not one; below zero it streams."""


class Ticket:
    """Carries the class of a request through Ray's own code, in the place of its label selector.

    ``spec`` is None where the class is known to exist: work that a guard hands on. ``lease`` is there where the kernel
    places the work by itself.
    """

    __slots__ = ("class_id", "lease", "mentioned_at", "spec", "token")

    def __init__(self, class_id: str, spec: ClassSpec | None = None, lease: Rewritten | None = None) -> None:
        self.class_id = class_id
        self.spec = spec
        self.lease = lease
        self.token = class_token(class_id)
        self.mentioned_at = -inf  # when the controller was last told that somebody uses the class


STOCK = Ticket("")
"""For what has to run whatever the rules say: it takes no token. The controller itself."""

FREE = Ticket("")
"""For what takes nothing and was pinned to a node by name, in a virtual cluster that may have nothing there: it takes no token
either, but belongs to the cluster."""
