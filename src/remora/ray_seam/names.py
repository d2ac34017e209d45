"""Every private name of Ray that Remora touches, and the probe that finds a missing one before anything is touched.

A Ray release that renames one of these makes ``attach`` fail at once, with the name; tests/contract pins what each does.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import ray

from remora.errors import IncompatibleRayError


class Name(NamedTuple):
    module: str
    path: str
    why: str
    parameters: tuple[str, ...] = ()


_ACTOR = ("placement_resources", "labels", "name", "ray_namespace", "function_descriptor")
_SCHEDULED = ("resources", "scheduling_strategy", "label_selector", "fallback_strategy")

TOUCHED = (
    Name("ray._private.worker", "global_worker", "the process's own worker: its GCS client and core worker"),
    Name("ray._common.ray_option_utils", "task_options", "the table of options that .options() and @ray.remote accept"),
    Name("ray._common.ray_option_utils", "actor_options", "the same for actors"),
    Name("ray._common.ray_option_utils", "valid_options", "the names of both"),
    Name("ray._common.ray_option_utils", "Option", "an entry of those tables", ("value_constraint", "default_value")),
    Name("ray.remote_function", "RemoteFunction._remote", "where a task is submitted", ("args", "kwargs", "task_options")),
    Name("ray.remote_function", "pickle_dumps", "where a function is pickled for export"),
    Name("ray.remote_function", "ray", "the name through which it finds the core worker"),
    Name("ray.actor", "ActorClass._remote", "where an actor is created", ("args", "kwargs", "actor_options")),
    Name("ray.actor", "ray", "the name through which it finds the core worker"),
    Name("ray.util.placement_group", "placement_group", "takes the new options"),
    Name("ray._raylet", "CoreWorker.submit_task", "the last step of a task", (*_SCHEDULED, "args", "max_retries")),
    Name(
        "ray._raylet",
        "CoreWorker.create_actor",
        "the last step of an actor",
        (*_SCHEDULED, "placement_resources", "labels", "name"),
    ),
    Name("ray._raylet", "CoreWorker.create_placement_group", "the last step of a placement group", ("bundles",)),
    Name("ray._raylet", "Config.initialize", "makes a changed RAY_AUTH_MODE known in this process"),
    Name("ray._raylet", "CoreWorker.get_all_reference_counts", "whether anybody refers to an object with labels"),
    Name("ray._raylet", "ObjectRef._on_completed", "when a task with a lease has ended"),
    Name("ray._raylet", "GcsClient", "internal KV, node table, resource state, resize"),
    Name("ray.autoscaler.v2.sdk", "get_cluster_resource_state", "every node and all demand in one call"),
    Name("ray.core.generated.autoscaler_pb2", "NodeStatus", "which nodes are dead"),
    Name("ray.util.placement_group", "validate_placement_group", "the checks of a group that is created later"),
    Name("ray.util.placement_group", "remove_placement_group", "takes back a group that was not created yet"),
    Name("ray._private.auto_init_hook", "auto_init_ray", "ray.init() where the user did not call it"),
    Name("ray._private.node", "Node.is_head", "whether this process started the cluster"),
    Name("ray._private.node", "Node.get_session_dir_path", "where the workers of a node share its fence"),
    Name("ray._private.worker", "filter_autoscaler_events", "lines about unfulfillable requests"),
    Name("ray._private.worker", "_global_node", "whether this process started the cluster, and where its session lies"),
    Name("ray._private.state", "state.node_table", "ray.nodes(), narrowed to a virtual cluster"),
    Name("ray._private.state", "state.total_resources_per_node", "the same; and what placement groups are placed by"),
    Name("ray._private.state", "state.available_resources_per_node", "the same"),
    Name("ray._private.state", "state._gen_placement_group_info", "bundles without tokens", ("placement_group_info",)),
    Name("ray._private.state", "state.job_table", "whether a job still runs"),
    Name("ray._private.state", "state.get_max_resources_from_cluster_config", "what the autoscaler may add"),
    Name("ray.runtime_context", "RuntimeContext.get_assigned_resources", "without tokens"),
    Name("ray.util.scheduling_strategies", "NodeAffinitySchedulingStrategy.__init__", "takes virtual nodes", ("node_id",)),
    Name("ray._private.internal_api", "node_stats", "the objects that the workers of a node know", ("include_memory_info",)),
    Name("ray._private.state", "state._connect_and_get_accessor", "the tables of actors and placement groups"),
    Name("ray._raylet", "GlobalStateAccessor.get_actor_table", "actors by job and by name"),
    Name("ray._raylet", "GlobalStateAccessor.get_actor_info", "one actor"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_table", "placement groups"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_info", "one placement group"),
    Name("ray._private.gcs_utils", "create_gcs_channel", "the way to GCS's table of tasks"),
    Name("ray.core.generated.gcs_service_pb2_grpc", "ActorInfoGcsServiceStub", "restarts an actor that follows another"),
    Name("ray.core.generated.gcs_service_pb2_grpc", "TaskInfoGcsServiceStub", "GCS's table of tasks"),
    Name("ray._private.gcs_pubsub", "GcsAioNodeInfoSubscriber", "the feed of nodes"),
    Name("ray._private.gcs_pubsub", "GcsAioActorSubscriber", "the feed of actors"),
    Name("ray._private.gcs_pubsub", "GcsAioJobSubscriber", "the feed of jobs"),
)
STATE_API = (
    Name(
        "ray.util.state.api",
        "StateApiClient._make_http_get_request",
        "every question to the state API",
        ("endpoint", "params", "timeout", "_explain"),
    ),
    Name("ray.util.state.common", "TaskSummaries.to_summary_by_func_name", "a summary of some tasks", ("tasks",)),
    Name("ray.util.state.common", "ActorSummaries.to_summary", "a summary of some actors", ("actors",)),
    Name("ray.util.state.common", "ObjectSummaries.to_summary", "a summary of some objects", ("objects",)),
    Name("ray.util.state.common", "RAY_MAX_LIMIT_FROM_API_SERVER", "the most rows that one may ask for"),
)
"""Touched when somebody imports Ray's state API, which not every installation of Ray can."""

_RESIZE = Name("ray._raylet", "GcsClient.resize_raylet_resource_instances", "puts tokens on nodes")


def probe(touched: Iterable[Name] = TOUCHED) -> None:
    """Raise IncompatibleRayError naming the first touched name that this Ray does not have as expected."""
    for name in touched:
        try:
            # From sys.modules: ray.util.placement_group names a function too, which hides the module.
            importlib.import_module(name.module)
            found: Any = sys.modules[name.module]
            for part in name.path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            raise _incompatible(name, "is missing") from None
        missing = [parameter for parameter in name.parameters if parameter not in inspect.signature(found).parameters]
        if missing:
            raise _incompatible(name, f"takes no {missing[0]!r}")
    client = ray._private.worker.global_worker.gcs_client
    if client is not None and not hasattr(client, "resize_raylet_resource_instances"):
        raise _incompatible(_RESIZE, "is missing")


def _incompatible(name: Name, what: str) -> IncompatibleRayError:
    return IncompatibleRayError(
        f"Ray {ray.__version__} does not fit this release of Remora: {name.module}.{name.path} {what} ({name.why}). "
        "Remora works with Ray 2.55.0 and newer and was tested up to 2.60.0"
    )
