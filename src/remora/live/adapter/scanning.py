"""Take a serialized message apart without decoding it: where in the bytes each of its fields lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}

Part = tuple[int, int]
"""Where something begins, and where it ends."""


def fields(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of the message between ``begin`` and ``end``: the number of each, and where its value begins and ends."""
    while begin < end:
        tag, begin = varint(data, begin)
        kind = tag & 7
        if kind == _LENGTH:
            length, begin = varint(data, begin)
            stop = begin + length
        elif kind == _VARINT:
            _, stop = varint(data, begin)
        elif kind in _FIXED:
            stop = begin + _FIXED[kind]
        else:
            raise ValueError(
                f"byte {begin} of a message of {len(data)} is of kind {kind}: a message was expected to end elsewhere"
            )
        if stop > end:
            raise ValueError(f"a field of a message ends at byte {stop}, and the message at byte {end}: it is cut short")
        yield tag >> 3, begin, stop
        begin = stop


def parts(data: bytes, path: Sequence[int]) -> Iterator[Part]:
    """Every message that the numbers of fields lead to, one inside the other, from the outermost on."""
    found = [(0, len(data))]
    for number in path[:-1]:
        found = [(start, stop) for begin, end in found for each, start, stop in fields(data, begin, end) if each == number]
    for begin, end in found:
        for each, start, stop in fields(data, begin, end):
            if each == path[-1]:
                yield start, stop


def varint(data: bytes, at: int) -> Part:
    """The number that stands there, and where it ends."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
