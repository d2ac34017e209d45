"""Play lives: ``python -m tests.world --lives 1000``; or one of them again, with its story: ``--seed 123``."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.world.life import Outcome, play, tell
from tests.world.old_rules import RULES, put_back
from tests.world.script import Script, show
from tests.world.shrink import shrink
from tests.world.writing import write


class Result(NamedTuple):
    seed: int
    rule: str
    what: str
    events: int
    deaths: int


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a life: it has to be the same in every process and every replay.
        os.execve(sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    arguments = _parser().parse_args()
    with put_back(arguments.old) if arguments.old else contextlib.nullcontext():
        if arguments.lives is None:
            return _one(arguments.seed, arguments.length, whole=arguments.whole, trace=arguments.trace)
        return _rules(arguments) if arguments.rules else _many(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument(
        "--lives", type=int, help="how many lives to play, from --seed on; without it the one of --seed is told"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many processes play")
    parser.add_argument("--length", type=int, help="how many things happen in each life")
    parser.add_argument("--old", choices=sorted(RULES), help="a known bug that is put back")
    parser.add_argument("--rules", action="store_true", help="put each known bug back: how many lives does it take to find it?")
    parser.add_argument("--whole", action="store_true", help="tell the story as it is, without making it short")
    parser.add_argument("--trace", action="store_true", help="tell it also when nothing went wrong")
    parser.add_argument("--most", type=int, default=1, help="stop after so many lives that failed")
    parser.add_argument("--quiet", action="store_true", help="count what failed, and tell no story")
    return parser


def _live(seed: int, length: int | None) -> Result:
    try:
        outcome = play(write(seed, length), seed)
    except Exception as error:  # noqa: BLE001 - the world itself failed: that is a result too
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Result(seed, "the world failed", f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})", 0, 0)
    what = outcome.failure.what if outcome.failure is not None else ""
    return Result(seed, outcome.rule, what, outcome.events, outcome.deaths)


def _many(arguments: argparse.Namespace) -> int:
    began = time.perf_counter()
    found: Counter[str] = Counter()
    failed: list[Result] = []
    played = events = deaths = 0
    for result in _results(arguments):
        played += 1
        events += result.events
        deaths += result.deaths
        if result.rule:
            found[result.rule] += 1
            failed.append(result)
            _say(f"seed {result.seed}: {result.rule}: {result.what}"[:400])
            if len(failed) >= arguments.most:
                break
    seconds = time.perf_counter() - began
    _say(
        f"{played} lives in {seconds:.1f} s: {played / seconds:.1f} a second, {events / max(played, 1):.0f} events and "
        f"{deaths / max(played, 1):.2f} deaths of the controller in each; {len(failed)} failed"
    )
    for rule, count in found.most_common():
        _say(f"{count:6}  {rule}")
    if failed and not arguments.quiet:
        _one(min(failed, key=lambda result: result.seed).seed, arguments.length, whole=arguments.whole, trace=False)
    return 1 if failed else 0


def _rules(arguments: argparse.Namespace) -> int:
    """How many lives each old rule takes to be found, of at most so many."""
    work = [(rule, arguments.seed, arguments.lives, arguments.length) for rule in RULES]
    missed = 0
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
        for (rule, *_), (lives, what) in zip(work, pool.imap(_until_found, work), strict=True):
            missed += not what
            _say(f"{lives:6}  {rule:34} {what or 'not found'}")
    return 1 if missed else 0


def _until_found(work: tuple[str, int, int, int | None]) -> tuple[int, str]:
    rule, first, most, length = work
    with put_back(rule):
        for number in range(most):
            result = _live(first + number, length)
            if result.rule:
                return number + 1, f"{result.rule} (seed {result.seed})"
    return most, ""


def _results(arguments: argparse.Namespace) -> Iterator[Result]:
    seeds = range(arguments.seed, arguments.seed + arguments.lives)
    if arguments.jobs <= 1:
        yield from (_live(seed, arguments.length) for seed in seeds)
        return
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
        work = ((seed, arguments.length) for seed in seeds)
        yield from pool.imap(_live_of, work, chunksize=8)


def _live_of(work: tuple[int, int | None]) -> Result:
    return _live(*work)


def _one(seed: int, length: int | None, *, whole: bool, trace: bool) -> int:
    script = write(seed, length)
    outcome = play(script, seed)
    if outcome.failure is None:
        _say(f"seed {seed}: {outcome.events} events, nothing went wrong")
        if trace:
            _say(tell(outcome))
        return 0
    rule = outcome.rule
    short = script if whole else shrink(script, lambda tried: _rule_of(tried, seed) == rule)
    outcome = play(short, seed)
    _say(story(short, seed, outcome))
    return 1


def _rule_of(script: Script, seed: int) -> str:
    try:
        return play(script, seed).rule
    except Exception:  # noqa: BLE001 - another failure than the one that is looked for
        return ""


def story(script: Script, seed: int, outcome: Outcome) -> str:
    """What was to happen, what happened, and what was wrong with it."""
    failure = outcome.failure
    parts = [f"seed {seed}, a script of {len(script)}:", show(script), "what happened:", tell(outcome), "", f"{failure}"]
    if failure is not None and failure.__cause__ is not None:
        parts.append("".join(traceback.format_exception(failure.__cause__)[-12:]))
    parts.append(f"play it again: python -m tests.world --seed {seed}")
    return "\n".join(parts)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
