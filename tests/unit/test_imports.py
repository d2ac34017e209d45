"""Modules that are watched, and serializers that are put off."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray.util import serialization_addons

from remora.ray_seam import addons
from remora.ray_seam.imports import WhenImported


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One that is installed and not imported."""
    (tmp_path / "remora_library.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "remora_library", raising=False)
    return "remora_library"


def test_the_word_comes_once_when_everything_is_there(library: str) -> None:
    seen: list[int] = []
    before = list(sys.meta_path)
    WhenImported(library, lambda module: seen.append(module.value))
    importlib.import_module("colorsys")
    assert seen == []
    importlib.import_module(library)
    assert seen == [1]
    assert sys.meta_path == before
    del sys.modules[library]


def test_whoever_only_asks_whether_it_is_there_does_not_end_the_watch(library: str) -> None:
    seen: list[int] = []
    WhenImported(library, lambda module: seen.append(module.value))
    for _ in range(2):
        assert importlib.util.find_spec(library) is not None
    assert seen == []
    importlib.import_module(library)
    assert seen == [1]
    del sys.modules[library]


def test_a_watch_that_was_stopped_says_nothing(library: str) -> None:
    seen: list[Any] = []
    watch = WhenImported(library, seen.append)
    watch.stop()
    watch.stop()
    importlib.import_module(library)
    assert seen == []
    del sys.modules[library]


def test_a_module_that_somebody_else_finds_is_watched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of packages that are installed editable."""
    file = tmp_path / "elsewhere.py"
    file.write_text("value = 2\n", encoding="utf-8")

    class Finder:
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            loader = importlib.machinery.SourceFileLoader(name, str(file))
            return importlib.machinery.ModuleSpec(name, loader) if name == "remora_elsewhere" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    seen: list[int] = []
    WhenImported("remora_elsewhere", lambda module: seen.append(module.value))
    importlib.import_module("remora_elsewhere")
    assert seen == [2]
    del sys.modules["remora_elsewhere"]


def test_serializers_are_registered_with_the_first_import_for_every_context(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addons, "LIBRARIES", (library, "remora_no_such_library"))
    registered: list[str] = []
    before = list(sys.meta_path)
    mine = addons.Addons(registered.append)
    mine.apply("one")
    mine.apply("two")
    assert registered == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("remora_no_such_library")
    importlib.import_module(library)
    assert sorted(registered) == ["one", "two"]
    assert sys.meta_path == before
    mine.apply("three")
    assert registered[-1] == "three"
    del sys.modules[library]


def test_a_ray_that_registers_others_is_left_alone() -> None:
    assert addons.is_known(serialization_addons.apply)

    def apply(context: Any) -> None:
        register_more(context)  # type: ignore[name-defined]  # noqa: F821

    assert not addons.is_known(apply)
    assert not addons.is_known(print)


RAYS_OWN = """
import sys
from ray.util import serialization_addons
from remora.ray_seam.addons import Addons

registered = []
mine = Addons(lambda context: (serialization_stock(context), registered.append(context)))
serialization_stock = serialization_addons.apply


class Context:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


mine.apply(Context())
assert "pydantic" not in sys.modules
from ray._common.pydantic_compat import IS_PYDANTIC_2
import pydantic
print(IS_PYDANTIC_2, len(registered), len([each for each in sys.meta_path if type(each).__name__ == "WhenImported"]))
"""


def test_rays_own_module_that_imports_pydantic_finds_it() -> None:
    """The serializers are registered by that module itself, and it is not whole while it imports pydantic."""
    pytest.importorskip("pydantic")
    found = subprocess.run([sys.executable, "-c", RAYS_OWN], capture_output=True, text=True, check=False)
    assert found.stdout == "True 1 0\n", found.stderr
