"""The environments in which Remora is tried: the newest minor releases of Ray, and the releases of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".compat"

USUAL = "3.11"
RAYS = ("2.60.0", "2.59.0", "2.58.1", "2.57.1", "2.56.1", "2.55.0")
"""Of the oldest minor release the first that there was: it is the one that ``pyproject.toml`` allows."""

PYTHONS = ("3.13", "3.12", "3.10")
"""Besides the usual one; they are tried with the newest Ray."""

LIVE, UNIT = "live", "unit"
"""What is run: on a real Ray, and without."""


class Environment(NamedTuple):
    ray: str
    python: str

    @property
    def name(self) -> str:
        return f"ray-{self.ray}-python-{self.python}"

    @property
    def folder(self) -> Path:
        return HOME / self.name

    @property
    def parts(self) -> tuple[str, ...]:
        """What is run in it: the tests without Ray where the Python differs."""
        return (LIVE,) if self.python == USUAL else (LIVE, UNIT)

    def make(self) -> None:
        """Install Remora as it stands in the tree, with this Ray; do nothing where that was done."""
        done = self.folder / ".installed"
        if done.exists() and done.stat().st_mtime > (ROOT / "pyproject.toml").stat().st_mtime:
            return
        found = interpreter(self.python)
        if found is None:
            raise LookupError(
                f"no Python {self.python} on the PATH or in ~/.pyenv/versions; for example: pyenv install {self.python}"
            )
        if not (self.folder / "bin/python").exists():
            subprocess.run([found, "-m", "venv", self.folder], check=True)
        wanted = [f"ray=={self.ray}", "--editable", f"{ROOT}[plot]", "hypothesis", "pytest>=8.2", "pytest-xdist"]
        subprocess.run([self.folder / "bin/python", "-m", "pip", "install", "--quiet", *wanted], check=True)
        done.touch()


ALL = (*(Environment(ray, USUAL) for ray in RAYS), *(Environment(RAYS[0], python) for python in PYTHONS))


def interpreter(python: str) -> str | None:
    """Return the path of a Python of this release; None where there is none."""
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    kept = sorted((Path.home() / ".pyenv/versions").glob(f"{python}.*/bin/python"))
    path = os.pathsep.join(each for each in os.environ.get("PATH", "").split(os.pathsep) if "pyenv/shims" not in each)
    return str(kept[-1]) if kept else shutil.which(f"python{python}", path=path)
