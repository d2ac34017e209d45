"""Run a callback right after a given module has been imported.

Not with wrapt: its hooks cannot be taken out again, which ``detach`` has to do, and importing it takes 3.3 ms, which every
worker would pay when it starts.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


class WhenImported:
    """Call ``then`` once with the module ``name``: now if it is imported already, else when somebody imports it, unless this
    is stopped before."""

    def __init__(self, name: str, then: Then) -> None:
        self._name = name
        self._then = then
        self.is_importing = False
        if name in sys.modules:
            then(importlib.import_module(name))  # which waits where another thread has begun to import it
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Find the module as it would be found anyway. Whoever only asks whether there is such a module has not imported it:
        the watch goes on."""
        spec = self._found(path, target) if fullname == self._name else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def execute(self, module: ModuleType, loader: Any) -> None:
        self.is_importing = True
        try:
            loader.exec_module(module)  # if it fails, somebody may try again
        finally:
            self.is_importing = False
        if self in sys.meta_path:
            self.stop()
            self._then(module)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _found(self, path: Sequence[str] | None, target: ModuleType | None) -> Any:
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            find = getattr(finder, "find_spec", None)
            spec = find(self._name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None


class _Loader:
    """In front of the loader of one module, which may be that of others too and is not changed."""

    def __init__(self, real: Any, watch: WhenImported) -> None:
        self._real = real
        self._watch = watch

    def create_module(self, spec: Any) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._watch.execute(module, self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)  # such as get_source and is_package, for whoever only asks
