"""A word with a module once somebody has imported it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class WhenImported:
    """Has ``name`` found as it would be found anyway, and calls ``then`` with it once it is there; until it is stopped."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
        self.is_importing = False
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Whoever only asks whether there is such a module has not imported it: the watch goes on."""
        spec = self._found(path, target) if fullname == self._name else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                self.stop()
                self.is_importing = True
                try:
                    execute(module)
                finally:
                    self.is_importing = False
                self._then(module)

            spec.loader.exec_module = exec_module
        return spec

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _found(self, path: Sequence[str] | None, target: ModuleType | None) -> Any:
        for finder in [each for each in sys.meta_path if not isinstance(each, WhenImported)]:
            find = getattr(finder, "find_spec", None)
            spec = find(self._name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None
