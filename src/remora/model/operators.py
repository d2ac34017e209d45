"""The four questions that can be asked of a label, and their spellings.

Strings (``"a"``, ``"!a"``, ``"in(a, b)"``, ``"!in(a, b)"``, ``"exists()"``, ``"!exists()"``), classes (``In("a")``) and
the enum ``LabelMatchOperator`` all become an (operator, values) pair here. Parsing is one pass over the text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remora.errors import InvalidLabelError, InvalidSelectorError
from remora.model.labels import validate_label_value


class LabelMatchOperator(enum.Enum):
    """How an expression judges the value under its key."""

    IN = "IN"
    NOT_IN = "NOT_IN"
    EXISTS = "EXISTS"
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    Exist = "EXISTS"  # the spelling in Ray's node affinity proposal, option 2

    @property
    def takes_values(self) -> bool:
        return self in (LabelMatchOperator.IN, LabelMatchOperator.NOT_IN)


Condition = tuple[LabelMatchOperator, tuple[str, ...]]


class _OperatorClass:
    """Shared by In and NotIn: one or more values, given one by one or as one list."""

    values: tuple[str, ...]

    def __init__(self, *values: Any) -> None:
        if len(values) == 1 and isinstance(values[0], (list, tuple, set, frozenset)):
            values = tuple(values[0])
        name = type(self).__name__
        if not values:
            raise InvalidSelectorError(f"{name}() has no value: name at least one; for example {name}('a', 'b')")
        self.values = tuple(sorted({validate_label_value(value) for value in values}))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.values == other.values

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.values))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.values))})"


class In(_OperatorClass):
    """The label is there and its value is one of these."""


class NotIn(_OperatorClass):
    """The label is absent, or its value is none of these."""


@dataclass(frozen=True)
class Exists:
    """The label is there, whatever its value."""


@dataclass(frozen=True)
class DoesNotExist:
    """The label is not there."""


Exist = Exists  # the spelling in Ray's taints and tolerations proposal, section 2.3

_CLASS_NAMES = {
    "In": LabelMatchOperator.IN,
    "NotIn": LabelMatchOperator.NOT_IN,
    "Exists": LabelMatchOperator.EXISTS,
    "DoesNotExist": LabelMatchOperator.DOES_NOT_EXIST,
}
_NAMES = {
    "in": LabelMatchOperator.IN,
    "not_in": LabelMatchOperator.NOT_IN,
    "notin": LabelMatchOperator.NOT_IN,
    "exists": LabelMatchOperator.EXISTS,
    "exist": LabelMatchOperator.EXISTS,
    "does_not_exist": LabelMatchOperator.DOES_NOT_EXIST,
}
_EMPTY = "''"  # how the empty value is written inside a list
_FORMS = "'a', '!a', 'in(a, b)', '!in(a, b)', 'exists()', '!exists()'"


def parse_operator(operator: Any) -> LabelMatchOperator:
    """An operator given as the enum or by its name in any case."""
    if isinstance(operator, LabelMatchOperator):
        return operator
    if isinstance(operator, str) and operator.lower() in _NAMES:
        return _NAMES[operator.lower()]
    raise InvalidSelectorError(
        f"{operator!r} is not a label operator: use IN, NOT_IN, EXISTS or DOES_NOT_EXIST; for example LabelMatchOperator.IN"
    )


def parse_condition(key: str, condition: Any) -> Condition:
    """What a selector says under ``key``, whatever its spelling, as operator and sorted values."""
    if isinstance(condition, str):
        return _parse_text(key, condition)
    # By name, so that Ray's own classes of these names are understood without importing Ray.
    operator = _CLASS_NAMES.get(type(condition).__name__)
    if operator is None:
        hint = f"; did you mean {show_condition(LabelMatchOperator.IN, condition)}?" if _is_strings(condition) else ""
        raise InvalidSelectorError(
            f"the condition {condition!r} under {key!r} is neither a string nor an operator: write one of {_FORMS}, or "
            f"In('a'), NotIn('a'), Exists(), DoesNotExist(){hint}"
        )
    return operator, check_values(key, operator, getattr(condition, "values", ()) if operator.takes_values else ())


def check_values(key: str, operator: LabelMatchOperator, values: Any) -> tuple[str, ...]:
    """Sorted, distinct, valid values; exactly the operators that take values have some."""
    if isinstance(values, str):
        raise InvalidSelectorError(f"the values {values!r} under {key!r} are one string: give a list; for example [{values!r}]")
    if values is not None and not isinstance(values, Iterable):
        raise InvalidSelectorError(f"the values {values!r} under {key!r} are not a list; for example ['a', 'b']")
    listed = tuple(values or ())
    if operator.takes_values and not listed:
        raise InvalidSelectorError(f"{operator.name} under {key!r} has no value: name at least one; for example ['a', 'b']")
    if not operator.takes_values and listed:
        raise InvalidSelectorError(
            f"{operator.name} under {key!r} takes no values, but {list(listed)!r} were given; for example []"
        )
    try:
        return tuple(sorted({validate_label_value(value) for value in listed}))
    except InvalidLabelError as error:
        raise InvalidSelectorError(f"under {key!r}: {error}") from None


def show_condition(operator: LabelMatchOperator, values: Iterable[str]) -> str:
    """The canonical string spelling; parsing it gives the same condition again."""
    listed = tuple(values)
    bang = "!" if operator in (LabelMatchOperator.NOT_IN, LabelMatchOperator.DOES_NOT_EXIST) else ""
    if not operator.takes_values:
        return f"{bang}exists()"
    if len(listed) == 1 and (listed[0] or not bang):
        return bang + listed[0]
    return f"{bang}in({', '.join(value or _EMPTY for value in listed)})"


def _parse_text(key: str, text: str) -> Condition:
    body = text.strip()
    negated = body.startswith("!")
    if negated:
        body = body[1:].lstrip()
    if body.startswith("!"):
        raise _refuse(key, text, "it is negated twice", body.lstrip("! ") or "a")
    if negated and not body:
        raise _refuse(key, text, "it negates nothing", "!exists()")
    if "(" not in body and ")" not in body:
        return _parse_plain(key, text, body, negated)
    name, _, rest = body.partition("(")
    name = name.strip().lower()
    if not rest.endswith(")") or "(" in rest or ")" in rest[:-1]:
        raise _refuse(key, text, "its parentheses do not match", _near(name, rest, negated))
    arguments = rest[:-1].strip()
    if name in ("exists", "exist") and not arguments:
        return (LabelMatchOperator.DOES_NOT_EXIST if negated else LabelMatchOperator.EXISTS), ()
    if name != "in":
        why = (
            f"exists() takes no values, but got {arguments[:40]!r}"
            if name in ("exists", "exist")
            else f"there is no operator {name[:40]!r}"
        )
        raise _refuse(key, text, why if name else "it has no operator", _near(name, rest, negated))
    if not arguments:
        raise _refuse(key, text, "in() names no value", "!exists()" if negated else "in(a, b)")
    values = [value.strip() for value in arguments.split(",")]
    if not all(values):
        raise _refuse(key, text, f"it has an empty entry (the empty value is written {_EMPTY})", _near(name, rest, negated))
    operator = LabelMatchOperator.NOT_IN if negated else LabelMatchOperator.IN
    return operator, check_values(key, operator, [_unquoted(value) for value in values])


def _parse_plain(key: str, text: str, body: str, negated: bool) -> Condition:
    if "," in body or any(char.isspace() for char in body):
        words = body.replace(",", " ").split()
        values = words[1:] if len(words) > 1 and words[0].lower() in ("in", "exists") else words
        near = f"in({', '.join(values)})" if values else "in(a, b)"
        raise _refuse(
            key, text, "it is more than one value" if values else "it names no value", ("!" if negated else "") + near
        )
    operator = LabelMatchOperator.NOT_IN if negated else LabelMatchOperator.IN
    return operator, check_values(key, operator, (body,))


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _near(name: str, rest: str, negated: bool) -> str:
    """The well-formed condition closest to a malformed one."""
    inner = rest.replace("(", " ").replace(")", " ").replace(",", " ").split()
    if name.startswith("not") or name in ("does_not_exist", "doesnotexist", "nin"):
        negated = True
    if not inner or name.endswith("exists"):
        return "!exists()" if negated else "exists()" if name.endswith(("exist", "exists")) else "in(a, b)"
    return ("!" if negated else "") + f"in({', '.join(inner)})"


def _refuse(key: str, text: str, why: str, near: str) -> InvalidSelectorError:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    near = near if len(near) <= 80 else "in(a, b)"
    return InvalidSelectorError(
        f"the condition {shown!r} under {key!r} cannot be read: {why}; did you mean {near}? Allowed are {_FORMS}"
    )


def _is_strings(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and bool(value) and all(isinstance(item, str) for item in value)
