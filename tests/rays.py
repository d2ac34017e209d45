"""What the source of ``remora.live`` reads of Ray, found in its syntax: for ``tests/unit/test_names.py``.

- *Paths*: what is imported from Ray, and every dotted way that begins there, also over a variable that it was assigned to.
- *Fields* and values of messages, in two modules where every message has its type written down.
- *Attributes* that neither Remora nor the standard library nor anything public has: they can only be Ray's. One that we have
  too (``actor_id``) is found only where the way to it can be followed.
- *Parameters* of the core worker, as ``call["resources"]`` or ``at["resources"]``; of others, where they are named in a call.
- *Methods* of GCS and *texts* of errors, which are strings.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1] / "src/remora"
LIVE = PACKAGE / "live"

Reads = dict[str, str]
"""Something of Ray's, and a place where it is read."""


class Found(NamedTuple):
    paths: Reads
    keywords: Reads
    attributes: Reads
    parameters: Reads
    methods: Reads
    texts: Reads
    words: set[str]  # every name and string of the source


def sources(folder: Path = LIVE) -> dict[str, ast.Module]:
    """The modules of the package, but for the list itself."""
    return {
        file.name: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(folder.rglob("*.py")) if file.stem != "names"
    }


def read(modules: dict[str, ast.Module]) -> Found:
    found = Found({}, {}, {}, {}, {}, {}, set())
    for name, tree in modules.items():
        _Ways(name, found).visit(tree)
        _strings(name, tree, found)
    return found


class _Ways(ast.NodeVisitor):
    """Follows dotted ways through one module. ``known`` says what a variable stands for, in the function at hand."""

    def __init__(self, name: str, found: Found) -> None:
        self.name = name
        self.found = found
        self.known: dict[str, str] = {}

    def path(self, node: ast.AST | None) -> str | None:
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return None if base is None else f"{base}.{node.attr}"
        if (
            isinstance(node, ast.Subscript)
            and ast.unparse(node.value) == "sys.modules"
            and isinstance(node.slice, ast.Constant)
        ):
            return str(node.slice.value)
        return None

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self.known[alias.asname or first] = alias.name if alias.asname else first
            self._note(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            path = self.known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            self._note(path, node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = dict(self.known)
        for argument in (*node.args.args, *node.args.kwonlyargs):
            self.known.pop(argument.arg, None)
        self.generic_visit(node)
        self.known = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            for name, value in pairs(target, node.value):
                self.known.pop(name, None)
                if (path := self.path(value)) is not None:
                    self.known[name] = path

    def visit_Call(self, node: ast.Call) -> None:
        path = self.path(node.func)
        if path is not None and is_rays(path):
            for keyword in node.keywords:
                if keyword.arg is not None:
                    self.found.keywords.setdefault(f"{path}({keyword.arg})", self._at(node))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self.path(node)
        if path is None:
            self.found.attributes.setdefault(node.attr, self._at(node))
            self.generic_visit(node)
        else:
            self._note(path, node)

    def _note(self, path: str, node: ast.AST) -> None:
        if is_rays(path):
            self.found.paths.setdefault(path, self._at(node))

    def _at(self, node: Any) -> str:
        return f"{self.name}:{node.lineno}"


def _strings(name: str, tree: ast.Module, found: Found) -> None:
    for node in ast.walk(tree):
        at = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            in_call = name == "proxy.py" and ast.unparse(node.value) == "self"
            if in_call or ast.unparse(node.value) in ("at", "call", "signature.at"):
                found.parameters.setdefault(node.slice.value, at)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "call.given" and isinstance(node.args[0], ast.Constant):
            found.parameters.setdefault(str(node.args[0].value), at)
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            if isinstance(node.ops[0], ast.In | ast.NotIn) and ast.unparse(node.comparators[0]).startswith("str("):
                found.texts.setdefault(node.left.value, at)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.words.add(node.value)
            if node.value.startswith("/ray.rpc."):
                found.methods.setdefault(node.value, at)
            elif node.value.startswith("ray.") and all(part.isidentifier() for part in node.value.split(".")):
                found.paths.setdefault(node.value, at)
        elif isinstance(node, ast.Attribute):
            found.words.add(node.attr)
        elif isinstance(node, ast.alias):
            found.words.update(node.name.split("."))
        elif isinstance(node, ast.Name):
            found.words.add(node.id)


def pairs(target: ast.AST, value: ast.AST | None) -> Iterator[tuple[str, ast.AST | None]]:
    """Each name that is assigned to, and what; None where that cannot be told."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        values: list[Any] = list(value.elts) if isinstance(value, ast.Tuple) else [None] * len(target.elts)
        for each, one in zip(target.elts, values, strict=True):
            yield from pairs(each, one)


def is_rays(path: str) -> bool:
    return path.partition(".")[0] == "ray"


def is_public(path: str) -> bool:
    """Whether Ray documents it: one of the names of ``ray`` itself, or marked as part of its interface, or an attribute of such
    a thing without an underscore."""
    import ray

    if path.startswith(_PUBLIC):
        return True
    parts = path.split(".")
    found: Any = ray
    for at, part in enumerate(parts[1:], start=1):
        if part.startswith("_") and not (at == 1 and part in ray.__all__):
            return False
        try:
            found = importlib.import_module(".".join(parts[: at + 1]))
        except ImportError:
            found = getattr(found, part)
        if isinstance(found, type(ray)):
            continue
        name = getattr(found, "__name__", None)
        if (at == 1 and part in ray.__all__) or (name is not None and getattr(found, "_annotated", None) == name):
            return not any(each.startswith("_") for each in parts[at + 1 :])
    return isinstance(found, type(ray)) and not any(part in _INTERNAL for part in parts)


_PUBLIC = ("ray.job_submission.",)
"""Modules that Ray documents without marking what is in them."""

_INTERNAL = ("core", "dashboard", "remote_function", "tracing", "serialization_addons")
"""Modules of Ray's that are nobody's interface, though their names do not say so."""


def own_attributes() -> set[str]:
    """Every attribute that Remora itself defines: functions, classes, fields, and what is assigned to ``self``."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        found.add(file.stem)
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            if isinstance(node, ast.ClassDef | ast.Module):
                found |= {name for each in node.body for name in _assigned(each)}
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
                found.add(node.attr)
    return found


def _assigned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (name for name, _ in pairs(target, None))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


# ------------------------------------------------------------------------------------------------------------- fields

OF_ALL = {
    "ClearField",
    "DESCRIPTOR",
    "FromString",
    "HasField",
    "Name",
    "SerializeToString",
    "Value",
    "WhichOneof",
    "add",
    "fields_by_name",
    "number",
}
"""What every message or enumeration has."""


class _Many(NamedTuple):
    """A field with several messages."""

    of: Any


class Fields(ast.NodeVisitor):
    """Follows messages through the functions of one module, by the types that are written down: ``found`` has each field and
    value with its message, ``lost`` what could not be followed."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.known: dict[str, Any] = {}  # a variable: a message's descriptor, or several
        self.ours: dict[str, Any] = {}  # or a class of the module itself
        self.found: Reads = {}
        self.lost: Reads = {}
        self.file = Path(str(module.__file__))
        self.visit(ast.parse(self.file.read_text(encoding="utf-8")))

    def type_of(self, node: ast.AST | None) -> Any:
        """The message that an expression is, if it is one."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.type_of(node.value)
            field = base.fields_by_name.get(node.attr) if base is not None and not isinstance(base, _Many) else None
            return None if field is None else _type_of_field(field)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "FromString":
                return self.message(node.func.value)
            if ast.unparse(node.func) == "sorted":
                return self.type_of(node.args[0])
            return self.message(node.func)
        return None

    def message(self, node: ast.AST) -> Any:
        """The descriptor of the message class that an expression names."""
        found = self._object(node)
        descriptor = getattr(found, "DESCRIPTOR", None)
        return descriptor if hasattr(descriptor, "fields_by_name") else None

    def _object(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            found = getattr(self.module, node.id, None)
            return found if getattr(found, "DESCRIPTOR", None) is not None else None
        if isinstance(node, ast.Attribute):
            return getattr(self._object(node.value), node.attr, None)
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        typed = [(each.arg, each.annotation) for each in node.args.args if each.annotation is not None]
        self.known = {name: self.message(annotation) for name, annotation in typed}
        self.ours = {name: getattr(self.module, ast.unparse(annotation), None) for name, annotation in typed}
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.known[node.target.id] = self.message(node.annotation)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            for name, value in pairs(target, node.value):
                self.known[name] = self.type_of(value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._each(node.target, node.iter)
        self.generic_visit(node)

    def visit_GeneratorExp(self, node: Any) -> None:
        for each in node.generators:
            self._each(each.target, each.iter)
        self.generic_visit(node)

    visit_ListComp = visit_DictComp = visit_GeneratorExp  # noqa: N815

    def _each(self, target: ast.AST, several: ast.AST) -> None:
        many = self.type_of(several)
        if isinstance(target, ast.Name):
            self.known[target.id] = many.of if isinstance(many, _Many) else None

    def visit_Call(self, node: ast.Call) -> None:
        made = self.message(node.func)
        if isinstance(node.func, ast.Attribute):
            base = self.type_of(node.func.value)
            if node.func.attr == "add" and isinstance(base, _Many):
                made = base.of
            if node.func.attr in ("HasField", "WhichOneof") and base is not None and isinstance(node.args[0], ast.Constant):
                self._note(base, str(node.args[0].value), node)
        for keyword in node.keywords if made is not None else []:
            self._note(made, str(keyword.arg), node)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if (
            len(node.elts) == 2
            and isinstance(node.elts[1], ast.Constant)
            and (message := self.message(node.elts[0])) is not None
        ):
            self._note(message, str(node.elts[1].value), node)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = self.type_of(node.value)
        if base is not None and not isinstance(base, _Many) and node.attr not in OF_ALL:
            self._note(base, node.attr, node)
        elif (owner := self._object(node.value)) is not None:
            if isinstance(getattr(owner, node.attr, None), int):
                self._note(owner.DESCRIPTOR, node.attr, node)
        elif base is None and node.attr not in OF_ALL and not self._is_ours(node):
            self.lost.setdefault(node.attr, f"{self.file.name}:{node.lineno}")
        self.generic_visit(node)

    def _is_ours(self, node: ast.Attribute) -> bool:
        name = ast.unparse(node.value)
        owner = self.ours.get(name) or getattr(self.module, name, None)
        return getattr(owner, "__module__", None) == self.module.__name__ and hasattr(owner, node.attr)

    def _note(self, descriptor: Any, name: str, node: Any) -> None:
        self.found.setdefault(f"{descriptor.full_name}.{name}", f"{self.file.name}:{node.lineno}")


def _type_of_field(field: Any) -> Any:
    message = field.message_type
    if message is None or message.GetOptions().map_entry:
        return None
    return _Many(message) if field.is_repeated else message
