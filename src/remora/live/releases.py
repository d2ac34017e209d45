"""Which releases of Ray Remora works with: the one place that knows versions. ``names`` marks what the older ones lack."""

from __future__ import annotations

import logging
import re

import ray

from remora.errors import IncompatibleRayError

OLDEST, NEWEST = (2, 55), (2, 60)
"""The oldest has the call that resizes resources of a live node; up to the newest all were tried (``make compat``)."""

Release = tuple[int, int]

_log = logging.getLogger("remora")
_warned: set[str] = set()


def release(version: str) -> Release:
    """Return major and minor number; of what has none, such as a build of one's own, that of the newest of all."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (999, 0)


def is_before(since: Release) -> bool:
    """Whether the Ray that is installed here is older."""
    return release(ray.__version__) < since


def hides_accelerators() -> bool:
    """Whether Ray hides all accelerators of a node from work that has asked for none, without being told to."""
    return is_before((2, 56))


def spelled(some: Release) -> str:
    return f"{some[0]}.{some[1]}"


def refuse_older() -> None:
    """Raise IncompatibleRayError where Ray is too old; otherwise it would be told by the name that is missed first."""
    if is_before(OLDEST):
        raise incompatible("it is older than those that Remora was made for")


def warn_of_newer() -> None:
    """Say once that nobody has tried this release; whoever calls this has seen that it has all names."""
    if release(ray.__version__) > NEWEST and ray.__version__ not in _warned:
        _warned.add(ray.__version__)
        _log.warning(
            "Ray %s is newer than %s, the newest that this release of Remora was tested with. Everything it needs is there",
            ray.__version__,
            spelled(NEWEST),
        )


def incompatible(what: str) -> IncompatibleRayError:
    """Return the error that says what of this Ray does not fit, and which releases do."""
    return IncompatibleRayError(
        f"Ray {ray.__version__} does not fit this release of Remora: {what}. "
        f"Remora works with Ray {spelled(OLDEST)}.0 and newer and was tested up to {spelled(NEWEST)}; "
        f"for example pip install 'ray=={spelled(NEWEST)}.*'"
    )
