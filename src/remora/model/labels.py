"""Labels: Kubernetes' syntax, with underscores also allowed in the prefix.

Why the widening: Ray's taint proposal itself names ``rare_resource.ray.io/gpu``.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Mapping
from typing import Any

from remora.errors import InvalidLabelError

Labels = tuple[tuple[str, str], ...]
"""Labels in canonical form: pairs sorted by key."""

MAX_NAME = 63
MAX_PREFIX = 253
RESERVED_PREFIX = "ray.io/"
NODE_ID = "ray.io/node-id"
"""A label that Ray itself sets: the node's id."""

ACTOR_ID = "actor_id"
"""The label that every actor has by itself: its id. Affinity to a handle is an expression over it."""

_ALNUM = frozenset(string.ascii_letters + string.digits)
_NAME = _ALNUM | frozenset("-_.")
_LOWER_ALNUM = frozenset(string.ascii_lowercase + string.digits)
_PREFIX_PART = _LOWER_ALNUM | frozenset("-_")

_VALUE_RULE = (
    f"a label value has at most {MAX_NAME} characters from A-Z a-z 0-9 - _ . and begins and ends with a letter or "
    "digit (it may be empty); for example 'us-west4-a'"
)
_KEY_RULE = (
    f"a label key is an optional DNS prefix and '/' (at most {MAX_PREFIX} characters, lower case) and a name of 1 to "
    f"{MAX_NAME} characters from A-Z a-z 0-9 - _ . that begins and ends with a letter or digit; for example 'zone' or "
    "'ray.io/accelerator-type'"
)


def validate_label_key(key: str) -> str:
    """Return ``key`` if it is a label key, else raise InvalidLabelError."""
    if not isinstance(key, str):
        raise InvalidLabelError(f"label key {key!r} is a {type(key).__name__}: {_KEY_RULE}")
    prefix, slash, name = key.rpartition("/")
    if slash and not _is_prefix(prefix):
        raise InvalidLabelError(f"label key {_show(key)} has the bad prefix {_show(prefix)}: {_KEY_RULE}")
    if not _is_name(name):
        raise InvalidLabelError(f"label key {_show(key)} has the bad name {_show(name)}{_flaw(name)}: {_KEY_RULE}")
    return key


def validate_label_value(value: str) -> str:
    """Return ``value`` if it is a label value, else raise InvalidLabelError."""
    if not isinstance(value, str):
        raise InvalidLabelError(f"label value {value!r} is a {type(value).__name__}, not a string: {_VALUE_RULE}")
    if value and not _is_name(value):
        raise InvalidLabelError(f"label value {_show(value)} is not allowed{_flaw(value)}: {_VALUE_RULE}")
    return value


def parse_labels(labels: Mapping[str, str] | None, *, of: str = "labels") -> Labels:
    """Check a mapping of labels and return it in canonical form."""
    if labels is None:
        return ()
    if not isinstance(labels, Mapping):
        raise InvalidLabelError(f"{of} must be a mapping of strings to strings, not {labels!r}; for example {{'zone': 'a'}}")
    return tuple(sorted((validate_label_key(key), validate_label_value(value)) for key, value in labels.items()))


def parse_workload_labels(labels: Mapping[str, str] | None) -> Labels:
    """Labels of an actor or task: any but the one that every actor has by itself."""
    parsed = parse_labels(labels)
    if any(key == ACTOR_ID for key, _ in parsed):
        raise InvalidLabelError(
            f"the label {ACTOR_ID!r} is set by Remora to the actor's id; choose another key, for example 'name'"
        )
    return parsed


def parse_label_keys(keys: Iterable[str], *, of: str = "keys") -> tuple[str, ...]:
    """Check a collection of label keys; a lone string is refused, it is too easily meant as one key."""
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        raise InvalidLabelError(f"{of} must be a list of label keys, not {keys!r}; for example ['zone']")
    return tuple(validate_label_key(key) for key in keys)


def as_label_value(text: str) -> str:
    """Return a label value that stands for any text: itself where it is one; else what can be kept of it, and a digest."""
    if not text or (len(text) <= MAX_NAME and _is_name(text)):
        return text
    kept = "".join(char if char in _NAME else "_" for char in text)[: MAX_NAME - 9].strip("-_.")
    return f"{kept or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def show_labels(labels: Mapping[str, str] | Labels) -> str:
    """Labels as people write them: ``zone=a,tier=spot``."""
    pairs: Iterable[Any] = labels.items() if isinstance(labels, Mapping) else labels
    return ",".join(f"{key}={value}" for key, value in pairs)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME and text[0] in _ALNUM and text[-1] in _ALNUM and _NAME.issuperset(text)


def _is_prefix(text: str) -> bool:
    if not 0 < len(text) <= MAX_PREFIX:
        return False
    return all(
        part and part[0] in _LOWER_ALNUM and part[-1] in _LOWER_ALNUM and _PREFIX_PART.issuperset(part)
        for part in text.split(".")
    )


def _flaw(text: str) -> str:
    """The first thing that is wrong with a name, so that nobody has to hunt for it."""
    if not text:
        return " (it is empty)"
    if len(text) > MAX_NAME:
        return f" (it has {len(text)} characters)"
    bad = next((char for char in text if char not in _NAME), None)
    if bad is not None:
        return f" (it contains {bad!r})"
    return f" (it begins or ends with {(text[0] if text[0] not in _ALNUM else text[-1])!r})"


def _show(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
