"""``remora job``: Ray's own jobs, run attached and in a virtual cluster."""

from __future__ import annotations

import json
import os
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remora.cli.run import (
    COMMAND_FOLLOWS,
    Cluster,
    Priority,
    Selector,
    Timeout,
    Tolerated,
    WorkLabels,
    json_object,
    run_options,
)
from remora.errors import InvalidInputError
from remora.machine.state import running_address
from remora.wire.run_env import RunOptions

job = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Submit, look at and stop jobs of Ray's job server.")

_JobId = Annotated[str, typer.Argument(metavar="ID", help="The submission id, or the job's id.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_Server = Annotated[
    str | None,
    typer.Option("--address", help="The job server, http://HOST:8265, or the cluster's address.", show_default=False),
]
_Headers = Annotated[
    str | None,
    typer.Option("--headers", metavar="JSON", envvar="RAY_JOB_HEADERS", help="HTTP headers to send.", show_default=False),
]
_Verify = Annotated[
    str | None, typer.Option("--verify", metavar="BOOL|PATH", help="Whether, or by what, to check TLS.", show_default=False)
]
_NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once.")]


@job.command("submit", context_settings=COMMAND_FOLLOWS)
def submit(
    entrypoint: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGS]", help="What to run.")],
    virtual_cluster: Cluster = None,
    priority: Priority = None,
    timeout: Timeout = None,
    tolerations: Tolerated = None,
    label_selector: Selector = None,
    labels: WorkLabels = None,
    working_dir: Annotated[
        str | None, typer.Option("--working-dir", help="A folder to send along, or the URI of a zip.", show_default=False)
    ] = None,
    runtime_env: Annotated[
        Path | None, typer.Option("--runtime-env", metavar="FILE.yaml", help="The runtime environment.", show_default=False)
    ] = None,
    runtime_env_json: Annotated[
        str | None, typer.Option("--runtime-env-json", metavar="JSON", help="The same as JSON.", show_default=False)
    ] = None,
    submission_id: Annotated[
        str | None, typer.Option("--submission-id", help="A name for the job; else one is made.", show_default=False)
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata-json", metavar="JSON", help="Kept with the job.", show_default=False)
    ] = None,
    cpus: Annotated[
        float | None, typer.Option("--entrypoint-num-cpus", help="What the command itself takes.", show_default=False)
    ] = None,
    gpus: Annotated[float | None, typer.Option("--entrypoint-num-gpus", show_default=False)] = None,
    memory: Annotated[int | None, typer.Option("--entrypoint-memory", metavar="BYTES", show_default=False)] = None,
    resources: Annotated[str | None, typer.Option("--entrypoint-resources", metavar="JSON", show_default=False)] = None,
    selector: Annotated[str | None, typer.Option("--entrypoint-label-selector", metavar="JSON", show_default=False)] = None,
    no_wait: _NoWait = False,
    as_json: _Json = False,
    address: _Server = None,
    headers: _Headers = None,
    verify: _Verify = None,
) -> None:
    """Submit a job; its code need not know Remora. Shows what it writes until it ends.

    It runs in its virtual cluster, once the minimum is reserved: until then its output and [bold]remora queue[/bold] say what
    it waits for. Its end returns everything. Remora has to be installed where the job runs.

    [bold]Examples[/bold]

    remora job submit --virtual-cluster '{"flexible_resource_min": {"CPU": 4}}' --working-dir . -- python job.py

    remora job submit --virtual-cluster gang.json --priority 10 --no-wait -- python job.py --epochs 3
    """
    options = run_options(virtual_cluster, priority, timeout, tolerations, label_selector, labels)
    asked = {
        "submission_id": submission_id,
        "runtime_env": _runtime_env(runtime_env, runtime_env_json, working_dir),
        "metadata": json_object("--metadata-json", metadata, '{"owner": "me"}'),
        "entrypoint_num_cpus": cpus,
        "entrypoint_num_gpus": gpus,
        "entrypoint_memory": memory,
        "entrypoint_resources": json_object("--entrypoint-resources", resources, '{"rare": 1}'),
        "entrypoint_label_selector": json_object("--entrypoint-label-selector", selector, '{"zone": "a"}'),
    }
    jobs = _jobs(address, headers, verify)
    job_id = jobs.submit(shlex.join(wrapped(entrypoint, options)), **asked)
    if no_wait:
        typer.echo(json.dumps({"submission_id": job_id}) if as_json else job_id)
        return
    typer.echo(f"submitted {job_id}; Ctrl-C leaves it running, 'remora job stop {job_id}' ends it", err=True)
    info = jobs.follow(job_id, lambda lines: typer.echo(lines, nl=False, err=as_json))
    _show(info, as_json)
    if info["status"] == "FAILED":
        raise typer.Exit(1)


@job.command("status")
def status(
    job_id: _JobId, as_json: _Json = False, address: _Server = None, headers: _Headers = None, verify: _Verify = None
) -> None:
    """Show how a job is.

    [bold]Examples[/bold]

    remora job status raysubmit_4LamXRuQpYdSMg7J
    """
    _show(_jobs(address, headers, verify).info(job_id), as_json, err=False)


@job.command("logs")
def logs(
    job_id: _JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    as_json: _Json = False,
    address: _Server = None,
    headers: _Headers = None,
    verify: _Verify = None,
) -> None:
    """Show what a job has written; while it waits for its virtual cluster that is its place in the queue, and why.

    [bold]Examples[/bold]

    remora job logs --follow raysubmit_4LamXRuQpYdSMg7J
    """
    jobs = _jobs(address, headers, verify)
    if follow:
        _show(jobs.follow(job_id, lambda lines: typer.echo(lines, nl=False, err=as_json)), as_json)
        return
    written = jobs.logs(job_id)
    if as_json:
        typer.echo(json.dumps({"submission_id": job_id, "logs": written}))
    else:
        typer.echo(written, nl=False)


@job.command("stop")
def stop(
    job_id: _JobId,
    no_wait: _NoWait = False,
    as_json: _Json = False,
    address: _Server = None,
    headers: _Headers = None,
    verify: _Verify = None,
) -> None:
    """Stop a job; its virtual cluster, or its place in the queue, is given back.

    [bold]Examples[/bold]

    remora job stop raysubmit_4LamXRuQpYdSMg7J
    """
    jobs = _jobs(address, headers, verify)
    jobs.stop(job_id)
    _show(jobs.info(job_id) if no_wait else jobs.ended(job_id), as_json, err=False)


@job.command("list")
def list_(as_json: _Json = False, address: _Server = None, headers: _Headers = None, verify: _Verify = None) -> None:
    """List all jobs, the newest first.

    [bold]Examples[/bold]

    remora job list --json
    """
    found = sorted(_jobs(address, headers, verify).all(), key=lambda info: info["start_time"] or 0, reverse=True)
    console = Console(highlight=False)
    if as_json:
        console.print_json(json.dumps(found))
        return
    table = Table("Submission", "Job", "Status", "Started", "Entrypoint", box=box.SIMPLE_HEAD)
    for info in found:
        at = datetime.fromtimestamp(info["start_time"] / 1000, tz=timezone.utc).isoformat()[:19] if info["start_time"] else ""
        table.add_row(info["submission_id"], info["job_id"], info["status"], at, Text(info["entrypoint"]))
    console.print(table)


def wrapped(entrypoint: list[str], options: RunOptions) -> list[str]:
    """The command as ``remora run`` of the same Python, whatever is on the path where it runs."""
    given = {
        "--virtual-cluster": options.virtual_cluster,
        "--priority": options.priority,
        "--timeout": options.timeout,
        "--tolerations": options.tolerations,
        "--label-selector": options.label_selector,
        "--labels": options.labels,
    }
    words = [f"{name}={json.dumps(value)}" for name, value in given.items() if value is not None]
    python = entrypoint[0] if Path(entrypoint[0]).name.startswith("python") else "python"
    return [python, "-m", "remora", "run", *words, "--", *entrypoint]


def _runtime_env(path: Path | None, text: str | None, working_dir: str | None) -> dict[str, Any]:
    if path is not None and text is not None:
        raise InvalidInputError("--runtime-env and --runtime-env-json say the same thing: give one of them")
    found = json_object("--runtime-env-json", text, '{"env_vars": {"A": "1"}}') or {}
    if path is not None:
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            flaw = " ".join(str(error).split())
            raise InvalidInputError(f"--runtime-env {str(path)!r} can't be read ({flaw}); it is a file of YAML") from None
        if not isinstance(found, dict):
            raise InvalidInputError(f"--runtime-env {str(path)!r} holds no mapping; for example the line 'working_dir: .'")
    return {**found, "working_dir": working_dir} if working_dir is not None else found


def _jobs(address: str | None, headers: str | None, verify: str | None) -> Any:
    named = {"true": True, "1": True, "false": False, "0": False}
    sent = json_object("--headers", headers, '{"Authorization": "Bearer ..."}')
    if address is None and not any(os.environ.get(name) for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")):
        address = running_address(os.environ)
    from remora.live.job_client import Jobs

    return Jobs(address, sent, True if verify is None else named.get(verify.lower(), verify))


def _show(info: dict[str, Any], as_json: bool, *, err: bool = True) -> None:
    """``err``: beside what the job has written to stdout."""
    if as_json:
        typer.echo(json.dumps(info))
        return
    name = info["submission_id"] or info["job_id"]
    typer.echo(f"{name}: {info['status']}" + (f". {info['message']}" if info["message"] else ""), err=err)
