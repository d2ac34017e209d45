"""Taints and tolerations.

A taint is a key with a value on a node. Stock ``ray start --labels`` sets one as a label with a reserved prefix, so that
no Ray component has to learn a new field: key ``gpu_node`` is the label ``taint.remora.io/gpu_node``, key ``a.b/c`` is
``a.b.taint.remora.io/c``. The encoding lives here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remora.errors import InvalidLabelError, InvalidSelectorError, InvalidTaintError
from remora.model.labels import Labels, parse_labels, validate_label_key
from remora.model.operators import LabelMatchOperator, parse_condition, show_condition
from remora.model.selectors import LabelMatchExpression

TAINT_DOMAIN = "taint.remora.io"
RARE_RESOURCE_PREFIX = "rare_resource.ray.io/"
ISOLATION_PREFIX = "rare-resource.remora.io/"


def parse_taints(taints: Mapping[str, str] | None) -> Labels:
    """Check a mapping of taints and return it in canonical form."""
    try:
        parsed = parse_labels(taints, of="taints")
        for key, _ in parsed:
            validate_label_key(taint_label(key))
        return parsed
    except InvalidLabelError as error:
        raise InvalidTaintError(
            f"a taint is a label key with a label value, for example {{'gpu_node': 'true'}}: {error}"
        ) from None


def taint_label(key: str) -> str:
    """The label key that carries the taint ``key`` on a Ray node."""
    prefix, slash, name = key.rpartition("/")
    return f"{prefix}.{TAINT_DOMAIN}/{name}" if slash else f"{TAINT_DOMAIN}/{name}"


def taint_key(label: str) -> str | None:
    """The taint that a node label carries, or None for an ordinary label."""
    prefix, _, name = label.rpartition("/")
    if prefix == TAINT_DOMAIN:
        return name
    return f"{prefix[: -len(TAINT_DOMAIN) - 1]}/{name}" if prefix.endswith(f".{TAINT_DOMAIN}") else None


def split_taints(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A Ray node's labels as ordinary labels and taints."""
    plain: dict[str, str] = {}
    taints: dict[str, str] = {}
    for label, value in labels.items():
        key = taint_key(label)
        if key is None:
            plain[label] = value
        else:
            taints[key] = value
    return plain, taints


def rare_resource_taint(resource: str) -> str:
    """The taint key that isolates the nodes of a rare resource."""
    return RARE_RESOURCE_PREFIX + resource.lower()


def isolation_label(resource: str) -> str:
    """The label of the head node that makes a resource rare for the whole cluster; its value is ``true``."""
    return ISOLATION_PREFIX + resource.lower()


def rare_resources(head_labels: Mapping[str, str]) -> frozenset[str]:
    """The rare resources, in lower case, that the head node's labels declare."""
    declared = (key for key, value in head_labels.items() if key.startswith(ISOLATION_PREFIX) and value.lower() == "true")
    return frozenset(key.removeprefix(ISOLATION_PREFIX).lower() for key in declared)


def rare_taints(resources: Iterable[str], rare: frozenset[str]) -> list[str]:
    """The taint keys that a node with these resources carries, and that work asking for them tolerates."""
    return sorted({rare_resource_taint(name) for name in resources if name.lower() in rare})


@dataclass(frozen=True, init=False)
class Tolerations:
    """Which taints a piece of work accepts: a mapping of taint key to condition.

    Examples:
        >>> from remora import Exists, In
        >>> Tolerations({"gpu_node": Exists(), "gpu_type": In("A100")}).tolerates({"gpu_node": "true"})
        True
    """

    terms: tuple[LabelMatchExpression, ...]

    def __init__(self, tolerations: Any = None) -> None:
        if isinstance(tolerations, Tolerations):
            object.__setattr__(self, "terms", tolerations.terms)
            return
        if tolerations is None:
            tolerations = {}
        if not isinstance(tolerations, Mapping):
            raise InvalidTaintError(
                f"tolerations must map taint keys to conditions, not {tolerations!r}; for example {{'gpu_node': Exists()}}"
            )
        object.__setattr__(self, "terms", tuple(sorted(_parse_toleration(key, value) for key, value in tolerations.items())))

    @classmethod
    def of(cls, terms: Iterable[LabelMatchExpression]) -> Tolerations:
        """From terms that were parsed before."""
        made = cls()
        object.__setattr__(made, "terms", tuple(sorted(terms)))
        return made

    def tolerates(self, taints: Mapping[str, str]) -> bool:
        """Whether every one of these taints is accepted."""
        return all(self.tolerates_one(key, value) for key, value in taints.items())

    def tolerates_one(self, key: str, value: str) -> bool:
        return any(term.key == key and term.matches({key: value}) for term in self.terms)

    def also(self, key: str) -> Tolerations:
        """These tolerations, and the taint ``key`` with any value."""
        return Tolerations({**self.to_dict(), key: "exists()"})

    def to_dict(self) -> dict[str, str]:
        return {term.key: show_condition(term.operator, term.values) for term in self.terms}

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __repr__(self) -> str:
        return f"Tolerations({self.to_dict()})"


def _parse_toleration(key: str, condition: Any) -> LabelMatchExpression:
    try:
        validate_label_key(key)
        operator, values = parse_condition(key, condition)
    except (InvalidLabelError, InvalidSelectorError) as error:
        raise InvalidTaintError(f"bad toleration: {error}") from None
    if operator is LabelMatchOperator.DOES_NOT_EXIST:
        raise InvalidTaintError(
            f"the toleration of {key!r} says that the taint does not exist, which tolerates nothing: leave it out, or "
            f"write {{{key!r}: Exists()}}"
        )
    return LabelMatchExpression(key, operator, values)
