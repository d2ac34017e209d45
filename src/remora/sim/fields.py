"""Reading a mapping out of a scenario file: every refusal names the place, the value, the rule and an example.

Also the templates: ``{i}`` is the number of the copy, and ``{i%10}``, ``{i//3}``, ``{i*97}`` and ``{i+5}`` are made from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from remora.errors import InvalidInputError, InvalidScenarioError
from remora.model.close_names import close_name

_TEMPLATE = re.compile(r"\{i(?:(%|//|\*|\+)([0-9]{1,9}))?\}")
MOST_COPIES = 1_000_000


@contextmanager
def at_path(path: str) -> Iterator[None]:
    """Errors of the model get the place in the file in front."""
    try:
        yield
    except InvalidScenarioError:
        raise
    except InvalidInputError as error:
        raise InvalidScenarioError(f"{path}: {error}") from None


class Fields:
    """One mapping of the file. ``known`` are its keys; anything else is refused, with the nearest known one."""

    def __init__(self, value: Any, path: str, known: Iterable[str], example: str) -> None:
        known = tuple(known)
        if not isinstance(value, Mapping):
            raise InvalidScenarioError(f"{path or 'the scenario'}: {show(value)} is not a mapping; for example {example}")
        for key in value:
            if key not in known:
                raise InvalidScenarioError(f"{_join(path, str(key))}: {unknown('key', str(key), known)}")
        self.value = value
        self.path = path
        self.example = example

    def at(self, key: str) -> str:
        return _join(self.path, key)

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def raw(self, key: str) -> Any:
        return self.value.get(key)

    def fail(self, key: str, rule: str, example: str) -> InvalidScenarioError:
        return InvalidScenarioError(f"{self.at(key)}: {show(self.raw(key))} {rule}; for example {key}: {example}")

    def text(self, key: str, default: str | None = None, *, example: str = "cat") -> str:
        if not self.has(key):
            if default is None:
                raise InvalidScenarioError(f"{self.at(key)}: it is missing; for example {self.example}")
            return default
        value = self.raw(key)
        if not isinstance(value, str) or not value.strip():
            quoted = f'"{value}"' if isinstance(value, (int, float)) else example
            raise self.fail(key, "is not a non-empty text", quoted)
        return value

    def maybe_text(self, key: str, *, example: str = "cat") -> str | None:
        return self.text(key, example=example) if self.has(key) else None

    def seconds(self, key: str, default: float | None = None, *, above_zero: bool = False) -> float:
        if not self.has(key):
            if default is None:
                raise InvalidScenarioError(f"{self.at(key)}: it is missing, in seconds; for example {key}: 5")
            return default
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.fail(key, "is not a number of seconds", "5")
        if value < 0 or (above_zero and not value):
            raise self.fail(key, f"is not {'above zero' if above_zero else 'zero or more'} seconds", "5")
        return float(value)

    def maybe_seconds(self, key: str) -> float | None:
        return self.seconds(key, above_zero=True) if self.has(key) else None

    def whole(self, key: str, default: int, *, least: int | None = None, most: int | None = None) -> int:
        if not self.has(key):
            return default
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, "is not a whole number", str(max(default, least or 0)))
        if (least is not None and value < least) or (most is not None and value > most):
            raise self.fail(key, f"is not a whole number from {least} to {most:,}", str(max(default, least or 0)))
        return value

    def flag(self, key: str) -> bool:
        value = self.raw(key) if self.has(key) else False
        if not isinstance(value, bool):
            raise self.fail(key, "is not true or false", "true")
        return value

    def items(self, key: str, example: str) -> list[tuple[str, Any]]:
        """The entries of a list, each with its place."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InvalidScenarioError(f"{self.at(key)}: {show(value)} is not a list; for example {key}: {example}")
        return [(f"{self.at(key)}[{index}]", entry) for index, entry in enumerate(value)]

    def texts(self, key: str, example: str) -> tuple[str, ...]:
        found = []
        for path, entry in self.items(key, example):
            if not isinstance(entry, str) or not entry:
                raise InvalidScenarioError(f"{path}: {show(entry)} is not a non-empty text; for example {key}: {example}")
            found.append(entry)
        return tuple(found)


def fill(value: Any, index: int) -> Any:
    """``value`` with every template in its texts replaced for this copy."""
    if isinstance(value, str):
        return _TEMPLATE.sub(lambda match: str(_count(match, index)), value) if "{i" in value else value
    if isinstance(value, Mapping):
        return {key: fill(entry, index) for key, entry in value.items()}
    if isinstance(value, list):
        return [fill(entry, index) for entry in value]
    return value


def is_template(value: Any) -> bool:
    if isinstance(value, str):
        return bool(_TEMPLATE.search(value))
    if isinstance(value, Mapping):
        return any(is_template(entry) for entry in value.values())
    return isinstance(value, list) and any(is_template(entry) for entry in value)


def name_of_copy(name: str, index: int, numbered: bool) -> str:
    """``cat`` of a counted entry is ``cat-0``, ``cat-1`` and so on, unless the name itself says where the number goes."""
    return fill(name, index) if is_template(name) else f"{name}-{index}" if numbered else name


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """``there is no key 'recources': did you mean 'resources'? The keys are at, count, ...``"""
    known = list(known)
    near = close_name(name, known)
    hint = f"did you mean {near!r}? The" if near is not None else "the"
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"there is no {what} {show(name)}: {hint} {what}s are {listed or 'none'}"


def show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _count(match: re.Match[str], index: int) -> int:
    operator, number = match.group(1), int(match.group(2) or 0)
    if operator == "*":
        return index * number
    if operator == "+":
        return index + number
    if operator and not number:
        raise InvalidInputError(f"{match.group()!r} divides by zero; for example '{{i%10}}'")
    return index if not operator else index % number if operator == "%" else index // number


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
