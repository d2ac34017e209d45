"""Where the node types of a cluster are declared: a file that was given, the file that Ray's autoscaler reads, or KubeRay.

Whoever asks is a process on the head node, where Ray's monitor runs and where KubeRay's credentials are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from remora.errors import ControllerError
from remora.machine import kubernetes
from remora.model.node_types import NodeTypes, parse_node_types
from remora.sim.node_types_file import FILE_VARIABLE, load_node_types

if TYPE_CHECKING:
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig, NodeTypeConfig

_MONITOR = "monitor.py"
_VERSION = "RAY_enable_autoscaler_v2"
"""KubeRay says in the environment of the head which autoscaler it has started, where the resource names a version."""
_CONFIG = "--autoscaling-config="


class Source(Protocol):
    """``name`` says where the types come from, for people."""

    @property
    def name(self) -> str: ...

    def read(self) -> NodeTypes: ...


class GivenFile:
    """A file of node types, or a cluster file of ``ray up``."""

    def __init__(self, path: str) -> None:
        self.name = f"the file {path} ({FILE_VARIABLE})"
        self._path = path

    def read(self) -> NodeTypes:
        return load_node_types(self._path)


class MonitorsFile:
    """The file that Ray's monitor was started with, read as Ray's autoscaler reads it."""

    def __init__(self, path: str) -> None:
        self.name = f"the autoscaler's file {path}"
        self._path = path
        self._read_at = 0.0
        self._types = NodeTypes()

    def read(self) -> NodeTypes:
        changed_at = Path(self._path).stat().st_mtime
        if changed_at != self._read_at:
            from ray.autoscaler.v2.instance_manager.config import FileConfigReader

            self._types = types_in(FileConfigReader(self._path).get_cached_autoscaling_config())
            self._read_at = changed_at
        return self._types


class KubeRay:
    """The custom resource of the cluster, understood as Ray's autoscaler understands it. An error is told at once: the
    controller does not wait for it."""

    def __init__(self, cluster: str, namespace: str, environ: Mapping[str, str]) -> None:
        self.name = f"the RayCluster {namespace}/{cluster}"
        self._cluster = cluster
        self._namespace = namespace
        self._environ = environ

    def read(self) -> NodeTypes:
        from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
        from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

        return types_in(AutoscalingConfig(_derive_autoscaling_config_from_ray_cr(self._resource())))

    def is_autoscaling(self) -> bool:
        """Return whether KubeRay has started an autoscaler beside the head. It may say so in the environment; else the resource
        does, which a head without an autoscaler has no right to read."""
        if _VERSION in self._environ:
            return True
        try:
            return bool(self._resource()["spec"].get("enableInTreeAutoscaling"))
        except ControllerError:
            return False

    def _resource(self) -> dict[str, Any]:
        return kubernetes.ray_cluster(self._cluster, self._namespace, self._environ)


def find_source(gcs_address: str, environ: Mapping[str, str] = os.environ, processes: Path = Path("/proc")) -> Source | None:
    """Return where the node types are declared; None where there is no autoscaler."""
    given = environ.get(FILE_VARIABLE, "")
    if given:
        return GivenFile(given)
    path = monitors_file(gcs_address, _command_lines(processes))
    if path is not None:
        return MonitorsFile(path)
    cluster = environ.get("RAY_CLUSTER_NAME", "")
    if cluster and environ.get("KUBERNETES_SERVICE_HOST"):
        found = KubeRay(cluster, kubernetes.namespace(environ), environ)
        return found if found.is_autoscaling() else None
    return None


def monitors_file(gcs_address: str, command_lines: Iterable[list[str]]) -> str | None:
    """Return the file that the monitor of this cluster was started with."""
    for arguments in command_lines:
        values = {each.rpartition("=")[2] for each in arguments}  # the whole address: another port may begin alike
        if not any(each.endswith(_MONITOR) for each in arguments) or gcs_address not in values:
            continue
        for each in arguments:
            if each.startswith(_CONFIG) and each != _CONFIG:
                return each.removeprefix(_CONFIG)
    return None


def types_in(config: AutoscalingConfig) -> NodeTypes:
    """Return what Ray's own reader made of an autoscaler's settings; types that cannot be understood are ``problems``."""
    head, idle = config.get_head_node_type(), config.get_idle_timeout_s()
    types = {name: _entry(each, idle) for name, each in config.get_node_type_configs().items() if name != head}
    return parse_node_types({"node_types": types, "max_workers": config.get_max_num_worker_nodes()})


def _entry(each: NodeTypeConfig, idle_seconds: float | None) -> dict[str, Any]:
    return {
        "resources": dict(each.resources),
        "labels": dict(each.labels),
        "min_workers": each.min_worker_nodes,
        "max_workers": each.max_worker_nodes,
        "priority": int(getattr(each, "priority", 0) or 0),
        "idle_seconds": idle_seconds if each.idle_timeout_s is None else each.idle_timeout_s,
    }


def _command_lines(processes: Path) -> Iterable[list[str]]:
    for entry in processes.iterdir():
        if entry.name.isdecimal():
            try:
                data = (entry / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if b"monitor.py" in data:
                yield data.decode(errors="replace").split("\0")
