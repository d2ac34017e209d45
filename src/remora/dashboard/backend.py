"""Whom the dashboard asks: the controller, over whatever leads there."""

from __future__ import annotations

from typing import Any, Protocol

from remora.wire.calls import Call


class Backend(Protocol):
    """May be called from several threads at once. Raises ``RemoraError``, and ``ControllerAwayError`` after a while without an
    answer."""

    def ask(self, call: Call) -> Any:
        """Return the controller's answer to a call."""
        ...

    def explain(self, id_or_name: str) -> list[dict[str, Any]]:
        """Return everything that has this id or name, and why it waits or where it is."""
        ...

    def start(self) -> None:
        """Start the controller if there is none."""
        ...


class LiveBackend:
    """The controller of the cluster that this process is connected to."""

    def ask(self, call: Call) -> Any:
        from remora.live import api

        return api.ask(call)

    def explain(self, id_or_name: str) -> list[dict[str, Any]]:
        from remora.live import api

        return api.explain_all(id_or_name)

    def start(self) -> None:
        from remora.live import api

        api.find_controller()
