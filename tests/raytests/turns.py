"""Run Ray's test files in turns: attached, then stock what failed, then attached once more what passes stock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.raytests.verdicts import ATTACHED, STOCK, Tries, has_failed, read_all

HERE = Path(__file__).parent
_LEAST_SECONDS = 30
"""With less left of a turn nothing is begun."""

_EXTRA_SECONDS = 45
"""What a run may take beyond its turn, to end the test that is running and Ray."""

_TRIES = 2


class Place(NamedTuple):
    """Where it all is: an environment with Ray, Remora and Ray's tests in it, and what came of them."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv/bin/python"

    @property
    def tests(self) -> Path:
        return next((self.folder / "venv/lib").glob("python3*/site-packages/ray/tests"))


class Job(NamedTuple):
    """What is run next: tests of one file, or all of it that ``done`` does not name."""

    mode: str
    targets: tuple[str, ...]
    done: tuple[str, ...] = ()


def next_job(file: str, tries: dict[str, Tries], finished: Iterable[str]) -> Job | None:
    """Return what is to be run of a file; None when there is a verdict on all of it."""
    attached, stock = ({test: runs for test, runs in tries[mode].items() if test.partition("::")[0] == file} for mode in tries)
    if file not in finished:
        return Job(ATTACHED, (file,), tuple(attached))
    failed = [test for test, runs in attached.items() if has_failed(runs)]
    unknown = [test for test in failed if test not in stock]
    if unknown:
        return Job(STOCK, tuple(unknown))
    again = [test for test in failed if len(attached[test]) < _TRIES and not has_failed(stock[test])]
    return Job(ATTACHED, tuple(again)) if again else None


def turn(place: Place, files: Sequence[str], seconds: float, each: int) -> bool:
    """Run for so long, and return whether there is a verdict on everything."""
    until = time.monotonic() + seconds
    finished = place.folder / "finished"
    for file in files:
        while (job := next_job(file, read_all(place.folder), _lines(finished))) is not None:
            left = until - time.monotonic()
            if left < _LEAST_SECONDS:
                return False
            if _run(place, job, int(left), each) and job.targets == (file,):
                with finished.open("a", encoding="utf-8") as found:
                    found.write(f"{file}\n")
    return True


def _run(place: Place, job: Job, seconds: int, each: int) -> bool:
    """Return whether pytest came to the end of what it was given."""
    output = place.folder / "output.log"
    environment = {
        **os.environ,
        "PATH": f"{place.python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": f"{HERE}{os.pathsep}{place.tests}",  # workers import a test's module
        "RAYTESTS_LOG": str(place.folder / f"{job.mode}.jsonl"),
        "RAYTESTS_DONE": "\t".join(job.done),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # or a busy machine lets them starve
        "RAY_prestart_worker_first_driver": "0",  # fewer processes, attached and not
    }
    if job.mode == STOCK:
        environment["RAYTESTS_STOCK"] = "1"
    command = [
        *("timeout", "-k", "5", str(seconds + _EXTRA_SECONDS), HERE / "isolated.sh", place.python, "-m", "pytest"),
        *("-c", HERE / "rays.ini", "--rootdir", place.tests, "-p", "plugin", "-p", "no:cacheprovider"),
        *(f"--timeout={each}", f"--session-timeout={seconds}", "-q", "-rfE", "--tb=short"),
        *(place.tests / target for target in job.targets),
    ]
    print(f"{job.mode}: {job.targets[0]}{f' and {len(job.targets) - 1} more' if len(job.targets) > 1 else ''}", flush=True)
    with output.open("a", encoding="utf-8") as out:
        began = out.tell()
        code = subprocess.run(
            [str(word) for word in command],
            env=environment,
            cwd=place.folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    with output.open(encoding="utf-8", errors="replace") as found:
        found.seek(began)
        said = found.read()
    was_cut = code in (124, 137) or "session-timeout" in said
    print(f"    {said.strip().splitlines()[-1] if said.strip() else code}", flush=True)
    return not was_cut


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
