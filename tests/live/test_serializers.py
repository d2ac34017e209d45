"""Libraries that nobody asked for are not imported for the sake of their serializers; whoever imports them has these too."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from tests.live.conftest import World, run_driver

from remora.live.attach.serializers import LIBRARIES

INSTALLED = {name for name in LIBRARIES if importlib.util.find_spec(name) is not None}
assert {"pyarrow", "pydantic"} <= INSTALLED  # with ray[data]


class Process:
    """An actor, for a worker process of its own."""

    def nothing(self) -> None:
        """The first answer is the first thing that it serializes."""

    def imported(self) -> set[str]:
        return {name for name in LIBRARIES if name in sys.modules}

    def import_it(self, name: str) -> None:
        importlib.import_module(name)

    def serializers(self) -> set[str]:
        return {f"{each.__module__}.{each.__qualname__}" for each in ray.cloudpickle.CloudPickler.dispatch}

    def size_of_a_slice(self) -> int:
        pyarrow: Any = importlib.import_module("pyarrow")
        return len(ray.cloudpickle.dumps(pyarrow.table({"x": range(100_000)}).slice(0, 1)))

    def one_row(self) -> Any:
        pyarrow: Any = importlib.import_module("pyarrow")
        return pyarrow.table({"x": range(1_000)}).slice(7, 1)


@contextlib.contextmanager
def answering() -> Iterator[Any]:
    made = ray.remote(Process).options(num_cpus=0).remote()
    ray.get(made.nothing.remote(), timeout=60)
    yield made
    ray.kill(made)


@pytest.fixture
def process(world: World) -> Iterator[Any]:
    with answering() as made:
        yield made


@pytest.fixture
def rays(stock: World) -> Iterator[Any]:
    with answering() as made:
        yield made


def serializers_of(process: Any) -> set[str]:
    found: set[str] = ray.get(process.serializers.remote(), timeout=60)
    assert "ray.actor.ActorHandle" in found
    return found


def test_stock_ray_imports_them_with_the_first_answer(rays: Any) -> None:
    assert ray.get(rays.imported.remote(), timeout=60) == INSTALLED
    assert "pyarrow.lib.Table" in serializers_of(rays)


def test_a_worker_that_does_not_need_them_does_not_import_them(process: Any) -> None:
    assert ray.get(process.imported.remote(), timeout=60) == set()
    assert not any(name.startswith(LIBRARIES) for name in serializers_of(process))


@pytest.mark.core
@pytest.mark.parametrize("name", sorted(INSTALLED))
def test_whoever_imports_one_has_what_stock_ray_registers(process: Any, name: str) -> None:
    ray.get(process.import_it.remote(name), timeout=60)
    assert ray.get(process.imported.remote(), timeout=60) == INSTALLED
    of_libraries = {each for each in serializers_of(process) if each.startswith(LIBRARIES)}
    assert {"pyarrow.lib.Table", "pyarrow._json.ReadOptions", "pydantic.v1.fields.ModelField"} <= of_libraries


def test_a_slice_of_a_table_travels_without_the_table(process: Any) -> None:
    assert ray.get(process.size_of_a_slice.remote(), timeout=60) < 10_000
    assert ray.get(process.one_row.remote(), timeout=60).to_pydict() == {"x": [7]}


def test_whoever_is_detached_has_them_all(world: World) -> None:
    driver = run_driver(
        world,
        """
        import sys, remora
        from remora.live.attach.serializers import LIBRARIES
        remora.init(address=address, logging_level="ERROR")
        ray.get(ray.put(1))
        before = [name for name in LIBRARIES if name in sys.modules]
        remora.detach()
        print(before, [name for name in LIBRARIES if name in sys.modules])
        """,
    )
    assert driver.communicate(timeout=120)[0] == f"[] {[name for name in LIBRARIES if name in INSTALLED]}\n"
