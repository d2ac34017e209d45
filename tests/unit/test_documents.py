"""What the README and the documentation say holds: blocks run, commands and files parse, links lead somewhere."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.documents import PAGES, ROOT, blocks, commands, languages, text_of, verb, with_blocks
from typer.testing import CliRunner

import remora
from remora.cli.main import app
from remora.controller.views.metric_names import METRICS
from remora.machine.nodes_file import parse_nodes
from remora.machine.written import labels_of
from remora.model.labels import parse_labels
from remora.model.node_types import parse_node_types
from remora.model.taints import rare_resources, split_taints
from remora.sim.scenario import parse_scenario
from remora.sim.scenario_run import run_scenario

COMMANDS = sorted({command for page in PAGES for command in commands(page)})
OF_REMORA = [command for command in COMMANDS if verb(command)[0] == "remora"]
FILES = [(page, text.lstrip("\n")) for page in PAGES for text in blocks(page, "yaml")]
LINKS = sorted({(page, link) for page in PAGES for link in re.findall(r"\]\((?!http|#)([^)#]+)", text_of(page))})
TARGETS = sorted({found for page in PAGES for found in re.findall(r"(?:^|`)make (\w+)", text_of(page), re.MULTILINE)})


@pytest.mark.parametrize("page", with_blocks("python"))
def test_the_blocks_that_need_no_ray_run_as_they_stand(page: str):
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_tried(page: str):
    assert languages(page) <= {"python", "py", "sh", "yaml"}


@pytest.mark.parametrize("command", OF_REMORA)
def test_every_command_has_the_options_that_it_is_shown_with(command: str):
    words = shlex.split(command)[1:]
    context: Any = None
    known: Any = typer.main.get_command(app)
    while hasattr(known, "resolve_command"):
        context = known.make_context(known.name, words, parent=context)
        _, known, words = known.resolve_command(context, [*context._protected_args, *context.args])
    known.make_context(known.name, words, parent=context)


@pytest.mark.parametrize("command", [command for command in OF_REMORA if verb(command)[1] == "start"])
def test_every_start_becomes_a_start_of_ray(command: str, monkeypatch: pytest.MonkeyPatch):
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append(arguments))
    monkeypatch.setenv("REMORA_METADATA", "off")
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert (done.exit_code, len(started)) == (0, 1), done.output
    assert "start" in started[0]


@pytest.mark.parametrize("command", [command for command in OF_REMORA if verb(command)[1] in ("simulate", "plan")])
def test_every_simulation_and_every_plan_can_be_played(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for index, (_, text) in enumerate(FILES):
        name = re.match(r"# (\S+\.yaml)\n", text)
        (tmp_path / (name.group(1) if name else f"{index}.yaml")).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("page", "text"), FILES, ids=[page for page, _ in FILES])
def test_every_file_is_one_that_can_be_read(page: str, text: str):
    body = yaml.safe_load(text)
    if "arrivals" in body:
        run_scenario(parse_scenario(text))
    elif "groups" in body:  # rules for Prometheus: about what is exported
        exprs = [rule["expr"] for group in body["groups"] for rule in group["rules"]]
        known = {f"ray_{metric.name}" for metric in METRICS}
        assert exprs
        assert {name for expr in exprs for name in re.findall(r"ray_remora_\w+", expr)} <= known
    elif "nodes" in body:
        assert parse_nodes(text, page)
    elif "node_types" in body or "available_node_types" in body:
        assert parse_node_types(body).types
        assert not parse_node_types(body).problems
    else:
        spec = body.get("spec", body)
        for group in (*filter(None, [spec.get("headGroupSpec")]), *spec["workerGroupSpecs"]):
            found = group.get("labels") or labels_of([group["rayStartParams"]["labels"]])
            plain, taints = split_taints(dict(parse_labels(found)))
            assert taints or rare_resources(plain)


@pytest.mark.parametrize("target", TARGETS)
def test_every_make_target_that_is_named_exists(target: str):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("page", "link"), LINKS, ids=[f"{page}-{link}" for page, link in LINKS])
def test_every_link_into_the_project_leads_somewhere(page: str, link: str):
    assert ((ROOT / page).parent / link).exists()


def test_the_reference_has_every_name_and_every_command():
    generate = runpy.run_path(str(ROOT / "docs" / "generate.py"))["on_page_markdown"]
    names, shown = generate("{{ names }}"), generate("{{ commands }}")
    assert {name for name in remora.__all__ if f".{name}\n" not in names} == {"__version__"}
    assert {name for name in typer.main.get_command(app).commands if f"## remora {name}\n" not in shown} == set()  # type: ignore[attr-defined]


def test_every_page_is_in_the_contents():
    contents = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = re.findall(r"[\w/-]+\.md", str(contents["nav"]))
    assert {f"docs/{page}" for page in named} >= {page for page in PAGES if page.startswith("docs/")}


SOURCES = [path for path in (ROOT / "src/remora").rglob("*.py") if not path.name.startswith("__")]


def test_a_module_name_occurs_once():
    assert [name for name, count in Counter(path.name for path in SOURCES).items() if count > 1] == []


def test_everything_that_the_walks_name_is_there_under_that_name():
    known = {"Actor.options", "ray.get", "with", ".remote"}
    for path in SOURCES:
        known.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                known |= {node.name, *(f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))}
            elif isinstance(node, ast.FunctionDef):
                known |= {node.name, f"{path.stem}.{node.name}"}
    text = text_of("ARCHITECTURE.md")
    walks = text[text.index("## Walk one") : text.index("## How it is tried")]
    named = [each.removeprefix("wire.") for each in re.findall(r"`([A-Za-z_.]+)(?:\([^`]*\))?`", walks)]
    assert len(named) > 80
    assert [each for each in named if each not in known] == []
    for walk in walks.split("## Walk")[1:]:
        assert len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) <= 25
