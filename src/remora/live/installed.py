"""What is installed in this process, for those who need it and are needed by it."""

from __future__ import annotations

from typing import Any, Protocol


class Installed(Protocol):
    @property
    def submitter(self) -> Any:
        """Return the ``Submitter`` of this process."""


_installed: list[Installed] = []  # at most one


def current() -> Installed | None:
    """Return what is installed here; None where this process is not attached."""
    return _installed[0] if _installed else None


def replace(installation: Installed | None) -> None:
    """Say what is installed here from now on."""
    _installed[:] = [] if installation is None else [installation]
