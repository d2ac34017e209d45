"""Debian's Chromium, where it is: ``python -m tests.browser.chromium`` says whether there is one."""

from __future__ import annotations

import os
import shutil
import sys

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""It is started as root in a container, and should not look for hosts of its own."""

MISSING = (
    "not run: tests/browser, because there is no Chromium here; to run them too: apt-get install chromium (or set "
    "CHROMIUM=/path/to/it), then make browser"
)


def chromium() -> str | None:
    """Return the path of a Chromium; None where there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


if __name__ == "__main__":
    if chromium() is None:
        sys.stdout.write(f"{MISSING}\n")
        sys.exit(1)
