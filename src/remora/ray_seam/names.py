"""Every private name of Ray that Remora touches, and the probe that finds a missing one before anything is touched.

A Ray release that renames one of these makes ``attach`` fail at once, with the name; tests/live/test_facts.py pins what
each does.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
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
    Name("ray.remote_function", "RemoteFunction._function_signature", "how its arguments are flattened"),
    Name("ray.remote_function", "RemoteFunction._decorator", "whether somebody else takes part in submitting it"),
    Name("ray.remote_function", "RemoteFunction._is_cross_language", "whether its arguments are flattened so"),
    Name("ray.remote_function", "_task_launch_hook", "whether somebody is told of every task"),
    Name("ray.util.tracing.tracing_helper", "_is_tracing_enabled", "whether every task carries where it came from"),
    Name("ray._common.signature", "flatten_args", "arguments of a task", ("signature_parameters", "args", "kwargs")),
    Name("ray._private.worker", "Worker.connected", "whether a task can be submitted as the last one was"),
    Name("ray._private.worker", "global_worker.debugger_breakpoint", "the same"),
    Name("ray._raylet", "CoreWorker.should_capture_child_tasks_in_placement_group", "the same"),
    Name("ray.remote_function", "pickle_dumps", "where a function is pickled for export"),
    Name("ray.remote_function", "ray", "the name through which it finds the core worker"),
    Name("ray.actor", "ActorClass._remote", "where an actor is created", ("args", "kwargs", "actor_options")),
    Name("ray.actor", "ray", "the name through which it finds the core worker"),
    Name("ray.remote_function", "RemoteFunction._last_export_cluster_and_job", "forgotten, so that it is exported anew"),
    Name("ray.remote_function", "RemoteFunction._uuid", "changed, so that workers load it anew"),
    Name("ray.actor", "ActorClass.__ray_metadata__.last_export_cluster_and_job", "the same for classes"),
    Name("ray.actor", "ActorClass.__ray_metadata__.modified_class", "the class that is exported: it carries the layer"),
    Name("ray.actor", "ActorClass.__ray_metadata__.is_cross_language", "whether it is a class in Python"),
    Name("ray.actor", "ActorHandle._actor_id", "whom an affinity names"),
    Name("ray.util.placement_group", "placement_group", "takes the new options"),
    Name("ray._raylet", "CoreWorker.submit_task", "the last step of a task", (*_SCHEDULED, "args", "max_retries")),
    Name(
        "ray._raylet",
        "CoreWorker.create_actor",
        "the last step of an actor",
        (*_SCHEDULED, "placement_resources", "labels", "name"),
    ),
    Name("ray._raylet", "CoreWorker.create_placement_group", "the last step of a placement group", ("bundles", "strategy")),
    Name("ray._raylet", "CoreWorker.remove_placement_group", "takes back one that GCS has no room for"),
    Name("ray._raylet", "Config.initialize", "makes a changed RAY_AUTH_MODE known in this process"),
    Name("ray._raylet", "CoreWorker.get_all_reference_counts", "whether anybody refers to an object with labels"),
    Name("ray._raylet", "ObjectRef._on_completed", "when a task with a lease has ended"),
    Name("ray._raylet", "PythonFunctionDescriptor.function_name", "what a task is called"),
    Name("ray._raylet", "PythonFunctionDescriptor.class_name", "what an actor is called"),
    Name("ray._raylet", "GcsClient", "internal KV, node table, resource state, resize"),
    Name("ray._private.worker", "global_worker.actors", "whether the constructor of an actor has run in this worker"),
    Name("ray._private.worker", "global_worker.actor_id", "whether this worker is an actor's"),
    Name("ray._private.worker", "global_worker.core_worker", "the real one, which everything else goes to"),
    Name("ray._private.worker", "global_worker.gcs_client.address", "where the feeds and tables of GCS are"),
    Name("ray._private.worker", "global_worker.gcs_client.get_all_node_info", "which node is the head"),
    Name("ray._private.worker", "global_worker.gcs_client.internal_kv_get", "reads what is remembered"),
    Name("ray._private.worker", "global_worker.gcs_client.internal_kv_put", "remembers it"),
    Name("ray._private.worker", "global_worker.gcs_client.internal_kv_del", "forgets it"),
    Name("ray._private.worker", "global_worker.gcs_client.internal_kv_keys", "lists it"),
    Name("ray._private.worker", "global_worker.gcs_client.get_all_resource_usage", "what is in use on each node"),
    Name("ray._private.worker", "global_worker.gcs_client.resize_raylet_resource_instances", "puts tokens on nodes"),
    Name("ray.autoscaler.v2.sdk", "get_cluster_resource_state", "every node, its labels, and all demand"),
    Name("ray.core.generated.autoscaler_pb2", "NodeStatus", "which nodes are dead"),
    Name("ray._private.utils", "set_visible_accelerator_ids", "looks for accelerators before every task"),
    Name("ray._private.accelerators", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR", "whether it matters that there are none"),
    Name("ray.util.serialization_addons", "apply", "imports libraries for the sake of their serializers"),
    Name("ray.util.placement_group", "validate_placement_group", "the checks of a group that is created later"),
    Name("ray.util.placement_group", "PlacementGroup.bundle_cache", "the bundles of a group that was created later"),
    Name("ray.util.placement_group", "remove_placement_group", "takes back a group that was not created yet"),
    Name("ray._private.auto_init_hook", "auto_init_ray", "ray.init() where the user did not call it"),
    Name("ray._private.node", "Node.is_head", "whether this process started the cluster"),
    Name("ray._private.node", "Node.get_session_dir_path", "where the workers of a node share what they know"),
    Name("ray._private.ray_constants", "RAY_RUNTIME_ENV_HOOK", "how ``remora run`` is heard of in ``ray.init``"),
    Name("ray._private.ray_constants", "RAY_ENABLE_UV_RUN_RUNTIME_ENV", "whether Ray would call its own hook instead"),
    Name("ray._private.runtime_env.uv_runtime_env_hook", "hook", "Ray's own, called from ours"),
    Name("ray._private.runtime_env.uv_runtime_env_hook", "_get_uv_run_cmdline", "when to call it"),
    Name("ray._common.utils", "load_class", "the hook that was set before ours"),
    Name("ray._private.worker", "_post_init_hooks", "what ``ray.init`` calls when it is connected"),
    Name("ray._private.worker", "filter_autoscaler_events", "lines about unfulfillable requests"),
    Name("ray._private.worker", "_global_node", "whether this process started the cluster, and where its session lies"),
    Name("ray._private.state", "state.node_table", "ray.nodes(), narrowed to a virtual cluster"),
    Name("ray._private.state", "state.total_resources_per_node", "the same; and what placement groups are placed by"),
    Name("ray._private.state", "state.available_resources_per_node", "the same"),
    Name("ray._private.state", "state._gen_placement_group_info", "bundles without tokens", ("placement_group_info",)),
    Name("ray._private.state", "state.get_max_resources_from_cluster_config", "what the autoscaler may add"),
    Name("ray.runtime_context", "RuntimeContext.get_assigned_resources", "without tokens"),
    Name("ray.util.scheduling_strategies", "NodeAffinitySchedulingStrategy.__init__", "takes virtual nodes", ("node_id",)),
    Name("ray._private.internal_api", "node_stats", "the objects that the workers of a node know", ("include_memory_info",)),
    Name("ray._private.state", "state._connect_and_get_accessor", "the tables of actors and placement groups"),
    Name("ray._raylet", "GlobalStateAccessor.get_actor_table", "actors by job and by name"),
    Name("ray._raylet", "GlobalStateAccessor.get_actor_info", "one actor"),
    Name("ray._raylet", "GlobalStateAccessor.get_job_table", "whether a job still runs"),
    Name("ray._private.worker", "Worker.get_objects", "where ray.get waits", ("object_refs", "timeout")),
    Name("ray._private.worker", "wait", "where ray.wait waits", ("ray_waitables", "num_returns", "timeout", "fetch_local")),
    Name("ray._raylet", "CoreWorker.resource_ids", "what a worker holds"),
    Name("ray._raylet", "CoreWorker.kill_actor", "stops the actors of a virtual cluster", ("actor_id", "no_restart")),
    Name("ray._raylet", "GlobalStateAccessor.get_worker_info", "whether a worker has ended"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_table", "placement groups"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_info", "one placement group"),
    Name("ray._private.gcs_utils", "create_gcs_channel", "the way to GCS's table of tasks"),
    Name("ray.core.generated.gcs_service_pb2_grpc", "ActorInfoGcsServiceStub", "restarts an actor that follows another"),
    Name("ray.core.generated.gcs_service_pb2_grpc", "TaskInfoGcsServiceStub", "GCS's table of tasks"),
    Name("ray._private.gcs_pubsub", "GcsAioNodeInfoSubscriber", "the feed of nodes"),
    Name("ray._private.gcs_pubsub", "GcsAioActorSubscriber", "the feed of actors"),
    Name("ray._private.gcs_pubsub", "GcsAioJobSubscriber", "the feed of jobs"),
    Name("ray._private.gcs_pubsub", "GcsAioWorkerDeltaSubscriber", "the feed of worker processes that end"),
)
_WHEN_CONNECTED = "global_worker."
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


def probe(touched: Iterable[Name] | None = None) -> None:
    """Raise IncompatibleRayError naming the first touched name that this Ray does not have as expected."""
    for name in TOUCHED if touched is None else touched:
        if name.path.startswith(_WHEN_CONNECTED) and not ray.is_initialized():
            continue
        try:
            found = _find(name)
        except (ImportError, AttributeError):
            raise _incompatible(name, "is missing") from None
        missing = [parameter for parameter in name.parameters if parameter not in inspect.signature(found).parameters]
        if missing:
            raise _incompatible(name, f"takes no {missing[0]!r}")


def _find(name: Name) -> Any:
    # From sys.modules: ray.util.placement_group names a function too, which hides the module.
    importlib.import_module(name.module)
    found: Any = sys.modules[name.module]
    for part in name.path.split("."):
        found = getattr(found, part)
        if part in _MADE:  # what is touched is not the class's own but in what is made of it: so one is made
            found = _MADE[part](found)
    return found


def _nothing() -> None: ...


_MADE: dict[str, Callable[[Any], Any]] = {
    "RemoteFunction": lambda _: ray.remote(_nothing),
    "ActorClass": lambda _: ray.remote(type("Nothing", (), {})),
    "PlacementGroup": lambda kind: kind.empty(),
}


def _incompatible(name: Name, what: str) -> IncompatibleRayError:
    return IncompatibleRayError(
        f"Ray {ray.__version__} does not fit this release of Remora: {name.module}.{name.path} {what} ({name.why}). "
        "Remora works with Ray 2.55.0 and newer and was tested up to 2.60.0"
    )
