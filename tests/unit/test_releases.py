"""Which releases of Ray are refused, which are warned of, and what the older ones may lack."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import ray

from remora import IncompatibleRayError
from remora.live import api, names, releases
from remora.live.attach import install
from remora.wire.rewrite import Defaults

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("version", "want"),
    [("2.55.0", (2, 55)), ("2.60.1", (2, 60)), ("2.61.0rc0", (2, 61)), ("3.0.0.dev0", (3, 0)), ("unknown", (999, 0))],
)
def test_a_release_is_its_first_two_numbers(version: str, want: releases.Release) -> None:
    assert releases.release(version) == want


def test_an_older_ray_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.54.1")
    with pytest.raises(IncompatibleRayError, match=r"Ray 2\.54\.1 .* older .* with Ray 2\.55\.0 and newer .* pip install"):
        names.probe()


def test_on_a_ray_that_does_not_fit_no_controller_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(ray, "__version__", "2.54.1")
    monkeypatch.setattr(api, "start_controller", lambda: started.append("controller"))
    with pytest.raises(IncompatibleRayError):
        api.attach()
    assert started == []


def test_a_newer_ray_is_warned_of_once_and_works(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(ray, "__version__", "2.99.0")
    names.probe()
    with caplog.at_level(logging.WARNING, "remora"):
        releases.warn_of_newer()
        releases.warn_of_newer()
    assert [record.message.split(",")[0] for record in caplog.records] == ["Ray 2.99.0 is newer than 2.60"]


@pytest.mark.parametrize(("version", "want"), [("2.55.1", False), ("2.56.0", True), ("2.60.0", True)])
def test_where_ray_hides_accelerators_it_is_left_to_do_so(version: str, want: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "probe", lambda *_: None)
    monkeypatch.setattr(ray, "__version__", version)
    try:
        replaced = install.install(Defaults()).replaced
    finally:
        install.uninstall()
    assert ((ray._private.utils, "set_visible_accelerator_ids") in replaced) is want


@pytest.mark.parametrize("version", [releases.OLDEST, releases.NEWEST])
def test_a_ray_that_was_tested_is_not_warned_of(
    version: releases.Release, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray, "__version__", f"{releases.spelled(version)}.3")
    with caplog.at_level(logging.WARNING, "remora"):
        releases.warn_of_newer()
    assert caplog.records == []


def test_what_an_older_ray_lacks_is_missed_in_one_that_should_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = names.Message("ray.core.generated.gcs_pb2", "ActorTableData", ("no_such",))
    monkeypatch.setattr(names, "MESSAGES", (*names.MESSAGES, lacking))
    monkeypatch.setattr(names, "NEWER", (names.Newer(lacking.module, lacking.path, "no_such", (2, 57)),))
    monkeypatch.setattr(ray, "__version__", "2.56.1")
    names.probe()
    monkeypatch.setattr(ray, "__version__", "2.57.0")
    with pytest.raises(IncompatibleRayError, match="has no 'no_such'"):
        names.probe()


def test_what_may_be_absent_is_listed_among_what_is_read() -> None:
    known = {(name.module, name.path, each) for name in names.TOUCHED for each in name.parameters}
    known |= {(message.module, message.path, each) for message in names.MESSAGES for each in message.fields}
    assert {each[:3] for each in names.NEWER} <= known
    assert all(releases.OLDEST < each.since <= releases.NEWEST for each in names.NEWER)


def test_everybody_names_the_same_oldest_release() -> None:
    oldest = f"{releases.spelled(releases.OLDEST)}.0"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r'"ray(?:\[[\w,]+\])?>=([\d.]+)"', project)) == {oldest}
    for document in ("README.md", "docs/limits.md"):
        assert oldest in (ROOT / document).read_text(encoding="utf-8"), document
