"""``remora job``: Ray's own jobs, run attached and in a virtual cluster."""

from __future__ import annotations

import json
import os
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from remora.cli.connecting import AsJson, show_json
from remora.cli.rendering import adder, console_for, new_table
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
from remora.machine.addresses import AUTO, Target, find_target
from remora.wire.run_env import RunOptions

job = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Submit, look at and stop jobs of Ray's job server.")

_JobId = Annotated[str, typer.Argument(metavar="ID", help="The submission id, or the job's id.")]
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


@adder(job, "submit", context_settings=COMMAND_FOLLOWS)
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
    as_json: AsJson = False,
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
    jobs = _jobs(address, headers, verify, changes=True)
    _say(jobs, err=True)
    job_id = jobs.submit(shlex.join(wrapped(entrypoint, options)), **asked)
    if no_wait:
        if as_json:
            show_json({"submission_id": job_id}, jobs.target)
        else:
            typer.echo(job_id)
        return
    typer.echo(f"submitted {job_id}; Ctrl-C leaves it running, 'remora job stop {job_id}' ends it", err=True)
    info = jobs.follow(job_id, lambda lines: typer.echo(lines, nl=False, err=as_json))
    _show(jobs, info, as_json)
    if info["status"] == "FAILED":
        raise typer.Exit(1)


@adder(job, "status")
def status(
    job_id: _JobId, as_json: AsJson = False, address: _Server = None, headers: _Headers = None, verify: _Verify = None
) -> None:
    """Show how a job is.

    [bold]Examples[/bold]

    remora job status raysubmit_4LamXRuQpYdSMg7J
    """
    jobs = _jobs(address, headers, verify)
    info = jobs.info(job_id)
    if not as_json:
        _say(jobs)
    _show(jobs, info, as_json, err=False)


@adder(job, "logs")
def logs(
    job_id: _JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    as_json: AsJson = False,
    address: _Server = None,
    headers: _Headers = None,
    verify: _Verify = None,
) -> None:
    """Show what a job has written; while it waits for its virtual cluster that is its place in the queue, and why.

    [bold]Examples[/bold]

    remora job logs --follow raysubmit_4LamXRuQpYdSMg7J
    """
    jobs = _jobs(address, headers, verify)
    if not as_json:
        _say(jobs, err=True)
    if follow:
        _show(jobs, jobs.follow(job_id, lambda lines: typer.echo(lines, nl=False, err=as_json)), as_json)
        return
    written = jobs.logs(job_id)
    if as_json:
        show_json({"submission_id": job_id, "logs": written}, jobs.target)
    else:
        typer.echo(written, nl=False)


@adder(job, "stop")
def stop(
    job_id: _JobId,
    no_wait: _NoWait = False,
    as_json: AsJson = False,
    address: _Server = None,
    headers: _Headers = None,
    verify: _Verify = None,
) -> None:
    """Stop a job; its virtual cluster, or its place in the queue, is given back.

    [bold]Examples[/bold]

    remora job stop raysubmit_4LamXRuQpYdSMg7J
    """
    jobs = _jobs(address, headers, verify, changes=True)
    if not as_json:
        _say(jobs)
    jobs.stop(job_id)
    _show(jobs, jobs.info(job_id) if no_wait else jobs.ended(job_id), as_json, err=False)


@adder(job, "list")
def list_(as_json: AsJson = False, address: _Server = None, headers: _Headers = None, verify: _Verify = None) -> None:
    """List all jobs, the newest first.

    [bold]Examples[/bold]

    remora job list --json
    """
    jobs = _jobs(address, headers, verify)
    found = sorted(jobs.all(), key=lambda info: info["start_time"] or 0, reverse=True)
    if as_json:
        show_json(found, jobs.target)
        return
    _say(jobs)
    # The ids are there to be copied: what is long is the command, and that is folded.
    table = new_table("Submission", "Job", "Status", "Started", "Command", whole=("Submission", "Job", "Status"))
    for info in found:
        at = datetime.fromtimestamp(info["start_time"] / 1000, tz=timezone.utc).isoformat()[5:16] if info["start_time"] else ""
        table.add_row(
            info["submission_id"], info["job_id"], info["status"], at.replace("T", " "), Text(_typed(info["entrypoint"]))
        )
    console_for().print(table)


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


def _typed(entrypoint: str) -> str:
    """Return the command as its user typed it, without our own before it."""
    try:
        words = shlex.split(entrypoint)
    except ValueError:
        return entrypoint  # it is a shell's, and none of ours
    ours = words[1:4] == ["-m", "remora", "run"] and "--" in words
    return shlex.join(words[words.index("--") + 1 :]) if ours else entrypoint


def _runtime_env(path: Path | None, text: str | None, working_dir: str | None) -> dict[str, Any]:
    if path is not None and text is not None:
        raise InvalidInputError("--runtime-env and --runtime-env-json say the same thing: give one of them")
    found = json_object("--runtime-env-json", text, '{"env_vars": {"A": "1"}}') or {}
    if path is not None:
        import yaml

        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            flaw = " ".join(str(error).split())
            raise InvalidInputError(f"--runtime-env {str(path)!r} can't be read ({flaw}); it is a file of YAML") from None
        if not isinstance(found, dict):
            raise InvalidInputError(f"--runtime-env {str(path)!r} holds no mapping; for example the line 'working_dir: .'")
    return {**found, "working_dir": working_dir} if working_dir is not None else found


def _jobs(address: str | None, headers: str | None, verify: str | None, *, changes: bool = False) -> Any:
    named = {"true": True, "1": True, "false": False, "0": False}
    sent = json_object("--headers", headers, '{"Authorization": "Bearer ..."}')
    target = _server(address, changes)
    from remora.live.job_client import Jobs

    return Jobs(target, sent, True if verify is None else named.get(verify.lower(), verify))


def _server(address: str | None, changes: bool) -> Target:
    """Return the job server, or the Ray that knows where it is."""
    found = (
        (address, "--address"),
        *((os.environ.get(name), f"from {name}") for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")),
    )
    named = next((Target(where, source) for where, source in found if where and where != AUTO), None)
    return named or find_target(AUTO, os.environ, changes=changes)


def _say(jobs: Any, *, err: bool = False) -> None:
    """Say which job server it is; ``err``: beside what the job has written to stdout."""
    typer.echo(f"Job server at {jobs.target.address} ({jobs.target.source})", err=err)


def _show(jobs: Any, info: dict[str, Any], as_json: bool, *, err: bool = True) -> None:
    """``err``: beside what the job has written to stdout."""
    if as_json:
        show_json(info, jobs.target)
        return
    name = info["submission_id"] or info["job_id"]
    typer.echo(f"{name}: {info['status']}" + (f". {info['message']}" if info["message"] else ""), err=err)
