"""Remora: labels, affinity, taints and virtual clusters for stock Ray.

The names below are the public interface; everything else may change. Importing this module is cheap and needs no Ray.
"""

from remora.errors import (
    InvalidInputError,
    InvalidLabelError,
    InvalidResourceError,
    InvalidScenarioError,
    InvalidSelectorError,
    InvalidStrategyError,
    InvalidTaintError,
    InvalidVirtualClusterError,
    InvariantError,
    RemoraError,
    UnknownNameError,
)
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
from remora.model.strategies import (
    ActorAffinity,
    ActorAffinitySchedulingStrategy,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    TaskAffinitySchedulingStrategy,
    actor_affinity,
    affinity,
    anti_affinity,
    node_affinity,
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

__version__ = "0.1.0"

__all__ = [
    "PACK",
    "SPREAD",
    "STRICT_SPREAD",
    "ActorAffinity",
    "ActorAffinitySchedulingStrategy",
    "DoesNotExist",
    "Exist",
    "Exists",
    "FixedSizeNode",
    "FixedSizeNodes",
    "In",
    "InvalidInputError",
    "InvalidLabelError",
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
    "RemoraError",
    "SchedulingPolicy",
    "TaskAffinitySchedulingStrategy",
    "Tolerations",
    "UnknownNameError",
    "VirtualCluster",
    "__version__",
    "actor_affinity",
    "affinity",
    "anti_affinity",
    "label_does_not_exist",
    "label_exist",
    "label_exists",
    "label_in",
    "label_not_in",
    "node_affinity",
    "task_affinity",
    "validate_label_key",
    "validate_label_value",
]
