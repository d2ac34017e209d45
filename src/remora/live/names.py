"""Every private name, parameter, message field, method and text of Ray that Remora reads, and the probe that finds a missing
one before anything is touched.

A Ray release that renames one of these makes ``attach`` fail at once, with the name; tests/live/test_facts.py pins what each
does. tests/unit/test_names.py compares the list with the source, both ways: what is read is listed, and what is listed is read.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, NamedTuple

import ray

from remora.errors import IncompatibleRayError
from remora.live import releases


class Name(NamedTuple):
    """An attribute, and for what. ``parameters`` are those that are given by name, or looked up by it."""

    module: str
    path: str
    why: str
    parameters: tuple[str, ...] = ()


class Message(NamedTuple):
    """A message or an enumeration, with the fields and values that are read or set."""

    module: str
    path: str
    fields: tuple[str, ...]


class Text(NamedTuple):
    """What an error is known by: a part of a string in a function of Ray's."""

    module: str
    path: str
    text: str
    why: str


class Newer(NamedTuple):
    """A parameter or a field that releases before ``since`` lack, and do without."""

    module: str
    path: str
    name: str
    since: releases.Release


_WORKER = "ray._private.worker"
_OPTIONS = "ray._common.ray_option_utils"
_FUNCTION = "ray.remote_function"
_GROUPS = "ray.util.placement_group"
_PUBSUB = "ray._private.gcs_pubsub"
_STATE = "ray._private.state"
_AUTH = "ray._private.authentication.authentication_utils"
_UV = "ray._private.runtime_env.uv_runtime_env_hook"

_SCHEDULED = ("resources", "scheduling_strategy", "label_selector", "fallback_strategy", "function_descriptor", "name")
_TASK = (*_SCHEDULED, "args", "num_returns", "max_retries", "language")
_ACTOR = (*_SCHEDULED, "placement_resources", "labels", "ray_namespace")
_GROUP = ("bundles", "strategy", "name", "is_detached", "soft_target_node_id", "bundle_label_selector", "topology_strategy")
_JOB_INFO = ("job_or_submission_id", "skip_submission_job_info_field", "skip_is_running_tasks_field")
_TYPE = ("idle_timeout_s", "labels", "max_worker_nodes", "min_worker_nodes", "resources")

_ATTACHING = (
    Name(_OPTIONS, "task_options", "the table of options that .options() and @ray.remote accept"),
    Name(_OPTIONS, "actor_options", "the same for actors"),
    Name(_OPTIONS, "valid_options", "the names of both"),
    Name(_OPTIONS, "validate_task_options", "where an option that does not exist is refused", ("options",)),
    Name(_OPTIONS, "validate_actor_options", "the same for actors", ("options",)),
    Name(_OPTIONS, "Option", "an entry of those tables", ("value_constraint", "default_value")),
    Name(_FUNCTION, "RemoteFunction._remote", "where a task is submitted", ("args", "kwargs", "task_options")),
    Name(_FUNCTION, "RemoteFunction._function_signature", "how its arguments are flattened"),
    Name(_FUNCTION, "RemoteFunction._decorator", "whether somebody else takes part in submitting it"),
    Name(_FUNCTION, "RemoteFunction._is_cross_language", "whether its arguments are flattened so"),
    Name(_FUNCTION, "RemoteFunction._last_export_cluster_and_job", "forgotten, so that it is exported anew"),
    Name(_FUNCTION, "RemoteFunction._uuid", "changed, so that workers load it anew"),
    Name(_FUNCTION, "_task_launch_hook", "whether somebody is told of every task"),
    Name(_FUNCTION, "pickle_dumps", "where a function is pickled for export"),
    Name(_FUNCTION, "ray", "the name through which it finds the core worker"),
    Name("ray.util.tracing.tracing_helper", "_is_tracing_enabled", "whether every task carries where it came from"),
    Name("ray._common.signature", "flatten_args", "arguments of a task", ("signature_parameters", "args", "kwargs")),
    Name("ray._common.signature", "recover_args", "the same in a worker, the hidden ones among them", ("flattened_args",)),
    Name("ray.actor", "ActorClass._remote", "where an actor is created", ("args", "kwargs", "actor_options")),
    Name("ray.actor", "ray", "the name through which it finds the core worker"),
    Name("ray.actor", "ActorClass.__ray_metadata__.last_export_cluster_and_job", "forgotten, so that it is exported anew"),
    Name("ray._private.function_manager", "pickle_dumps", "where the class of an actor is pickled for export"),
    Name("ray.actor", "_ActorClassMethodMetadata._cache", "the classes of this process's actors, without the controller's"),
    Name("ray.util", "list_named_actors", "the same", ("all_namespaces",)),
    Name("ray.actor", "ActorClass.__ray_metadata__.class_name", "whom an actor is spread among"),
    Name("ray.actor", "ActorClass.__ray_metadata__.is_cross_language", "whether it is a class in Python"),
    Name("ray.actor", "ActorHandle._actor_id", "whom an affinity names"),
    Name(_GROUPS, "placement_group", "takes the new options", ("bundles", "strategy")),
    Name(_GROUPS, "remove_placement_group", "takes back a group that was not created yet", ("placement_group",)),
    Name(_GROUPS, "PlacementGroup.bundle_cache", "the bundles of a group that was created later"),
    Name(_WORKER, "filter_autoscaler_events", "lines about unfulfillable requests"),
    Name(_WORKER, "print_to_stdstream", "what GCS says of tasks that are infeasible", ("data", "ignore_prefix")),
    Name(_WORKER, "_post_init_hooks", "what ``ray.init`` calls when it is connected"),
    Name(_WORKER, "Worker.get_objects", "where ray.get waits", ("object_refs", "timeout")),
    Name(_WORKER, "wait", "where ray.wait waits", ("ray_waitables", "num_returns", "timeout", "fetch_local")),
    Name("ray._private.utils", "set_visible_accelerator_ids", "looks for accelerators before every task"),
    Name("ray._private.accelerators", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR", "whether it matters that there are none"),
    Name("ray.util.serialization_addons", "apply", "imports libraries for the sake of their serializers"),
    Name("ray._private.auto_init_hook", "auto_init_ray", "ray.init() where the user did not call it"),
    Name("ray._private.ray_constants", "RAY_RUNTIME_ENV_HOOK", "how ``remora run`` is heard of in ``ray.init``"),
    Name("ray._private.ray_constants", "RAY_ENABLE_UV_RUN_RUNTIME_ENV", "whether Ray would call its own hook instead"),
    Name(_UV, "hook", "Ray's own, called from ours"),
    Name(_UV, "_get_uv_run_cmdline", "when to call it"),
    Name("ray._common.utils", "load_class", "the hook that was set before ours"),
)
"""What is replaced, and what the replacements look at."""

_PROCESS = (
    Name(_WORKER, "global_worker", "the process's own worker: its GCS client and core worker"),
    Name(_WORKER, "global_worker.connected", "whether it is Ray Client that is connected"),
    Name(_WORKER, "global_worker.mode", "whether it is a driver or runs tasks"),
    Name(_WORKER, "global_worker.worker_id", "by which the controller knows a worker that waits"),
    Name(_WORKER, "global_worker.actors", "whether the constructor of an actor has run in this worker"),
    Name(_WORKER, "global_worker.actor_id", "whether this worker is an actor's"),
    Name(_WORKER, "global_worker.debugger_breakpoint", "whether a task can be submitted as the last one was"),
    Name(_WORKER, "Worker.connected", "the same"),
    Name(_WORKER, "global_worker.core_worker", "the real one, which everything else goes to"),
    Name(_WORKER, "_global_node", "whether this process started the cluster, and where its session lies"),
    Name("ray._private.node", "Node.is_head", "the first of these"),
    Name("ray._private.node", "Node.get_session_dir_path", "where the workers of a node share what they know"),
    Name("ray._raylet", "CoreWorker", "what is submitted passes through it"),
    Name("ray._raylet", "CoreWorker.submit_task", "the last step of a task", _TASK),
    Name("ray._raylet", "CoreWorker.create_actor", "the last step of an actor", _ACTOR),
    Name("ray._raylet", "CoreWorker.create_placement_group", "the last step of a group", _GROUP),
    Name("ray._raylet", "CoreWorker.remove_placement_group", "also of one that waits", ("placement_group_id",)),
    Name("ray._raylet", "CoreWorker.wait_placement_group_ready", "the same", ("placement_group_id", "timeout_seconds")),
    Name("ray._raylet", "CoreWorker.async_wait_placement_group_ready", "the same", ("placement_group_id", "serialized_object")),
    Name(
        "ray._raylet", "CoreWorker.should_capture_child_tasks_in_placement_group", "whether a task goes into a group by itself"
    ),
    Name("ray._raylet", "CoreWorker.get_all_reference_counts", "whether anybody refers to an object with labels"),
    Name("ray._raylet", "CoreWorker.resource_ids", "what a worker holds"),
    Name("ray._raylet", "CoreWorker.kill_actor", "stops the actors of a virtual cluster", ("actor_id", "no_restart")),
    Name("ray._raylet", "ObjectRef._on_completed", "when a task with a lease has ended"),
    Name("ray._raylet", "PythonFunctionDescriptor.function_name", "what a task is called"),
    Name("ray._raylet", "PythonFunctionDescriptor.class_name", "what an actor is called"),
    Name("ray._raylet", "PythonFunctionDescriptor.module_name", "where its class is from"),
    Name("ray._raylet", "BaseID", "what can be explained by its id"),
    Name("ray._raylet", "Config.initialize", "makes a changed RAY_AUTH_MODE known in this process"),
    Name(_AUTH, "is_token_auth_enabled", "whether the dashboard asks for Ray's token"),
    Name(_AUTH, "validate_request_token", "whether somebody has it"),
)
"""A driver's or a worker's own."""

_CLUSTER = (
    Name("ray._raylet", "GcsClient", "internal KV, node table, resize", ("address",)),
    Name(_WORKER, "global_worker.gcs_client.address", "where the feeds and tables of GCS are"),
    Name(_WORKER, "global_worker.gcs_client.get_all_node_info", "the nodes of a local cluster"),
    Name(_WORKER, "global_worker.gcs_client.get_all_job_info", "whether anybody wants a group that waits", _JOB_INFO),
    Name(_WORKER, "global_worker.gcs_client.internal_kv_get", "reads what is remembered"),
    Name(_WORKER, "global_worker.gcs_client.internal_kv_put", "remembers it"),
    Name(_WORKER, "global_worker.gcs_client.internal_kv_del", "forgets it"),
    Name(_WORKER, "global_worker.gcs_client.internal_kv_keys", "lists it"),
    Name(_WORKER, "global_worker.gcs_client.resize_raylet_resource_instances", "puts tokens on nodes"),
    Name(_WORKER, "global_worker.gcs_client.request_cluster_resource_constraint", "asks for machines", ("timeout_s",)),
    Name(_STATE, "GlobalState.node_table", "the nodes with their tokens, whatever this process shows its user"),
    Name(_STATE, "GlobalState.total_resources_per_node", "the same; and what placement groups are placed by"),
    Name(_STATE, "GlobalState.available_resources_per_node", "the same"),
    Name(_STATE, "state.node_table", "ray.nodes(), narrowed to a virtual cluster"),
    Name(_STATE, "state.total_resources_per_node", "the same"),
    Name(_STATE, "state.available_resources_per_node", "the same"),
    Name(_STATE, "state._gen_placement_group_info", "bundles without tokens", ("placement_group_info",)),
    Name(_STATE, "state.get_max_resources_from_cluster_config", "what the autoscaler may add"),
    Name(_STATE, "state._connect_and_get_accessor", "the tables of actors and placement groups"),
    Name("ray.runtime_context", "RuntimeContext.get_assigned_resources", "without tokens"),
    Name("ray.util.scheduling_strategies", "NodeAffinitySchedulingStrategy.__init__", "takes virtual nodes", ("node_id",)),
    Name("ray._private.internal_api", "node_stats", "the objects that the workers of a node know", ("include_memory_info",)),
    Name("ray._raylet", "GlobalStateAccessor.get_actor_table", "actors by job and by state"),
    Name("ray._raylet", "GlobalStateAccessor.get_actor_info", "one actor"),
    Name("ray._raylet", "GlobalStateAccessor.get_job_table", "whether a job still runs"),
    Name("ray._raylet", "GlobalStateAccessor.get_worker_info", "whether a worker has ended"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_table", "placement groups"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_info", "one placement group"),
    Name("ray._raylet", "GlobalStateAccessor.get_placement_group_by_name", "the same"),
    Name("ray._private.gcs_utils", "create_gcs_channel", "the way to GCS's own methods"),
    Name("ray._private.grpc_utils", "init_grpc_channel", "the way to a raylet's", ("address",)),
    Name("ray._common.network_utils", "build_address", "where a raylet is heard", ("host", "port")),
    Name(_PUBSUB, "_AioSubscriber", "reads what GCS publishes, from any channel", ("pubsub_channel_type", "address")),
    Name(_PUBSUB, "_AioSubscriber.subscribe", "begins to listen"),
    Name(_PUBSUB, "_AioSubscriber._poll", "waits for what it tells"),
    Name(_PUBSUB, "_AioSubscriber._queue", "what it told"),
)
"""What GCS knows."""

TOUCHED = (*_ATTACHING, *_PROCESS, *_CLUSTER)

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

JOBS = (Name("ray.dashboard.modules.job.sdk", "logger", "says less than Ray does about every job"),)
"""Touched by ``remora job``, which needs more of Ray than others."""

_CONFIG = "ray.autoscaler.v2.instance_manager.config"

SCALING = (
    Name(_CONFIG, "FileConfigReader", "the types of machines, as Ray's autoscaler reads them from its file"),
    Name(_CONFIG, "FileConfigReader.get_cached_autoscaling_config", "what it read"),
    Name(
        "ray.autoscaler._private.kuberay.autoscaling_config",
        "_derive_autoscaling_config_from_ray_cr",
        "what a RayCluster says of its groups, as KubeRay's autoscaler understands it",
    ),
    Name(_CONFIG, "AutoscalingConfig", "the same in the words of any autoscaler"),
    Name(_CONFIG, "AutoscalingConfig.get_head_node_type", "the type that is not started"),
    Name(_CONFIG, "AutoscalingConfig.get_idle_timeout_s", "when an idle machine is ended"),
    Name(_CONFIG, "AutoscalingConfig.get_node_type_configs", "the types"),
    Name(_CONFIG, "AutoscalingConfig.get_max_num_worker_nodes", "how many machines there may be"),
    Name(
        _CONFIG, "NodeTypeConfig", "one type", ("min_worker_nodes", "max_worker_nodes", "idle_timeout_s", "resources", "labels")
    ),
)
"""Read by the controller of a cluster that has an autoscaler; without one they are not looked for."""

OPTIONAL = (
    Name("ray._common.pydantic_compat", "", "imports pydantic, and registers its serializers when it is whole"),
    Name("ray.util.serialization_addons", "register_pydantic_serializers", "what Ray registers, if it is these three"),
    Name("ray.util.serialization_addons", "register_starlette_serializer", "the same"),
    Name("ray.util.serialization_addons", "_register_custom_datasets_serializers", "the same"),
    Name("ray.autoscaler.sdk", "request_resources", "lets a virtual cluster grow, once somebody imports it"),
)
"""Looked for and done without: where one is missing, workers start a little later, or a library asks in vain."""

_COMMON, _GCS, _SERVICE = (f"ray.core.generated.{name}_pb2" for name in ("common", "gcs", "gcs_service"))
_STATS = "ray.core.generated.node_manager_pb2"
_PUBLISHED = "ray.core.generated.pubsub_pb2"
_SCALER = "ray.core.generated.autoscaler_pb2"

MESSAGES = (
    Message(
        _GCS,
        "ActorTableData",
        (
            *("DEAD", "actor_id", "address", "class_name", "death_cause", "is_detached", "job_id", "labels", "name", "node_id"),
            *("num_restarts", "ray_namespace", "required_resources", "state"),
        ),
    ),
    Message(_COMMON, "ActorDeathCause", ("context",)),
    Message(_COMMON, "Address", ("node_id", "worker_id")),
    Message(_COMMON, "Bundle", ("bundle_id", "node_id", "unit_resources")),
    Message(_COMMON, "Bundle.BundleIdentifier", ("bundle_index", "placement_group_id")),
    Message(_COMMON, "JobConfig", ("metadata",)),
    Message(
        _COMMON,
        "PlacementGroupSpec",
        (
            *("bundles", "creator_actor_dead", "creator_actor_id", "creator_job_dead", "creator_job_id", "is_detached", "name"),
            *("placement_group_id", "soft_target_node_id", "strategy", "topology_strategy"),
        ),
    ),
    Message(_COMMON, "PlacementStrategy", ("STRICT_PACK", "STRICT_SPREAD")),
    Message(_COMMON, "RayErrorInfo", ("error_message", "error_type")),
    Message(_COMMON, "ErrorType", ("TASK_CANCELLED",)),
    Message(_COMMON, "TaskStatus", ("FAILED", "FINISHED", "NIL", "RUNNING", "SUBMITTED_TO_WORKER")),
    Message(_COMMON, "TaskType", ("NORMAL_TASK",)),
    Message(_COMMON, "TaskInfoEntry", ("func_or_class_name", "name", "placement_group_id", "required_resources", "type")),
    Message(
        _GCS,
        "GcsNodeInfo",
        (
            *("ALIVE", "is_head_node", "labels", "node_id", "node_manager_address", "node_manager_port", "node_name"),
            *("node_type_name", "resources_total", "state"),
        ),
    ),
    Message(_GCS, "JobTableData", ("config", "is_dead", "job_id")),
    Message(_GCS, "PlacementGroupLoad", ("placement_group_data",)),
    Message(
        _GCS,
        "PlacementGroupStats",
        ("FAILED_TO_COMMIT_RESOURCES", "INFEASIBLE", "NO_RESOURCES", "REMOVED", "scheduling_state"),
    ),
    Message(
        _GCS,
        "PlacementGroupTableData",
        (
            *("CREATED", "PENDING", "RESCHEDULING", "bundles", "creator_job_id", "name", "placement_group_id", "ray_namespace"),
            *("state", "stats", "strategy"),
        ),
    ),
    Message(_GCS, "ResourceDemand", ("backlog_size", "num_infeasible_requests_queued", "num_ready_requests_queued", "shape")),
    Message(_GCS, "ResourceLoad", ("resource_demands",)),
    Message(_GCS, "ResourceUsageBatchData", ("batch", "placement_group_load", "resource_load_by_shape")),
    Message(_GCS, "ResourcesData", ("is_draining", "node_id", "resources_available", "resources_total")),
    Message(_GCS, "TaskEvents", ("attempt_number", "job_id", "state_updates", "task_id", "task_info")),
    Message(_GCS, "TaskStateUpdate", ("error_info", "node_id", "state_ts_ns", "worker_id")),
    Message(_GCS, "WorkerDeltaData", ("node_id", "worker_id")),
    Message(
        _PUBLISHED,
        "ChannelType",
        ("GCS_ACTOR_CHANNEL", "GCS_JOB_CHANNEL", "GCS_NODE_INFO_CHANNEL", "GCS_WORKER_DELTA_CHANNEL"),
    ),
    Message(_PUBLISHED, "PubMessage", ("actor_message", "inner_message", "job_message", "key_id", "worker_delta_message")),
    Message(_GCS, "WorkerTableData", ("is_alive",)),
    Message(_SERVICE, "CreatePlacementGroupReply", ("status",)),
    Message(_SERVICE, "CreatePlacementGroupRequest", ("placement_group_spec",)),
    Message(_SERVICE, "FilterPredicate", ("EQUAL",)),
    Message(_SERVICE, "GcsStatus", ("code", "message")),
    Message(_SERVICE, "GetAllNodeInfoReply", ("node_info_list",)),
    Message(_SERVICE, "GetAllNodeInfoRequest", ("node_selectors", "state_filter")),
    Message(_SERVICE, "GetAllNodeInfoRequest.NodeSelector", ("node_id",)),
    Message(_SERVICE, "GetAllResourceUsageReply", ("resource_usage_data",)),
    Message(_SERVICE, "GetTaskEventsReply", ("events_by_task",)),
    Message(_SERVICE, "GetTaskEventsRequest", ("filters", "limit")),
    Message(_SERVICE, "GetTaskEventsRequest.Filters", ("exclude_driver", "job_filters", "task_filters", "task_name_filters")),
    Message(_SERVICE, "GetTaskEventsRequest.Filters.JobIdFilter", ("job_id", "predicate")),
    Message(_SERVICE, "GetTaskEventsRequest.Filters.TaskIdFilter", ("predicate", "task_id")),
    Message(_SERVICE, "GetTaskEventsRequest.Filters.TaskNameFilter", ("predicate", "task_name")),
    Message(_SERVICE, "KillActorViaGcsRequest", ("actor_id", "force_kill", "no_restart")),
    Message(_SERVICE, "RemovePlacementGroupRequest", ("placement_group_id",)),
    Message(_COMMON, "CoreWorkerStats", ("object_refs",)),
    Message(_STATS, "GetNodeStatsReply", ("core_workers_stats",)),
    Message(_STATS, "CancelLeasesWithResourceShapesRequest", ("resource_shapes",)),
    Message(_STATS, "CancelLeasesWithResourceShapesRequest.ResourceShape", ("resource_shape",)),
    Message(_COMMON, "ObjectRefInfo", ("object_id", "object_size")),
    Message(_COMMON, "LabelSelector", ("label_constraints",)),
    Message(_COMMON, "LabelSelectorConstraint", ("label_key", "label_values", "operator")),
    Message(_COMMON, "LabelSelectorOperator", ("LABEL_OPERATOR_NOT_IN",)),
    Message(
        _SCALER,
        "AutoscalingState",
        (
            "failed_instance_requests",
            "infeasible_cluster_resource_constraints",
            "pending_instance_requests",
            "pending_instances",
        ),
    ),
    Message(_SCALER, "ClusterResourceConstraint", ("resource_requests",)),
    Message(_SCALER, "ClusterResourceState", ("cluster_resource_constraints", "node_states")),
    Message(_SCALER, "FailedInstanceRequest", ("failed_ts", "ray_node_type_name", "reason")),
    Message(_SCALER, "GetClusterStatusReply", ("autoscaling_state", "cluster_resource_state")),
    Message(_SCALER, "NodeState", ("idle_duration_ms", "instance_id", "node_id")),
    Message(_SCALER, "PendingInstance", ("instance_id", "ray_node_type_name")),
    Message(_SCALER, "PendingInstanceRequest", ("count", "ray_node_type_name")),
    Message(_SCALER, "ResourceRequest", ("label_selectors", "resources_bundle")),
    Message(_SCALER, "ResourceRequestByCount", ("count", "request")),
)
"""All in ``messages.py``, ``node_messages.py`` and ``machine_messages.py``."""

METHODS = (
    "/ray.rpc.ActorInfoGcsService/KillActorViaGcs",
    "/ray.rpc.PlacementGroupInfoGcsService/CreatePlacementGroup",
    "/ray.rpc.PlacementGroupInfoGcsService/RemovePlacementGroup",
    "/ray.rpc.TaskInfoGcsService/GetTaskEvents",
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.NodeResourceInfoGcsService/GetAllResourceUsage",
    "/ray.rpc.autoscaler.AutoscalerStateService/GetClusterStatus",
    "/ray.rpc.NodeManagerService/CancelLeasesWithResourceShapes",
)
"""Of GCS itself, called as such: all in ``gcs_calls.py``; the last one of raylets, in ``raylet_calls.py``."""

TEXTS = (
    Text(_WORKER, "init", "labels must not be provided", "whether ``ray.init`` refused labels because a cluster runs already"),
)

NEWER = (
    Newer("ray._raylet", "CoreWorker.create_placement_group", "topology_strategy", (2, 57)),
    Newer(_COMMON, "PlacementGroupSpec", "topology_strategy", (2, 57)),
)
"""All that the oldest releases lack. Attached, a topology is decided here, and Ray's own function takes none there."""

_WHEN_CONNECTED = "global_worker."


def probe(touched: Iterable[Name] | None = None) -> None:
    """Raise IncompatibleRayError naming the first of the names that this Ray does not have as expected; without any given, of
    all that attaching needs."""
    releases.refuse_older()
    for name in TOUCHED if touched is None else touched:
        if not name.path.startswith(_WHEN_CONNECTED) or ray.is_initialized():
            _probe_name(name)
    if touched is None:
        for message in MESSAGES:
            _probe_message(message)
        for method in METHODS:
            _probe_method(method)
        for text in TEXTS:
            _probe_text(text)


def _probe_name(name: Name) -> None:
    found = _find(name.module, name.path, name.why)
    try:
        parameters = inspect.signature(found).parameters if name.parameters else {}
    except ValueError:  # a compiled class does not say
        return
    wanted = (each for each in name.parameters if not _may_lack(name.module, name.path, each))
    missing = [parameter for parameter in wanted if parameter not in parameters]
    if missing:
        raise _incompatible(f"{name.module}.{name.path}", f"takes no {missing[0]!r}", name.why)


def _probe_message(message: Message) -> None:
    found = _find(message.module, message.path, "what GCS answers")
    known = found.DESCRIPTOR
    fields = {*getattr(known, "fields_by_name", ()), *getattr(known, "oneofs_by_name", ())}
    for field in message.fields:
        if _may_lack(message.module, message.path, field):
            continue
        if field not in fields and not isinstance(getattr(found, field, None), int):
            raise _incompatible(f"{message.module}.{message.path}", f"has no {field!r}", "what GCS answers")


def _may_lack(module: str, path: str, name: str) -> bool:
    """Whether this release of Ray is so old that it may do without a parameter or a field."""
    return any(each[:3] == (module, path, name) and releases.is_before(each.since) for each in NEWER)


def _probe_method(method: str) -> None:
    _, service, name = method.split("/")
    where = _SCALER if ".autoscaler." in service else _STATS if "NodeManager" in service else _SERVICE
    services = _find(where, "DESCRIPTOR.services_by_name", "what GCS can be asked")
    found = services.get(service.rpartition(".")[2])
    if found is None or name not in found.methods_by_name:
        raise _incompatible(method, "is missing", "what GCS can be asked")


def _probe_text(text: Text) -> None:
    function = inspect.unwrap(_find(text.module, text.path, text.why))
    if not any(text.text in constant for constant in _constants(function.__code__)):
        raise _incompatible(f"{text.module}.{text.path}", f"never says {text.text!r}", text.why)


def _constants(code: CodeType) -> Iterable[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _constants(constant)


def _find(module: str, path: str, why: str) -> Any:
    try:
        importlib.import_module(module)
        found: Any = sys.modules[module]  # not as an attribute: ray.util.placement_group names a function too, which hides it
        *inner, last = path.split(".")
        for part in inner:
            found = getattr(found, part)
            if part in _INSTANCES:
                found = _INSTANCES[part](found)
        found = getattr(found, last)
    except (ImportError, AttributeError):
        raise _incompatible(f"{module}.{path}", "is missing", why) from None
    return found


def _nothing() -> None: ...


class _NoChannel:
    """Leads to no GCS."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


_INSTANCES: dict[str, Callable[[Any], Any]] = {
    "RemoteFunction": lambda _: ray.remote(_nothing),
    "ActorClass": lambda _: ray.remote(type("Nothing", (), {})),
    "PlacementGroup": lambda kind: kind.empty(),
    "_AioSubscriber": lambda kind: kind(0, channel=_NoChannel()),
}
"""These attributes exist on instances only, so an instance is probed."""


def _incompatible(what: str, how: str, why: str) -> IncompatibleRayError:
    return releases.incompatible(f"{what} {how} ({why})")
