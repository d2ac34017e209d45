"""Modules that are watched, and serializers that are put off."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ray.util import serialization_addons

from remora.live.attach import serializers
from remora.live.on_import import WhenImported


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


def test_a_module_that_is_there_already_is_told_of_at_once(library: str) -> None:
    importlib.import_module(library)
    seen: list[int] = []
    before = list(sys.meta_path)
    WhenImported(library, lambda module: seen.append(module.value))
    assert (seen, sys.meta_path) == ([1], before)
    del sys.modules[library]


def test_two_may_watch_one_module(library: str) -> None:
    seen: list[int] = []
    for _ in range(2):
        WhenImported(library, lambda module: seen.append(module.value))
    importlib.import_module(library)
    assert seen == [1, 1]
    del sys.modules[library]


def test_an_import_that_fails_is_watched_again(tmp_path: Path, library: str) -> None:
    seen: list[int] = []
    file = tmp_path / f"{library}.py"
    file.write_text("raise RuntimeError\n", encoding="utf-8")
    WhenImported(library, lambda module: seen.append(module.value))
    with pytest.raises(RuntimeError):
        importlib.import_module(library)
    file.write_text("value = 'another length'\n", encoding="utf-8")
    importlib.invalidate_caches()
    importlib.import_module(library)
    assert seen == ["another length"]
    del sys.modules[library]


def test_a_loader_that_has_other_modules_too_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of modules in one zip file; and whoever looks at the module finds its own loader."""
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("remora_one", "remora_two"):
            archive.writestr(f"{name}.py", "value = __name__")
    monkeypatch.syspath_prepend(path)
    seen: list[str] = []
    WhenImported("remora_one", lambda module: seen.append(module.value))
    one, two = (importlib.import_module(name) for name in ("remora_one", "remora_two"))
    assert seen == ["remora_one"]
    assert one.__loader__ is two.__loader__
    assert one.__spec__ is not None
    assert type(one.__spec__.loader).__name__ == "zipimporter"
    for name in ("remora_one", "remora_two"):
        del sys.modules[name]


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
    monkeypatch.setattr(serializers, "LIBRARIES", (library, "remora_no_such_library"))
    monkeypatch.setattr(serializers, "_RAYS_OWN", "remora_nothing_of_rays")  # whatever other tests have imported of it
    registered: list[str] = []
    before = list(sys.meta_path)
    mine = serializers.Addons(registered.append)
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
    assert serializers.is_known(serialization_addons.apply)

    def apply(context: Any) -> None:
        register_more(context)  # type: ignore[name-defined]  # noqa: F821

    assert not serializers.is_known(apply)
    assert not serializers.is_known(print)


RAYS_OWN = """
import sys
from ray.util import serialization_addons
from remora.live.attach.serializers import Addons

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
