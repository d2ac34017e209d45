"""The public face: exactly these names, documented, cheap to import; and the error tree as it is drawn."""

import subprocess
import sys

import pytest

import remora
from remora import errors

WANT = [
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
    "VirtualClusterStatus",
    "VirtualClusterTimeoutError",
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
    "object_affinity",
    "options",
    "spread",
    "task_affinity",
    "validate_label_key",
    "validate_label_value",
]


# These import Ray when they are first used; tests/live uses them.
LIVE = [
    "VirtualClusterInfo",
    "VirtualNodeInfo",
    "Why",
    "attach",
    "current_cluster",
    "current_node",
    "detach",
    "end_cluster",
    "events",
    "explain",
    "init",
    "label_node",
    "preview_node",
    "placement_group",
    "put",
    "resize_cluster",
    "set_priority",
    "shutdown_controller",
    "status",
    "taint_node",
    "untaint_node",
    "virtual_clusters",
]


def test_the_public_names_are_exactly_these():
    assert sorted(remora.__all__) == sorted(WANT + LIVE)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'remora' has no attribute 'inti'"):
        remora.inti  # noqa: B018


@pytest.mark.parametrize("name", WANT)
def test_a_public_name_is_there(name):
    assert getattr(remora, name) is not None


@pytest.mark.parametrize("name", [name for name in WANT if name != "__version__"])
def test_a_public_name_is_documented(name):
    documented = getattr(remora, name)
    own = vars(documented).get("__doc__") if isinstance(documented, type) else documented.__doc__
    assert own, f"{name} has no docstring"
    assert not own.startswith(f"{name}("), f"{name} has only the docstring that dataclass makes"


@pytest.mark.parametrize("name", sorted(name for name, value in vars(errors).items() if isinstance(value, type)))
def test_every_error_is_public(name):
    assert name in remora.__all__


@pytest.mark.parametrize("module", ["remora", "remora.sim", "remora.testing.builders"])
def test_importing_it_imports_neither_ray_nor_numpy_nor_matplotlib(module):
    code = f"import sys, {module}; print(sorted({{'ray', 'numpy', 'matplotlib', 'pandas', 'grpc'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The tree that errors.py draws, line by line: (name, its parent, the builtin beside it).


def drawn_tree():
    stack: list[str] = []
    tree: dict[str, set[str]] = {}
    for line in (errors.__doc__ or "").splitlines():
        text = line.lstrip("│├└─ ")
        if not text.split(" ")[0].endswith("Error"):
            continue
        name = text.split(" ")[0]
        if name not in vars(errors):
            continue
        depth = (len(line) - len(text) - 4) // 4
        also = text.partition("(also ")[2].partition(")")[0].removeprefix("a ")
        del stack[depth:]
        tree[name] = ({stack[-1]} if stack else {"Exception"}) | ({also} if also else set())
        stack.append(name)
    return tree


def test_the_drawn_tree_of_errors_is_the_real_one():
    real = {
        name: {base.__name__ for base in value.__bases__}
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    assert drawn_tree() == real


@pytest.mark.parametrize("name", [name for name in WANT if name.startswith("Invalid")] + ["UnknownNameError"])
def test_bad_input_is_a_value_error(name):
    assert issubclass(getattr(remora, name), ValueError)
    assert issubclass(getattr(remora, name), remora.RemoraError)
