"""The command ``remora``: the verbs, and what a mistake looks like (one line on stderr and exit code 2)."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import remora
from remora.cli.clusters import clusters, queue
from remora.cli.jobs import job
from remora.cli.local import down, up
from remora.cli.marks import label, taint
from remora.cli.nodes import status
from remora.cli.plan import plan
from remora.cli.rendering import adder
from remora.cli.run import COMMAND_FOLLOWS
from remora.cli.run import run as run_command
from remora.cli.serve import dashboard
from remora.cli.simulate import simulate
from remora.cli.start import PASS_THROUGH, start
from remora.cli.top import top
from remora.cli.why import events, explain
from remora.errors import ControllerAwayError, InvalidInputError, RemoraError

MISTAKE, FAILURE, NO_CONTROLLER = 2, 1, 3


class _Verbs(TyperGroup):
    """Every verb at once: what the user can put right is one clear line, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RemoraError as error:
            _complain(str(error))
            away = NO_CONTROLLER if isinstance(error, ControllerAwayError) else FAILURE
            raise typer.Exit(MISTAKE if isinstance(error, InvalidInputError) else away) from None


app = typer.Typer(
    name="remora",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"remora {remora.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Labels, affinity, taints and virtual clusters for stock Ray.

    [bold]Examples[/bold]

    remora simulate cats-and-dogs

    remora simulate my-cluster.yaml --plot use.png

    remora up

    remora top

    remora run --virtual-cluster '{"flexible_resource_max": {"CPU": 8}}' -- python job.py

    remora taint 4f2a gpu_node=true memory-pressure-
    """


for _name, _function in {
    "simulate": simulate,
    "plan": plan,
    "status": status,
    "top": top,
    "explain": explain,
    "events": events,
    "clusters": clusters,
    "queue": queue,
}.items():
    adder(app, _name)(_function)
adder(app, "run", context_settings=COMMAND_FOLLOWS)(run_command)
app.add_typer(job, name="job")
adder(app, "taint")(taint)
adder(app, "label")(label)
adder(app, "start", context_settings=PASS_THROUGH)(start)
adder(app, "up")(up)
adder(app, "down")(down)
adder(app, "dashboard")(dashboard)


def run() -> None:
    """The entry point of the installed command."""
    app(prog_name="remora")


def _complain(message: str) -> None:
    # soft_wrap: one line stays one line, for grep and for logs.
    line = Text.assemble(("remora: ", "bold red"), " ".join(message.split()))
    Console(stderr=True, highlight=False, soft_wrap=True).print(line)
