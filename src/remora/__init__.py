"""Remora: labels, affinity, taints and virtual clusters for stock Ray.

The names below are the public interface; everything else may change. Importing this module is cheap and needs no Ray.
"""

import importlib
from typing import TYPE_CHECKING, Any

from remora.live import ray_init

if TYPE_CHECKING:
    from remora.errors import (
        ConflictError,
        ControllerAwayError,
        ControllerError,
        IncompatibleRayError,
        InvalidInputError,
        InvalidLabelError,
        InvalidNodeTypeError,
        InvalidResourceError,
        InvalidScenarioError,
        InvalidSelectorError,
        InvalidStrategyError,
        InvalidTaintError,
        InvalidVirtualClusterError,
        InvariantError,
        RemoraError,
        UnknownNameError,
        UnreadableEntryError,
        VirtualClusterTimeoutError,
    )
    from remora.live.api import (
        Why,
        attach,
        detach,
        end_cluster,
        events,
        explain,
        init,
        label_node,
        preview_node,
        put,
        resize_cluster,
        set_priority,
        shutdown_controller,
        status,
        taint_node,
        untaint_node,
        virtual_clusters,
    )
    from remora.live.front import current_cluster, current_node, placement_group
    from remora.live.inspect.infos import VirtualClusterInfo, VirtualNodeInfo
    from remora.model.labels import validate_label_key, validate_label_value
    from remora.model.operators import DoesNotExist, Exist, Exists, In, LabelMatchOperator, NotIn
    from remora.model.selectors import (
        LabelMatchExpression,
        LabelSelector,
        label_does_not_exist,
        label_exist,
        label_exists,
        label_in,
        label_not_in,
    )
    from remora.model.spreading import SpreadSchedulingStrategy, spread
    from remora.model.strategies import (
        ActorAffinity,
        ActorAffinitySchedulingStrategy,
        NodeAffinitySchedulingStrategy,
        NodeLabelSchedulingStrategy,
        ObjectAffinitySchedulingStrategy,
        TaskAffinitySchedulingStrategy,
        actor_affinity,
        affinity,
        anti_affinity,
        node_affinity,
        object_affinity,
        task_affinity,
    )
    from remora.model.taints import Tolerations
    from remora.model.virtual_clusters import (
        PACK,
        SPREAD,
        STRICT_SPREAD,
        FixedSizeNode,
        FixedSizeNodes,
        SchedulingPolicy,
        VirtualCluster,
    )
    from remora.wire.answers import Event, Status, VirtualClusterStatus
    from remora.wire.typed_options import Options, options

__version__ = "0.1.0"

_HOMES = {
    "remora.errors": (
        "ConflictError",
        "ControllerAwayError",
        "ControllerError",
        "IncompatibleRayError",
        "InvalidInputError",
        "InvalidLabelError",
        "InvalidNodeTypeError",
        "InvalidResourceError",
        "InvalidScenarioError",
        "InvalidSelectorError",
        "InvalidStrategyError",
        "InvalidTaintError",
        "InvalidVirtualClusterError",
        "InvariantError",
        "RemoraError",
        "UnknownNameError",
        "UnreadableEntryError",
        "VirtualClusterTimeoutError",
    ),
    "remora.model.labels": (
        "validate_label_key",
        "validate_label_value",
    ),
    "remora.model.operators": (
        "DoesNotExist",
        "Exist",
        "Exists",
        "In",
        "LabelMatchOperator",
        "NotIn",
    ),
    "remora.model.selectors": (
        "LabelMatchExpression",
        "LabelSelector",
        "label_does_not_exist",
        "label_exist",
        "label_exists",
        "label_in",
        "label_not_in",
    ),
    "remora.model.spreading": ("SpreadSchedulingStrategy", "spread"),
    "remora.model.strategies": (
        "ActorAffinity",
        "ActorAffinitySchedulingStrategy",
        "NodeAffinitySchedulingStrategy",
        "NodeLabelSchedulingStrategy",
        "ObjectAffinitySchedulingStrategy",
        "TaskAffinitySchedulingStrategy",
        "actor_affinity",
        "affinity",
        "anti_affinity",
        "node_affinity",
        "object_affinity",
        "task_affinity",
    ),
    "remora.model.taints": ("Tolerations",),
    "remora.model.virtual_clusters": (
        "PACK",
        "SPREAD",
        "STRICT_SPREAD",
        "FixedSizeNode",
        "FixedSizeNodes",
        "SchedulingPolicy",
        "VirtualCluster",
    ),
    "remora.live.inspect.infos": ("VirtualClusterInfo", "VirtualNodeInfo"),
    "remora.live.api": (
        "Why",
        "attach",
        "detach",
        "end_cluster",
        "events",
        "explain",
        "init",
        "label_node",
        "preview_node",
        "put",
        "resize_cluster",
        "set_priority",
        "shutdown_controller",
        "status",
        "taint_node",
        "untaint_node",
        "virtual_clusters",
    ),
    "remora.live.front": ("current_cluster", "current_node", "placement_group"),
    "remora.wire.answers": ("Event", "Status", "VirtualClusterStatus"),
    "remora.wire.typed_options": ("Options", "options"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def _init(*args: Any, **kwargs: Any) -> Any:
    return importlib.import_module("remora.live.api").init(*args, **kwargs)


ray_init.watch(_init)


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used: every worker imports this module, and most use none of them."""
    if name not in _HOME:
        raise AttributeError(f"module 'remora' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "PACK",
    "SPREAD",
    "STRICT_SPREAD",
    "ActorAffinity",
    "ActorAffinitySchedulingStrategy",
    "ConflictError",
    "ControllerAwayError",
    "ControllerError",
    "DoesNotExist",
    "Event",
    "Exist",
    "Exists",
    "FixedSizeNode",
    "FixedSizeNodes",
    "In",
    "IncompatibleRayError",
    "InvalidInputError",
    "InvalidLabelError",
    "InvalidNodeTypeError",
    "InvalidResourceError",
    "InvalidScenarioError",
    "InvalidSelectorError",
    "InvalidStrategyError",
    "InvalidTaintError",
    "InvalidVirtualClusterError",
    "InvariantError",
    "LabelMatchExpression",
    "LabelMatchOperator",
    "LabelSelector",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "ObjectAffinitySchedulingStrategy",
    "Options",
    "RemoraError",
    "SchedulingPolicy",
    "SpreadSchedulingStrategy",
    "Status",
    "TaskAffinitySchedulingStrategy",
    "Tolerations",
    "UnknownNameError",
    "UnreadableEntryError",
    "VirtualCluster",
    "VirtualClusterInfo",
    "VirtualClusterStatus",
    "VirtualClusterTimeoutError",
    "VirtualNodeInfo",
    "Why",
    "__version__",
    "actor_affinity",
    "affinity",
    "anti_affinity",
    "attach",
    "current_cluster",
    "current_node",
    "detach",
    "end_cluster",
    "events",
    "explain",
    "init",
    "label_does_not_exist",
    "label_exist",
    "label_exists",
    "label_in",
    "label_node",
    "label_not_in",
    "node_affinity",
    "object_affinity",
    "options",
    "placement_group",
    "preview_node",
    "put",
    "resize_cluster",
    "set_priority",
    "shutdown_controller",
    "spread",
    "status",
    "taint_node",
    "task_affinity",
    "untaint_node",
    "validate_label_key",
    "validate_label_value",
    "virtual_clusters",
]
