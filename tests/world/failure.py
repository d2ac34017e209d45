"""What a life ends with when a rule was broken."""

from __future__ import annotations


class Failure(BaseException):
    """No part of the world or of Remora contains it, whatever else it contains. ``rule`` is the same for all failures of one
    kind; ``what`` says who broke it and how."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what
