"""The SQL-like string of Ray's node affinity proposal, option 4, kept small.

    clause   = question ["within" key]       (in the same domain of that label of nodes, instead of on the same node)
    question = key "in" list | key "not" "in" list | key "exists" | key "not" "exists" | key "=" value | key "!=" value
    list     = "[" value {"," value} "]"     (or with round brackets)
    query    = clause {"and" clause} | clause {"or" clause}

One pass over the text; AND and OR are not mixed, because nobody remembers which binds tighter.
"""

from __future__ import annotations

from typing import NoReturn

from remora.errors import InvalidSelectorError
from remora.model.operators import LabelMatchOperator

Question = tuple[str, LabelMatchOperator, tuple[str, ...]]
Clause = tuple[str, LabelMatchOperator, tuple[str, ...], str]

_SYMBOLS = frozenset("[](),=")
_NO_VALUES = _SYMBOLS | {"!=", "=="}
_EXAMPLE = "for example 'location in [dc_1, dc_2] and tier != spot'"
_LONGEST = 10_000


def parse_query(text: str) -> tuple[list[Clause], bool]:
    """The clauses of a query and whether they are joined by OR."""
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise InvalidSelectorError(f"the query has {len(text)} characters; at most {_LONGEST} are read, {_EXAMPLE}")
        self.text = text
        self.tokens = _tokenize(text)
        self.at = 0

    def query(self) -> tuple[list[Clause], bool]:
        clauses = [self.clause()]
        joiners = set()
        while self.at < len(self.tokens):
            joiner = self.take("'and' or 'or'").lower()
            if joiner not in ("and", "or"):
                self.fail(f"{joiner!r} stands where 'and', 'or' or 'within' belongs")
            joiners.add(joiner)
            clauses.append(self.clause())
        if len(joiners) == 2:
            self.fail("'and' and 'or' are mixed; use only one of them")
        return clauses, joiners == {"or"}

    def clause(self) -> Clause:
        question = self.question()
        if self.at == len(self.tokens) or self.tokens[self.at].lower() != "within":
            return (*question, "")
        self.at += 1
        topology = self.take("a label of nodes")
        if topology in _NO_VALUES or topology.lower() in ("and", "or", "within"):
            self.fail(f"{topology!r} stands where a label of nodes belongs")
        return (*question, topology)

    def question(self) -> Question:
        key = self.take("a label key")
        word = self.take("'in', 'not in', 'exists', '=' or '!='").lower()
        if word in ("=", "=="):
            return key, LabelMatchOperator.IN, (self.value(),)
        if word == "!=":
            return key, LabelMatchOperator.NOT_IN, (self.value(),)
        negated = word == "not"
        if negated:
            word = self.take("'in' or 'exists'").lower()
        if word == "in":
            return key, LabelMatchOperator.NOT_IN if negated else LabelMatchOperator.IN, self.values()
        if word in ("exists", "exist"):
            return key, LabelMatchOperator.DOES_NOT_EXIST if negated else LabelMatchOperator.EXISTS, ()
        return self.fail(f"{word!r} is no operator")

    def values(self) -> tuple[str, ...]:
        opening = self.take("'['")
        closing = {"[": "]", "(": ")"}.get(opening) or self.fail(f"{opening!r} stands where '[' belongs")
        values = [self.value()]
        while (token := self.take(f"',' or {closing!r}")) == ",":
            values.append(self.value())
        if token != closing:
            self.fail(f"{token!r} stands where {closing!r} belongs")
        return tuple(values)

    def value(self) -> str:
        token = self.take("a value")
        return self.fail(f"{token!r} stands where a value belongs") if token in _NO_VALUES else token.strip("'\"")

    def take(self, wanted: str) -> str:
        if self.at == len(self.tokens):
            self.fail(f"it ends where {wanted} belongs")
        self.at += 1
        return self.tokens[self.at - 1]

    def fail(self, why: str) -> NoReturn:
        shown = self.text if len(self.text) <= 80 else f"{self.text[:77]}..."
        raise InvalidSelectorError(f"the query {shown!r} cannot be read: {why}; {_EXAMPLE}")


def _tokenize(text: str) -> list[str]:
    tokens: list[str] = []
    word: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        step = 1
        if text[at : at + 2] in ("!=", "=="):
            step = 2
        if step == 2 or char in _SYMBOLS or char.isspace():
            _flush(word, tokens)
            if not char.isspace():
                tokens.append(text[at : at + step])
        else:
            word.append(char)
        at += step
    _flush(word, tokens)
    return tokens


def _flush(word: list[str], tokens: list[str]) -> None:
    if word:
        tokens.append("".join(word))
        word.clear()
