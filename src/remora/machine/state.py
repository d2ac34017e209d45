"""What ``remora up`` wrote down about the cluster it started, so that others find it and ``remora down`` stops just that."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from remora.errors import InvalidInputError
from remora.machine.processes import Process, Session, boot_id, seen_now

HOME = "REMORA_HOME"
AUTH_MODE = "RAY_AUTH_MODE"


@dataclass(frozen=True)
class StartedNode:
    """A node by its ``ray start --block`` process, which leads a session of its own."""

    name: str
    session: Session
    log: str


@dataclass(frozen=True)
class LocalCluster:
    """A cluster on this machine; the first node is the head. ``auth`` is the value of RAY_AUTH_MODE that it was given;
    ``dashboard`` serves the page, and is named after its address."""

    address: str
    folder: str
    boot: str
    auth: str = ""
    nodes: tuple[StartedNode, ...] = ()
    dashboard: StartedNode | None = None

    def sessions(self) -> list[Session]:
        """The sessions to look at: none when the machine was started anew since."""
        started = (*self.nodes, *([self.dashboard] if self.dashboard is not None else ()))
        return [each.session for each in started] if self.boot == boot_id() else []

    def is_alive(self) -> bool:
        """Whether anything of its nodes runs; the page alone is no cluster."""
        return any(session.living() for session in self.sessions()[: len(self.nodes)])

    def has_head(self) -> bool:
        return any(session.leader.is_alive() for session in self.sessions()[:1])

    def with_node(self, node: StartedNode) -> LocalCluster:
        return replace(self, nodes=(*self.nodes, node))

    def with_dashboard(self, dashboard: StartedNode) -> LocalCluster:
        return replace(self, dashboard=dashboard)

    def with_members(self) -> LocalCluster:
        """With everything that runs in the sessions now, so that they are known again when a leader is gone."""
        seen = seen_now(node.session for node in self.nodes)
        return replace(self, nodes=tuple(replace(node, session=now) for node, now in zip(self.nodes, seen, strict=True)))


def home(environ: Mapping[str, str]) -> Path:
    """Where the state is kept: ``REMORA_HOME``, or by the user's XDG convention."""
    if environ.get(HOME):
        return Path(environ[HOME]).expanduser().absolute()
    base = Path(environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return base / "remora"


def load(folder: Path) -> LocalCluster | None:
    path = _file(folder)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        nodes = tuple(_started(node) for node in value["nodes"])
        dashboard = _started(value["dashboard"]) if value.get("dashboard") is not None else None
        return LocalCluster(value["address"], value["folder"], value["boot"], value["auth"], nodes, dashboard)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{path} does not hold what 'remora up' wrote ({error!r}); if no such cluster runs, delete the file"
        ) from None


def save(folder: Path, cluster: LocalCluster) -> None:
    """At once or not at all: a reader never sees half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = _file(folder).with_suffix(".draft")
    draft.write_text(json.dumps(asdict(cluster), indent=2), encoding="utf-8")
    draft.replace(_file(folder))


def forget(folder: Path) -> None:
    _file(folder).unlink(missing_ok=True)


def running(environ: Mapping[str, str]) -> LocalCluster | None:
    """The cluster of ``remora up``, while its head runs."""
    cluster = load(home(environ))
    return cluster if cluster is not None and cluster.has_head() else None


def running_address(environ: Mapping[str, str]) -> str | None:
    cluster = running(environ)
    return None if cluster is None else cluster.address


def auth_at(address: str | None, environ: Mapping[str, str]) -> str:
    """How the nodes of the local cluster were told to authenticate; empty for any other cluster."""
    try:
        cluster = running(environ)
    except InvalidInputError:
        return ""
    return cluster.auth if cluster is not None and cluster.address == address else ""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One ``up`` or ``down`` at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"the state of the local cluster cannot be kept in {folder} ({error}); for example set {HOME}=/tmp/my-remora"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInputError("another 'remora up' or 'remora down' is at work; wait until it is done") from None
        yield


def _file(folder: Path) -> Path:
    return folder / "up.json"


def _started(value: Mapping[str, Any]) -> StartedNode:
    session = value["session"]
    return StartedNode(
        value["name"],
        Session(Process(**session["leader"]), tuple(Process(**each) for each in session["members"])),
        value["log"],
    )
