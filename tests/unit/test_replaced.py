"""Whatever is replaced in a process is replaced by ``install``, which lists it and puts it back: looked for in the modules as
they are, and in the source."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import remora

SOURCE = Path(remora.__file__).parent
INSTALL = SOURCE / "live" / "attach" / "install.py"

LOOK = textwrap.dedent(
    """
    import asyncio, concurrent.futures, json, sys, threading, types
    import ray, ray.util.placement_group, ray.util.scheduling_strategies, ray.autoscaler.sdk
    from remora.live.attach import install
    from remora.live.clusters import entering, scopes
    from remora.live.submit import submitter
    from remora.wire.rewrite import Defaults

    def names():
        '''Return what stands under each name of a module that is not ours, and of each class or object that it names.'''
        found = {}
        for module in list(sys.modules.values()):
            if module.__name__.split(".")[0] in ("remora", "__main__"):
                continue
            for name, value in list(vars(module).items()):
                found[id(module), name] = (module, value)
                if not isinstance(value, (types.ModuleType, types.FunctionType, dict)):
                    for key, inner in list(getattr(value, "__dict__", {}).items()):
                        found[id(value), key] = (value, inner)
        return found

    def changed(before, after):
        '''Return what is new or other than before under the names of owners that were there before.'''
        owners, nothing = {owner for owner, _ in before}, (None, None)
        both = {key: (before.get(key, nothing), after.get(key, nothing)) for key in {*before, *after} if key[0] in owners}
        return {key: new[0] or old[0] for key, (old, new) in both.items() if old[1] is not new[1]}

    def shown(keys):
        return sorted(f"{getattr(owner, '__name__', type(owner).__name__)}.{name}" for (_, name), owner in keys.items())

    install.install(Defaults())  # imports what it needs
    install.uninstall()
    before = names()
    installation = install.install(Defaults())
    scopes.enter(scopes.Scope("vc1"))
    inside = changed(before, names())
    listed = {(id(owner), name) for owner, name in installation.replaced}
    install.uninstall()
    print(json.dumps({
        "unlisted": shown({key: owner for key, owner in inside.items() if key not in listed}),
        "replaced": shown({key: owner for key, owner in inside.items() if key in listed}),
        "left": shown(changed(before, names())),
    }))
    """
)


def test_what_is_other_in_an_attached_process_is_listed_and_put_back() -> None:
    """In a process of its own, and inside of a virtual cluster."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert seen["unlisted"] == []
    assert seen["left"] == []
    some = {"Thread.start", "ThreadPoolExecutor.submit", "RemoteFunction._remote", "GlobalState.node_table", "ray.wait"}
    assert some <= set(seen["replaced"])


def test_nobody_else_assigns_to_what_is_not_ours() -> None:
    found = {
        str(path.relative_to(SOURCE)): places
        for path in sorted(SOURCE.rglob("*.py"))
        if path != INSTALL and (places := foreign_assignments(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_an_assignment_to_what_is_not_ours_is_found() -> None:
    code = """
    import threading
    import os.path as paths
    from concurrent.futures import ThreadPoolExecutor as Pool
    from remora.live import names

    threading.Thread.start = None
    paths.join += ""
    names.NEW = 1
    def later():
        Pool.submit, other = None, 1
        setattr(threading.Thread, "run", other)
        del threading.Thread.name
        setattr(other, "run", None)
        other.run = None
    """
    assert foreign_assignments(textwrap.dedent(code)) == [
        "Pool.submit = ...",
        "del threading.Thread.name",
        "paths.join = ...",
        "setattr(threading.Thread)",
        "threading.Thread.start = ...",
    ]


def foreign_assignments(code: str) -> list[str]:
    """Return where attributes of something that was imported from elsewhere are set or deleted."""
    tree = ast.parse(code)
    foreign = set(_imported(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and _root(node) in foreign:
            text = ast.unparse(node)
            found.append(f"{text} = ..." if isinstance(node.ctx, ast.Store) else f"del {text}")
        elif isinstance(node, ast.Call) and _root(node.func) in ("setattr", "delattr") and _root(node.args[0]) in foreign:
            found.append(f"{ast.unparse(node.func)}({ast.unparse(node.args[0])})")
    return sorted(found)


def _imported(tree: ast.AST) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names += [
                each.asname or each.name.split(".")[0] for each in node.names if (module or each.name).split(".")[0] != "remora"
            ]
    return names


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
