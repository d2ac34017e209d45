"""``ray.init(virtual_cluster=...)``, and what ``remora.init`` says at once instead of in minutes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray

import remora
from remora.live import api
from remora.wire.run_env import START, RunOptions

SPEC = {"flexible_resource_min": {"CPU": 1}}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(api, "init", lambda *args, **kwargs: found.append((args, kwargs)))
    return found


def test_with_a_virtual_cluster_it_is_ours(called: list[Any]) -> None:
    ray.init("local", num_cpus=1, virtual_cluster=SPEC)
    assert called == [(("local",), {"num_cpus": 1, "virtual_cluster": SPEC})]


def test_without_one_it_is_rays_own(called: list[Any]) -> None:
    with pytest.raises(RuntimeError, match=r"Unknown keyword argument\(s\): nonsense$"):
        ray.init("local", nonsense=1, virtual_cluster=None)
    assert called == []


PROGRAM = "import sys, ray; print(hasattr(ray.init, '__remora_stock__'), 'remora.live.api' in sys.modules)"


@pytest.mark.parametrize(
    ("first", "want"),
    [("", "False False"), ("import remora;", "True False"), ("import ray; import remora;", "True False")],
)
def test_a_program_that_has_imported_us_has_it(first: str, want: str) -> None:
    done = subprocess.run([sys.executable, "-c", first + PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == want.split()


def test_so_has_one_that_remora_run_starts_beside_whatever_python_would_import(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.seen = True\n", encoding="utf-8")
    before = {"PYTHONPATH": str(tmp_path)}
    environ = {**before, **RunOptions().environ(before)}
    again = RunOptions().environ(environ)["PYTHONPATH"]
    assert environ["PYTHONPATH"].split(":") == again.split(":") == [START, str(tmp_path)]
    options = RunOptions.read(environ)
    assert options is not None
    assert options.outside()["PYTHONPATH"] == str(tmp_path)
    code = PROGRAM + "; print(sys.seen)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == ["True", "False", "True"]


def test_a_wrong_address_is_said_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_REACH_SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 .*the address of its GCS"):
        remora.init("127.0.0.1:1")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConnectionError):
        remora.init()
    assert time.monotonic() - began < 10


def test_ray_client_is_refused_in_one_sentence() -> None:
    with pytest.raises(remora.InvalidInputError, match=r"a program of Ray Client \(ray://a:10001\) can't be attached: run it"):
        remora.init("ray://a:10001")
