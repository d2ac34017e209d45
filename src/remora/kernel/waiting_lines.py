"""What waits, in lines: equal requests behind each other in the order in which they came, and every placement group by itself.

Requests that are equal get the same answer, so only the first of a line has to be decided.
"""

from __future__ import annotations

from collections import deque

from remora.kernel.state.workloads import Group, Workload
from remora.model.requests import Request

Line = deque[Workload]
Entry = Request | Group


class WaitingLines(dict[Entry, Line]):
    """By request, those that wait with it; by group, an empty line. No line of a request is empty."""

    def join(self, item: Workload | Group) -> None:
        """Let something wait, ahead of those in its line that came later."""
        if isinstance(item, Group):
            self[item] = deque()
            return
        line = self.setdefault(item.request, deque())
        line.append(item)
        if len(line) > 1 and line[-2].order > item.order:
            self[item.request] = deque(sorted(line, key=lambda waiting: waiting.order))

    def withdraw(self, workload: Workload) -> None:
        """Take a workload out of its line, if it stands in one."""
        line = self.get(workload.request)
        if line is not None and workload in line:
            line.remove(workload)
            if not line:
                del self[workload.request]

    def oldest_first(self) -> list[tuple[int, int, Entry]]:
        """Return the entries in the order in which they, or the first of their line, came: that, a tie-breaker, the entry."""
        came = [(entry.order if isinstance(entry, Group) else line[0].order, entry) for entry, line in self.items()]
        came.sort(key=lambda pair: pair[0])
        return [(order, index, entry) for index, (order, entry) in enumerate(came)]

    def end_cluster(self, cluster_id: str) -> list[Workload | Group]:
        """Withdraw everything that waits in a virtual cluster; return it."""
        ended: list[Workload | Group] = []
        for entry in list(self):
            if (entry.request.cluster if isinstance(entry, Group) else entry.cluster) == cluster_id:
                line = self.pop(entry)
                ended.extend([entry] if isinstance(entry, Group) else line)
        return ended

    def any_follows(self) -> bool:
        """Return whether anything waits that a newcomer elsewhere can make placeable."""
        return any(isinstance(entry, Request) and entry.follows for entry in self)
