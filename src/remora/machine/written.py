"""Labels and taints as people write them: ``k=v,k2=v2``, JSON, or a file of labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from remora.errors import InvalidInputError, InvalidLabelError, InvalidTaintError
from remora.model.labels import Labels, parse_labels, validate_label_key
from remora.model.taints import isolation_label, parse_taints, taint_label

NODE_ID = "ray.io/node-id"


def labels_of(texts: Iterable[str], option: str = "--labels") -> dict[str, str]:
    """Node labels; where an option stands twice, the later one wins, as in ``ray start``."""
    return _merged(texts, option, "zone=a,tier=spot", parse_node_labels, InvalidLabelError)


def taints_of(texts: Iterable[str], option: str = "--taints") -> dict[str, str]:
    """Taints, as the labels that carry them."""
    taints = _merged(texts, option, '{"gpu_node":"true"}', parse_taints, InvalidTaintError)
    return {taint_label(key): value for key, value in taints.items()}


def plain_taints_of(texts: Iterable[str], option: str) -> dict[str, str]:
    """Taints by their own keys; an option that is given and names none is a mistake."""
    texts = list(texts)
    taints = _merged(texts, option, '{"gpu_node":"true"}', parse_taints, InvalidTaintError)
    if texts and not taints:
        raise InvalidTaintError(f"{option} {_short(texts[-1])} names no taint; for example {option} gpu_node=true")
    return taints


def isolation_of(names: Iterable[str], option: str = "--rare-resource-isolation") -> dict[str, str]:
    """The labels that declare resources rare; names are apart or joined by commas."""
    parts = (part.strip() for text in names for part in text.split(","))
    try:
        return {validate_label_key(isolation_label(part)): "true" for part in parts}
    except InvalidLabelError as error:
        raise InvalidInputError(
            f"{option}: a rare resource is named in a label; for example {option} gpu,my_rare_resource ({error})"
        ) from None


def labels_in_file(path: Path, option: str = "--labels-file") -> dict[str, str]:
    """A YAML mapping, or the lines ``key="value"`` that Kubernetes' downward API writes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidLabelError(
            f"{option} {str(path)!r} cannot be read ({error}); it is a file of labels, for example one with the line 'zone: a'"
        ) from None
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        flaw = " ".join(str(error).split())
        raise InvalidLabelError(
            f"{option} {str(path)!r} is not YAML ({flaw}); it maps keys to values, for example 'zone: a'"
        ) from None
    if isinstance(value, str):
        value = _downward(text) or value
    if not isinstance(value, Mapping) and value is not None:
        raise InvalidLabelError(f"{option} {str(path)!r} holds {_short(value)}, not labels; for example the line 'zone: a'")
    try:
        return dict(parse_node_labels(value))
    except InvalidLabelError as error:
        raise InvalidLabelError(f"{option} {str(path)!r}: {error}") from None


def parse_node_labels(labels: Mapping[str, str] | None) -> Labels:
    """Labels that a node may be given; its id is Ray's to give."""
    parsed = parse_labels(labels)
    if any(key == NODE_ID for key, _ in parsed):
        raise InvalidLabelError(f"the label {NODE_ID!r} is set by Ray itself; choose another key, for example 'node'")
    return parsed


def _merged(
    texts: Iterable[str],
    option: str,
    example: str,
    parse: Callable[[Mapping[str, str]], Labels],
    error: type[InvalidInputError],
) -> dict[str, str]:
    merged: dict[str, str] = {}
    text = ""
    try:
        for text in texts:
            merged.update(parse(_pairs(text)))
    except ValueError as flaw:
        raise error(f"{option} {_short(text)}: {flaw}; for example {option} '{example}'") from None
    return merged


def _pairs(text: str) -> dict[str, str]:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if text.startswith(("{", "[")):
        return _json(text)
    pairs: list[tuple[str, str]] = []
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{_short(part)} is not key=value")
        pairs.append((key.strip(), value.strip()))
    return _unique(pairs)


def _json(text: str) -> dict[str, str]:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        unquoted = _unquoted(text)
        if unquoted is not None:
            return unquoted
        raise ValueError(f"it is not JSON ({error}); a shell takes double quotes away that no single quotes protect") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _unquoted(text: str) -> dict[str, str] | None:
    """What a shell leaves of ``{"gpu_node":"true"}`` that no single quotes protect; None where it is nothing of that kind."""
    pairs = [tuple(map(str.strip, part.split(":"))) for part in text.removeprefix("{").removesuffix("}").split(",")]
    whole = text.startswith("{") and text.endswith("}") and not any(mark in text for mark in "\"'[")
    return _unique([(pair[0], pair[1]) for pair in pairs]) if whole and all(len(pair) == 2 for pair in pairs) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ValueError(f"the key {key!r} stands there twice, with {found[key]!r} and {value!r}")
    return found


def _downward(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        try:
            found[key] = json.loads(value)
        except ValueError:
            return None
        if not equals:
            return None
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
