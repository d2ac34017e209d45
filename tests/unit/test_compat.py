"""What ``make compat`` counts, and the table that it writes into a document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.compat import table
from tests.compat.environments import ALL, PYTHONS, RAYS, ROOT, USUAL
from tests.compat.running import count, read

from remora.live import releases

DOCUMENT = f"# Title\n\n{table.BEGIN}\n\n{table.END}\n\nmore\n"


def test_every_test_counts_in_its_column_with_what_came_of_it_last(tmp_path: Path) -> None:
    kept = tmp_path / "live.jsonl"
    every = [f"tests/live/test_{name}.py::test_it" for name in ("facts", "traps", "port", "scopes")]
    noted = [*((test, "not run") for test in every), *zip(every, ("passed", "failed", "passed"), strict=False)]
    kept.write_text("".join(json.dumps(each) + "\n" for each in noted), encoding="utf-8")
    assert count(read(kept), "live") == {
        "facts": {"passed": 1, "failed": 1},
        "contract": {"passed": 1},
        "core": {"not run": 1},
    }


def test_a_run_of_which_nothing_was_noted_is_no_success(tmp_path: Path) -> None:
    assert count(read(tmp_path / "none.jsonl"), "unit") == {"unit": {"failed": 1}}


def test_a_table_is_read_as_it_was_written_and_the_rest_stays() -> None:
    keys = [("2.55.0", "3.11"), ("2.60.0", "3.9"), ("2.60.0", "3.11")]
    rows = dict(zip(keys, [("1", "2", "3", ""), ("1", "", "", ""), ("", "", "", "4")], strict=True))
    written = table.write(DOCUMENT, rows)
    assert table.read(written) == rows
    assert list(table.read(written)) == [("2.60.0", "3.11"), ("2.60.0", "3.9"), ("2.55.0", "3.11")]
    assert written.startswith("# Title\n")
    assert written.endswith("\n\nmore\n")


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="between which the table stands"):
        table.read("# Title")


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        ({"passed": 3}, "3 passed"),
        ({"passed": 3, "skipped": 1}, "3 passed, 1 skipped"),
        ({"passed": 3, "failed": 1}, "**1 failed**, 3 passed"),
        ({"passed": 3, "not run": 2}, "**2 not run**, 3 passed"),
    ],
)
def test_a_cell_says_what_failed_first(counts: dict[str, int], want: str) -> None:
    assert table.cell(counts) == want


def test_every_minor_release_that_is_claimed_is_tried_and_nothing_else_is_shown() -> None:
    tried = {releases.release(version) for version in RAYS}
    assert tried == {(2, minor) for minor in range(releases.OLDEST[1], releases.NEWEST[1] + 1)}
    assert f"{releases.spelled(releases.OLDEST)}.0" in RAYS
    rows = table.read((ROOT / "docs/limits.md").read_text(encoding="utf-8"))
    assert rows.keys() <= {(each.ray, each.python) for each in ALL}


def test_every_python_that_is_claimed_is_tried() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)) == {USUAL, *PYTHONS}
