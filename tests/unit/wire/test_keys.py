"""Entries in the store: every key has one kind, entries say their version, and what was written before that is read."""

import json
from typing import Any

import msgspec
import pytest

from remora.errors import UnreadableEntryError
from remora.wire import keys
from remora.wire.group_plans import WAITING, GroupPlan, LateEntry, signal_id
from remora.wire.keys import (
    CLASSES,
    CLUSTERS,
    FENCES,
    GENERATION,
    HOLDS,
    JOURNAL,
    KINDS,
    LATE_GROUPS,
    OBJECTS,
    OVERRIDES,
    TASK_LEASES,
    FenceEntry,
    Kind,
    LabelledObject,
    Overrides,
    TaskLease,
    kind_of,
    read_entry,
    write_entry,
)

BODIES: list[tuple[Kind[Any], Any]] = [
    (CLASSES, {"choices": [], "demand": {}, "cluster": None, "takers": ""}),
    (OVERRIDES, Overrides({"zone": "a", "old": None}, {"gpu": "true"})),
    (TASK_LEASES, TaskLease("01000000", "{}", "abc")),
    (OBJECTS, LabelledObject((("k", "v"),), "n1", "default", "01000000")),
    (CLUSTERS, {"spec": {}, "parent": None}),
    (HOLDS, {"remora/class/ab": 0.0001}),
    (FENCES, FenceEntry(["ab"], ["vc1"])),
    (GENERATION, 7),
    (JOURNAL, [{"at": "2026-01-01", "kind": "fence", "subject": "n1", "text": "up"}]),
    (LATE_GROUPS, LateEntry(WAITING, GroupPlan("ab" * 18, b"{}", "01000000"), "it is full", ["wait"])),
]


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=[kind.prefix for kind, _ in BODIES])
def test_what_is_written_is_read(kind, body):
    data = kind.write(body)
    assert kind.read(data) == body
    assert read_entry(data)[0] == kind.version == 2


def test_every_kind_has_a_body_in_this_test():
    assert [kind for kind, _ in BODIES] == list(KINDS)


# As Remora wrote them before entries had versions.
VERSION_1 = [
    (CLASSES, b'{"choices":[],"cluster":null,"demand":{}}', {"choices": [], "cluster": None, "demand": {}}),
    (OVERRIDES, b'{"labels": {"zone": null}, "taints": {"t": "v"}}', Overrides({"zone": None}, {"t": "v"})),
    (OVERRIDES, b"{}", Overrides()),
    (TASK_LEASES, b'["01000000", "{\\"kind\\":\\"task\\"}"]', TaskLease("01000000", '{"kind":"task"}')),
    (OBJECTS, b'[[["k", "v"]], "n1", "default", "01000000"]', LabelledObject((("k", "v"),), "n1", "default", "01000000")),
    (CLUSTERS, b'{"spec":{"a":1},"berth":null}', {"spec": {"a": 1}, "berth": None}),
    (HOLDS, b'{"remora/class/ab": 0.0001}', {"remora/class/ab": 0.0001}),
    (FENCES, json.dumps([["ab"], ["vc1"]]).encode(), FenceEntry(["ab"], ["vc1"])),
    (GENERATION, b"12", 12),
    (JOURNAL, b'[{"kind":"fence"}]', [{"kind": "fence"}]),
]


@pytest.mark.parametrize(("kind", "data", "want"), VERSION_1)
def test_what_was_written_without_a_version_is_read(kind, data, want):
    assert read_entry(data)[0] == 1
    assert kind.read(data) == want


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"hello", b"\x92\x02", msgspec.msgpack.encode("text")])
def test_what_is_no_entry_is_said_to_be_none(data):
    with pytest.raises(UnreadableEntryError, match="no entry of Remora's"):
        read_entry(data)


def test_a_newer_entry_is_refused_with_what_to_do():
    with pytest.raises(UnreadableEntryError, match="has version 3, written by a newer Remora; this one reads up to 2"):
        HOLDS.read(write_entry(3, {}))


@pytest.mark.parametrize(
    ("kind", "data"), [(TASK_LEASES, b"{}"), (OBJECTS, b"[1]"), (GENERATION, b'"x"'), (HOLDS, write_entry(2, [1]))]
)
def test_a_body_of_another_form_is_named_with_its_kind(kind, data):
    with pytest.raises(UnreadableEntryError, match=f"under '{kind.prefix}' is not as version"):
        kind.read(data)


def test_a_key_is_of_one_kind_only():
    for kind, _ in BODIES:
        key = kind.key() if kind.prefix[-1] != "/" else kind.key("a", "b")
        assert kind_of(key) is kind
    assert HOLDS.parts(HOLDS.key("n1", "hold-1")) == ["n1", "hold-1"]
    assert kind_of("eventsourcing") is None
    assert GENERATION in keys.OUTLIVES_WITHDRAWAL


def test_whoever_waits_for_a_late_group_waits_for_another_id_of_the_same_job():
    group_id = "cf5955fda917e352520c7f7fdb4a01000000"
    assert signal_id(group_id) == "ce5955fda917e352520c7f7fdb4a01000000"
    assert signal_id(signal_id(group_id)) == group_id
