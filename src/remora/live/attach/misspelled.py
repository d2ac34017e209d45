"""What Ray says of an option that does not exist, with what was probably meant."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from remora.model.close_names import did_you_mean


def with_what_was_meant(stock: Any, known: Mapping[str, Any]) -> Any:
    """Return Ray's check of options, which refuses the same, and says ``did you mean``."""

    @functools.wraps(stock)
    def validate(options: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        try:
            stock(options, *args, **kwargs)
        except ValueError as error:
            unknown = next((name for name in options if name not in known), None)
            hint = did_you_mean(unknown, known) if unknown is not None else ""
            if not hint:
                raise
            raise ValueError(f"{error} {hint.removeprefix(': ').capitalize()}") from None

    return validate
