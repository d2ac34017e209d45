"""Try Remora on every release of Ray and of Python that it names, and write the table: ``python -m tests.compat``.

Each environment is made in ``.compat/``, once. What is tried there: the facts that the design stands on, the contract suite,
and the live tests that are marked ``core``; where the Python is another one, the tests without Ray too.
"""

from __future__ import annotations

import argparse
import sys

from tests.compat import table
from tests.compat.environments import ALL, HOME, LIVE, ROOT, UNIT, Environment
from tests.compat.running import count, kept_of, read, run

DOCUMENT = ROOT / "docs/limits.md"


def main() -> int:
    arguments = _parser().parse_args()
    chosen = [each for each in ALL if not arguments.only or any(word in each.name for word in arguments.only)]
    if not chosen:
        sys.stderr.write(f"none of {arguments.only} is part of a name: {', '.join(each.name for each in ALL)}\n")
        return 2
    if arguments.list:
        print("\n".join(each.name for each in chosen))
        return 0
    lost: list[str] = []
    for environment in chosen:
        lost += _try(environment, arguments)
    print(*(["all of it passed"] if not lost else ["not passed:", *lost]), sep="\n  ")
    return 1 if lost else 0


def _try(environment: Environment, arguments: argparse.Namespace) -> list[str]:
    """Return what did not pass."""
    print(f"== {environment.name}", flush=True)
    try:
        environment.make()
    except LookupError as error:
        return [f"{environment.name}: {error}"]
    lost: list[str] = []
    for part in environment.parts:
        if arguments.part in (None, part):
            outcomes = run(environment, part, arguments.seconds, resume=arguments.resume)
            _show(environment)
            lost += [f"{environment.name}: {test} {what}" for test, what in outcomes.items() if what in ("failed", "not run")]
    return lost


def _show(environment: Environment) -> None:
    """Write the row of this environment, of all its parts that were ever run here."""
    kept = {part: kept_of(environment, part) for part in environment.parts}
    counts = {column: each for part, path in kept.items() if path.exists() for column, each in count(read(path), part).items()}
    document = DOCUMENT.read_text(encoding="utf-8")
    rows = table.read(document) | {(environment.ray, environment.python): table.row(counts)}
    DOCUMENT.write_text(table.write(document, rows), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("only", nargs="*", help="environments that have one of these words in their name; all without any")
    parser.add_argument("--part", choices=(LIVE, UNIT), help="only this part")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no test after so long; --resume goes on from there")
    parser.add_argument("--resume", action="store_true", help="leave out what has passed before")
    parser.add_argument("--list", action="store_true", help="name the environments, and do nothing")
    return parser


HOME.mkdir(exist_ok=True)
sys.exit(main())
