"""``remora.options``: what ``.options(...)`` and ``@ray.remote(...)`` accept, with types, and checked where it is written.

Ray's own stubs take any keyword in ``.options()``, and in ``@ray.remote(...)`` only those of Ray. These know all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from remora.errors import InvalidInputError
from remora.model.close_names import did_you_mean
from remora.model.labels import parse_workload_labels
from remora.wire.rewrite import NEW_OPTIONS, Defaults, is_ours, rewrite

if TYPE_CHECKING:
    from typing_extensions import Unpack

Condition = Any
"""Of a label or a taint: ``"a"``, ``"!a"``, ``"in(a, b)"``, ``"exists()"``, or ``In("a", "b")``, ``Exists()`` and so on."""


class Options(TypedDict, total=False):
    """Every option of a task or an actor: Ray's, and those that Remora adds."""

    tolerations: Mapping[str, Condition] | None
    labels: Mapping[str, str] | None
    node_labels: Mapping[str, Condition] | None
    affinity: Any
    label_selector: Mapping[str, Condition] | None
    fallback_strategy: Sequence[Mapping[str, Any]] | None
    scheduling_strategy: Any

    num_cpus: float | None
    num_gpus: float | None
    memory: float | None
    object_store_memory: int | None
    resources: Mapping[str, float] | None
    accelerator_type: str | None
    name: str | None
    runtime_env: Mapping[str, Any] | None
    enable_task_events: bool
    placement_group: Any
    placement_group_bundle_index: int
    placement_group_capture_child_tasks: bool | None

    max_calls: int
    max_retries: int
    num_returns: int | Literal["streaming", "dynamic"] | None
    retry_exceptions: bool | Sequence[type[BaseException]]

    namespace: str | None
    lifetime: Literal["detached", "non_detached"] | None
    get_if_exists: bool
    max_concurrency: int
    concurrency_groups: Any
    max_restarts: int
    max_task_retries: int
    max_pending_calls: int
    allow_out_of_order_execution: bool | None
    enable_tensor_transport: bool | None


def options(**given: Unpack[Options]) -> dict[str, Any]:
    """Return the options as they were given, for ``.options(**...)`` and ``@ray.remote(**...)``.

    An option that does not exist and a value that cannot be right are refused here; whether all of them fit a task or an
    actor is Ray's to say.

    >>> options(num_cpus=1, tolerations={"gpu_node": "exists()"})
    {'num_cpus': 1, 'tolerations': {'gpu_node': 'exists()'}}
    """
    known = list(Options.__annotations__)
    for name in given:
        if name not in known and not name.startswith("_"):
            raise InvalidInputError(f"there is no option {name!r}{did_you_mean(name, known)}, for example num_cpus=1")
    ours = {name: given.get(name) for name in (*NEW_OPTIONS, "label_selector", "fallback_strategy")}
    strategy = given.get("scheduling_strategy")
    ours["scheduling_strategy"] = strategy if is_ours(strategy) else None
    rewrite({name: value for name, value in ours.items() if value is not None}, Defaults())
    parse_workload_labels(given.get("labels"))
    return dict(given)
