"""Run Ray's own tests attached, then stock what failed, and say what fails attached only: ``make raytests RAY_SOURCE=...``.

What came of every test is kept in ``.raytests/``: whoever calls this again goes on where it ended. It needs root (each run gets
processes and a network of its own, because Ray's fixtures end every Ray that they find), and hours for all files.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tests.raytests.turns import HERE, Place, turn
from tests.raytests.verdicts import ONLY, read_all, show

ROOT = HERE.parents[1]
RAY = "2.60.0"
_LIST = HERE / "files.txt"
_NEEDS = (
    *(f"ray[default]=={RAY}", "pytest<9", "pytest-asyncio", "pytest-timeout", "pytest-lazy-fixtures", "pytest-httpserver"),
    *("psutil", "httpx", "scipy", "joblib"),
)
"""pytest 9 refuses Ray's marks on fixtures."""

_MISSING = "python/ray/autoscaler/_private/fake_multi_node/example.yaml"
"""What the tests read of Ray and no wheel has."""


def main() -> int:
    arguments = _parser().parse_args()
    place = Place(arguments.folder)
    place.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        _make(place, arguments.source)
        files = arguments.files or _files()
        while not turn(place, files, arguments.turn, arguments.each) and not arguments.once:
            pass
    report = show(read_all(place.folder))
    print("\n".join(report))
    return 1 if any(line.startswith(ONLY) for line in report) else 0


def _files() -> list[str]:
    lines = (line.partition("#")[0].strip() for line in _LIST.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def _make(place: Place, source: Path | None) -> None:
    """Make the environment, with Ray's tests beside Ray; do nothing where that was done."""
    if (place.folder / ".made").exists():
        return
    if source is None or not (source / "python/ray/tests").is_dir():
        sys.exit(
            f"--source {source} has no python/ray/tests; for example: git clone https://github.com/ray-project/ray --depth 1"
        )
    subprocess.run([sys.executable, "-m", "venv", place.folder / "venv"], check=True)
    install = [str(place.python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *_NEEDS, "--editable", str(ROOT)], check=True)
    ray = next((place.folder / "venv/lib").glob("python3*/site-packages/ray"))
    shutil.copytree(source / "python/ray/tests", ray / "tests", dirs_exist_ok=True)
    shutil.copy(HERE / "canary.py", ray / "tests/test_remora_canary.py")
    if (source / _MISSING).exists():
        shutil.copy(source / _MISSING, ray.parent / _MISSING.removeprefix("python/"))
    (place.folder / ".made").touch()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.raytests", description=__doc__)
    parser.add_argument("files", nargs="*", help="files of Ray's tests, such as test_basic.py; those of files.txt without any")
    parser.add_argument("--source", type=Path, help=f"a checkout of Ray, near {RAY}")
    parser.add_argument("--folder", type=Path, default=ROOT / ".raytests", help="where everything is kept")
    parser.add_argument("--turn", type=float, default=240, help="seconds between two looks at the time")
    parser.add_argument("--once", action="store_true", help="end after one turn")
    parser.add_argument("--each", type=int, default=60, help="seconds that a test may take")
    parser.add_argument("--report", action="store_true", help="run nothing, and show what is known")
    return parser


sys.exit(main())
