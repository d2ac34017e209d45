"""Messages are taken apart as the library of protocol buffers itself takes them apart."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from remora.live.adapter.scanning import fields, parts, varint

NUMBERS = st.integers(1, 2**29 - 1)
VARINTS = st.integers(0, 2**64 - 1)


def encoded(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def field(number: int, value: int | bytes, size: int = 0) -> bytes:
    """A number as a varint or in 4 or 8 bytes, or bytes with their length."""
    if isinstance(value, bytes):
        return encoded(number << 3 | 2) + encoded(len(value)) + value
    if size:
        return encoded(number << 3 | {8: 1, 4: 5}[size]) + value.to_bytes(size, "little")
    return encoded(number << 3) + encoded(value)


FIELDS = st.one_of(
    st.tuples(NUMBERS, VARINTS),
    st.tuples(NUMBERS, st.integers(0, 2**32 - 1), st.just(4)),
    st.tuples(NUMBERS, VARINTS, st.just(8)),
    st.tuples(NUMBERS, st.binary(max_size=300)),
)


def read(data: bytes) -> list[tuple[int, Any]]:
    return [(number, data[begin:end]) for number, begin, end in fields(data, 0, len(data))]


@given(st.lists(FIELDS, max_size=8))
def test_every_field_is_found_as_the_library_finds_it(given_fields):
    data = b"".join(field(*each) for each in given_fields)
    found = read(data)
    known = list(UnknownFieldSet(Empty.FromString(data)))
    assert [number for number, _ in found] == [each.field_number for each in known]
    for (_, value), each in zip(found, known, strict=True):
        if each.wire_type == 2:
            assert value == each.data
        elif each.wire_type == 0:
            assert varint(value, 0) == (each.data, len(value))
        else:
            assert int.from_bytes(value, "little") == each.data


@given(st.lists(st.lists(st.binary(max_size=200), max_size=4), max_size=4))
def test_messages_in_messages_are_found_in_order(inner):
    data = b"".join(field(1, 7) + field(2, b"".join(field(5, b"other") + field(3, each) for each in group)) for group in inner)
    assert [data[begin:end] for begin, end in parts(data, (2, 3))] == [each for group in inner for each in group]


@pytest.mark.parametrize(
    ("data", "message"),
    [(field(2, b"too short")[:-1], "cut short"), (encoded(1 << 3 | 4), "kind 4"), (field(1, 1, 8)[:-1], "cut short")],
)
def test_what_is_no_message_is_named(data, message):
    with pytest.raises(ValueError, match=message):
        read(data)
