"""What is placed, or waits to be: one actor, task or bundle each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from remora.model.groups import Bundle, GroupRequest
from remora.model.labels import Labels
from remora.model.requests import Request

if TYPE_CHECKING:
    from remora.kernel.state.cluster_tree import VCluster, VNode


class Host(NamedTuple):
    """Where resources are taken from: a node of the physical cluster, or in a virtual cluster a fixed-size virtual node
    or (``fixed`` None) the flexible one on that node. ``source`` says where a flexible node that is not there yet has to
    come from, when its labels depend on that."""

    cluster: VCluster | None
    node: int
    fixed: VNode | None
    source: Host | None = None


class Workload:
    """One actor or task. ``node`` is -1 while it waits; ``host`` is None on the physical cluster itself.

    A placement is *assumed* when it is decided: the cluster counts what it takes. It is ``confirmed`` once a report of its node
    shows it: from then on what it takes is in the reports, and nothing is given back here when it ends.
    """

    __slots__ = ("confirmed", "host", "labels", "node", "order", "request", "workload_id")

    def __init__(self, workload_id: str, request: Request, labels: Labels = (), order: int = 0) -> None:
        self.workload_id = workload_id
        self.request = request.of(labels)
        self.labels = labels
        self.order = order
        self.node = -1
        self.host: Host | None = None
        self.confirmed = False

    @property
    def placed(self) -> bool:
        return self.node >= 0

    def __repr__(self) -> str:
        return f"Workload({self.workload_id!r}, node={self.node})"


class Group:
    """One placement group. ``hosts`` has one entry a bundle of the option that is placed; None is a lost bundle."""

    __slots__ = ("ever_fits", "group_id", "hosts", "option", "order", "request")

    def __init__(self, group_id: str, request: GroupRequest, order: int = 0) -> None:
        self.group_id = group_id
        self.request = request
        self.order = order
        self.option = 0
        self.hosts: list[Host | None] = []
        # By option: whether it could ever fit, with what that depends on.
        self.ever_fits: dict[int, tuple[Any, bool]] = {}

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        return self.request.options[self.option]

    @property
    def placed(self) -> bool:
        return bool(self.hosts) and None not in self.hosts

    def __repr__(self) -> str:
        return f"Group({self.group_id!r}, {self.hosts})"
