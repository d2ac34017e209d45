"""Commands as a person types them, each in a process of its own: one that has imported what every command imports."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.live.conftest import World

_ready = multiprocessing.get_context("forkserver")
_ready.set_forkserver_preload(["ray", "pydantic", "pyarrow", "typer", "remora.cli.main", "remora.live.api"])


def remora_command(world: World | None, *words: str) -> subprocess.CompletedProcess[str]:
    """What the command wrote and its exit code. Against the shared cluster, or none."""
    address = ["--address", world.cluster.address] if world else []
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _ready.Process(target=_type, args=([*words, *address], out, err))
        process.start()
        process.join(240)
        assert process.exitcode is not None, words
        return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _type(words: list[str], out: Path, err: Path) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = ["remora", *words]
    from remora.cli.main import run

    run()
