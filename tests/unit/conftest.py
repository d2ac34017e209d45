"""No test here has a cluster."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _never_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray connects by itself, to whatever runs on this machine: a test that makes it do so fails instead."""
    if "ray" in sys.modules:
        monkeypatch.setattr("ray._private.auto_init_hook.enable_auto_connect", False)
