"""What ``remora run`` tells the program that it becomes: a few environment variables, written and read here."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from remora.errors import InvalidVirtualClusterError
from remora.model.virtual_clusters import VirtualCluster
from remora.wire.rewrite import Defaults

OPTIONS = "REMORA_RUN"
RAY_HOOK = "RAY_RUNTIME_ENV_HOOK"
UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""With ``uv run`` Ray calls its own hook instead of ours, unless this is off; then ours calls Ray's."""

HOOK = "remora.live.program.on_init"

PATH = "PYTHONPATH"
START = str(Path(__file__).parents[1] / "start_path")
"""What Python imports from there as it starts lets ``ray.init`` take ``virtual_cluster=``."""


@dataclass(frozen=True)
class RunOptions:
    """``hook``, ``uv`` and ``path`` are what Ray's two variables and Python's held before. ``joined`` is for processes that the
    program starts: the virtual cluster that it has, and its job."""

    virtual_cluster: Mapping[str, Any] | None = None
    priority: int | None = None
    timeout: float | None = None
    tolerations: Mapping[str, Any] | None = None
    label_selector: Any = None
    labels: Mapping[str, str] | None = None
    hook: str | None = None
    uv: str | None = None
    path: str | None = None
    joined: tuple[str, str] | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RunOptions | None:
        """None in a process that nobody ran so."""
        return cls(**json.loads(environ[OPTIONS])) if environ.get(OPTIONS) else None

    def check(self) -> None:
        """Raises before anything is started."""
        self.cluster()
        Defaults.parse(self.label_selector, self.tolerations, self.labels)

    def cluster(self) -> VirtualCluster | None:
        if self.virtual_cluster is None:
            alone = next((name for name in ("priority", "timeout") if getattr(self, name) is not None), None)
            if alone is not None:
                raise InvalidVirtualClusterError(
                    f"--{alone} is about the queue of virtual clusters: give --virtual-cluster too; for example "
                    '\'{"flexible_resource_min": {"CPU": 1}}\''
                )
            return None
        spec = VirtualCluster.parse(self.virtual_cluster)
        return VirtualCluster(**spec.to_dict(), priority=self.priority or 0, timeout=self.timeout)

    def over(self, before: RunOptions | None) -> RunOptions:
        """These, and what they leave open from a ``remora run`` around this one."""
        if before is None:
            return self
        kept = asdict(before)
        if self.virtual_cluster is not None:
            kept.update(virtual_cluster=None, priority=None, timeout=None, joined=None)
        return RunOptions(**(kept | {name: value for name, value in asdict(self).items() if value is not None}))

    def environ(self, before: Mapping[str, str]) -> dict[str, str]:
        """The variables to set, over those that are there."""
        options = self.over(RunOptions.read(before))
        if before.get(RAY_HOOK) != HOOK:
            options = replace(options, hook=before.get(RAY_HOOK), uv=before.get(UV))
        now = before.get(PATH) or ""
        if START not in now.split(os.pathsep):
            options = replace(options, path=before.get(PATH))
            now = f"{START}{os.pathsep}{now}" if now else START
        given = {name: value for name, value in asdict(options).items() if value is not None}
        return {OPTIONS: json.dumps(given), RAY_HOOK: HOOK, UV: "0", PATH: now}

    def outside(self) -> dict[str, str | None]:
        """The same variables as they were before."""
        return {OPTIONS: None, RAY_HOOK: self.hook, UV: self.uv, PATH: self.path}
