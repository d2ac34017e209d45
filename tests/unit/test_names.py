"""What Remora reads of Ray is what ``names`` lists: in the source as it is, both ways, and in the Ray that is there."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import functools
import importlib
import inspect
import logging
import mmap
import os
import re
import struct
import sys
import textwrap
import threading
from collections import deque
from datetime import datetime
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, GeneratorType, ModuleType
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from ray import ActorID, ObjectRef
from ray.actor import ActorClass, ActorHandle
from ray.exceptions import RayTaskError
from ray.job_submission import JobDetails, JobSubmissionClient
from ray.remote_function import RemoteFunction
from ray.runtime_context import RuntimeContext
from tests import rays

import remora
from remora.live import names
from remora.live.adapter import machine_messages, messages, node_messages

SAME = {
    "ray._private.worker.global_worker.core_worker": "ray._raylet.CoreWorker",
    "ray._private.worker._global_node": "ray._private.node.Node",
}
"""Where something is found, and the class that it is of, whose attributes are listed."""

PLAIN: tuple[Any, ...] = (
    *(str, bytes, int, float, list, dict, set, tuple, object, type, Exception, FunctionType, ModuleType, ModuleSpec),
    *(Path, os.stat_result, struct.Struct, mmap.mmap, inspect.Parameter, logging.Logger, contextlib.ExitStack),
    *(contextvars.ContextVar, threading.Thread, threading.Timer, threading.Event, threading.Condition, threading.Lock()),
    *(asyncio.AbstractEventLoop, grpc.Channel, ast, ast.__spec__, functools.wraps(len)(lambda: None)),
    *(GeneratorType, datetime, deque, re.Match, re),
    *(RuntimeContext, RemoteFunction, ActorClass, ActorHandle, ActorID, ObjectRef, RayTaskError, JobSubmissionClient),
)
"""The standard library, and what Ray documents: whose attributes are no secret."""

OWN = {"depth", "cause", *JobDetails.model_fields, *rays.own_attributes()}
"""Attributes of ours, also of objects that are nobody's; and those of what Ray documents that only instances have."""


@pytest.fixture(scope="module")
def found() -> rays.Found:
    return rays.read(rays.sources())


def listed() -> set[str]:
    every = (*names.TOUCHED, *names.STATE_API, *names.JOBS, *names.SCALING, *names.OPTIONAL)
    return {f"{name.module}.{name.path}".rstrip(".") for name in every}


def is_listed(path: str, known: set[str]) -> bool:
    """Itself, on the way to what is, or an attribute that any list, name or logger has."""
    for place, kind in SAME.items():
        path = path.replace(f"{place}.", f"{kind}.")
    owner, _, last = path.rpartition(".")
    return path in known or any(each.startswith(f"{path}.") for each in known) or (owner in known and last in plain())


def plain() -> set[str]:
    return {name for kind in PLAIN for name in dir(kind)}


def unlisted(found: rays.Found) -> list[str]:
    """What is read and not listed, each with where."""
    known, private = listed(), {path: at for path, at in found.paths.items() if not rays.is_public(path)}
    private = {path: at for path, at in private.items() if not path.startswith("ray.core.generated.")}  # see the fields
    given = (*names.TOUCHED, *names.SCALING)
    parts = {part for path in known for part in path.split(".")} | {each for name in given for each in name.parameters}
    fields = {field for message in names.MESSAGES for field in message.fields}
    missing = {path: at for path, at in private.items() if not is_listed(path, known)}
    missing |= {name: at for name, at in found.attributes.items() if name not in parts | fields | plain() | OWN | rays.OF_ALL}
    missing |= {name: at for name, at in found.parameters.items() if name not in parameters(_SUBMITTING)}
    missing |= {name: at for name, at in found.keywords.items() if _is_unknown(name)}
    missing |= {name: at for name, at in found.methods.items() if name not in names.METHODS}
    missing |= {text: at for text, at in found.texts.items() if text not in {each.text for each in names.TEXTS}}
    return sorted(f"{what} ({at})" for what, at in missing.items())


_SUBMITTING = ("CoreWorker.submit_task", "CoreWorker.create_actor", "CoreWorker.create_placement_group")


def parameters(paths: tuple[str, ...]) -> set[str]:
    return {each for name in names.TOUCHED if name.path in paths for each in name.parameters}


def _is_unknown(keyword: str) -> bool:
    path, _, parameter = keyword.rstrip(")").partition("(")
    if rays.is_public(path) or path.startswith("ray.core.generated."):
        return False
    every = (*names.TOUCHED, *names.STATE_API)
    return not any(f"{name.module}.{name.path}" == path and parameter in name.parameters for name in every)


# ------------------------------------------------------------------------------------------------ the list and the source


def test_everything_that_is_read_of_ray_is_listed(found):
    assert unlisted(found) == [], "add these to names.py, with why they are read"


def test_every_field_and_value_of_a_message_that_is_read_is_listed_and_no_other():
    read: rays.Reads = {}
    lost: rays.Reads = {}
    for module in (messages, node_messages, machine_messages):
        fields = rays.Fields(module)
        read |= fields.found
        lost |= fields.lost
    known = {
        f"{_class(message).DESCRIPTOR.full_name}.{field}": message for message in names.MESSAGES for field in message.fields
    }
    assert sorted(read.keys() - known.keys()) == [], "add these to names.MESSAGES"
    assert sorted(known.keys() - read.keys()) == [], "nobody reads these"
    strange = {name: at for name, at in lost.items() if name not in plain()}
    assert strange == {}, "of which message are these? write its type down"


def _class(message: names.Message) -> Any:
    found: Any = importlib.import_module(message.module)
    for part in message.path.split("."):
        found = getattr(found, part)
    return found


def test_messages_are_looked_into_in_these_modules_only(found):
    elsewhere = [at for path, at in found.paths.items() if path.startswith("ray.core.generated") and "messages.py" not in at]
    assert elsewhere == []


def test_everything_that_is_listed_is_read(found):
    words = found.words | rays.read({"run_env.py": ast.parse((rays.PACKAGE / "wire/run_env.py").read_text())}).words
    every = (*names.TOUCHED, *names.STATE_API, *names.JOBS, *names.SCALING, *names.OPTIONAL)
    assert [name.path for name in every if name.path and name.path.rpartition(".")[2] not in words] == []
    assert parameters(_SUBMITTING) - found.parameters.keys() == set()
    assert set(names.METHODS) - found.methods.keys() == set()
    assert {each.text for each in names.TEXTS} - found.texts.keys() == set()


def test_nothing_is_listed_twice():
    every = [(name.module, name.path) for name in (*names.TOUCHED, *names.STATE_API, *names.JOBS)]
    every += [(name.module, name.path) for name in (*names.SCALING, *names.OPTIONAL)]
    every += [(message.module, message.path) for message in names.MESSAGES]
    assert len(every) == len(set(every))


# ------------------------------------------------------------------------------------------------ whether the test can see


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("import ray\nray._private.worker.global_worker.secret", "ray._private.worker.global_worker.secret"),
        ("from ray._private import worker\nworker.global_worker.core_worker.secret()", "global_worker.core_worker.secret"),
        ("from ray._raylet import Secret", "ray._raylet.Secret"),
        ("import ray\ndef f():\n    w = ray._private.worker.global_worker\n    return w.secret", "global_worker.secret"),
        ("def f(worker):\n    return worker.its_secret", "its_secret"),
        ("import sys\nsys.modules['ray.actor']._secret", "ray.actor._secret"),
        ("_NAME = 'ray._private.secret'", "ray._private.secret"),
        ("def f(call):\n    return call['secret']", "secret"),
        ("from ray._private.internal_api import node_stats\nnode_stats(secret=1)", "node_stats(secret)"),
        ("CALL = '/ray.rpc.NodeInfoGcsService/Secret'", "NodeInfoGcsService/Secret"),
        ("def f(error):\n    return 'secret words' in str(error)", "secret words"),
    ],
)
def test_what_is_not_listed_is_found(code, want):
    (missing,) = unlisted(rays.read({"made.py": ast.parse(code)}))
    assert want in missing


@pytest.mark.parametrize(
    "code",
    [
        "import ray\nray.get(ray.put(1), timeout=3)",
        "import ray\nray._private.worker.global_worker.gcs_client.internal_kv_get(b'', b'').decode()",
        "from ray._private import worker\nworker._post_init_hooks.append(1)",
        "from ray.exceptions import GetTimeoutError",
    ],
)
def test_what_is_public_or_listed_is_not(code):
    assert unlisted(rays.read({"made.py": ast.parse(code)})) == []


def test_a_field_is_known_with_the_message_that_it_is_of(tmp_path, monkeypatch):
    code = """
    from ray.core.generated.gcs_pb2 import ActorTableData, PlacementGroupTableData
    def f(data: ActorTableData, other):
        where = data.address
        return where.port, [bundle.label_selector for bundle in PlacementGroupTableData.FromString(b"").bundles], other.lost
    def g() -> None:
        ActorTableData(pid=1, state=ActorTableData.DEAD).HasField("death_cause")
    """
    (tmp_path / "made_messages.py").write_text(textwrap.dedent(code), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    fields = rays.Fields(importlib.import_module("made_messages"))
    del sys.modules["made_messages"]
    assert sorted(fields.found) == [
        "ray.rpc.ActorTableData.DEAD",
        "ray.rpc.ActorTableData.address",
        "ray.rpc.ActorTableData.death_cause",
        "ray.rpc.ActorTableData.pid",
        "ray.rpc.ActorTableData.state",
        "ray.rpc.Address.port",
        "ray.rpc.Bundle.label_selector",
        "ray.rpc.PlacementGroupTableData.bundles",
    ]
    assert set(fields.lost) == {"lost"}


# ------------------------------------------------------------------------------------------------ the list and this Ray


def test_this_ray_has_everything():
    names.probe()
    for some in (names.STATE_API, names.JOBS, names.SCALING):
        with contextlib.suppress(ImportError):
            names.probe(some)


@pytest.mark.parametrize(
    ("part", "entry", "message"),
    [
        ("TOUCHED", names.Name("ray._raylet", "CoreWorker.no_such", "x"), r"_raylet\.CoreWorker\.no_such is missing"),
        ("TOUCHED", names.Name("ray.no_such", "x", "x"), r"ray\.no_such\.x is missing"),
        ("TOUCHED", names.Name("ray._raylet", "CoreWorker.submit_task", "x", ("no_such",)), r"submit_task takes no 'no_such'"),
        ("MESSAGES", names.Message("ray.core.generated.gcs_pb2", "NoSuch", ()), r"gcs_pb2\.NoSuch is missing"),
        ("MESSAGES", names.Message("ray.core.generated.gcs_pb2", "ActorTableData", ("no_such",)), r"has no 'no_such'"),
        ("MESSAGES", names.Message("ray.core.generated.common_pb2", "TaskStatus", ("NO_SUCH",)), r"has no 'NO_SUCH'"),
        ("METHODS", "/ray.rpc.NodeInfoGcsService/NoSuch", r"NodeInfoGcsService/NoSuch is missing"),
        ("METHODS", "/ray.rpc.NoSuchService/GetAllNodeInfo", r"NoSuchService/GetAllNodeInfo is missing"),
        ("TEXTS", names.Text("ray._private.worker", "init", "no such words", "x"), r"init never says 'no such words'"),
    ],
)
def test_what_this_ray_lacks_is_named_before_anything_is_touched(monkeypatch, part, entry, message):
    monkeypatch.setattr(names, part, (*getattr(names, part), entry))
    with pytest.raises(remora.IncompatibleRayError, match=message):
        names.probe()
