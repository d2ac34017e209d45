"""``remora simulate`` as people call it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from remora import __version__
from remora.cli import simulate as command
from remora.cli.main import app
from remora.sim import plot as plotting
from remora.sim.scenario import parse_scenario
from remora.sim.scenario_run import run_scenario

PNG = b"\x89PNG\r\n\x1a\n"


def remora(*args: str):
    return CliRunner().invoke(app, list(args))


def test_the_report_says_who_ran_where_and_who_waited_why():
    result = remora("simulate", "cats-and-dogs")
    assert result.exit_code == 0
    told = " ".join(result.stdout.split())
    assert "5 nodes, 17 submitted, 40 s" in told
    assert "17 running at the end" in told
    assert "dog-2-1 node-2 17 s still there" in told
    assert "cat-4 4 s to 30 s 0/4 nodes fit: 4 already host an actor with type in (cat)" in told
    assert "30 s node-4 joins" in told


def test_the_report_fits_80_columns_without_colour_when_nobody_looks():
    for name in ("job-queue", "gpu-isolation", "virtual-cluster-walkthrough"):
        result = remora("simulate", name)
        assert max(len(line) for line in result.stdout.splitlines()) <= 80
        assert "\x1b" not in result.stdout
        assert result.stderr == ""


def test_what_still_waits_comes_with_suggestions(tmp_path: Path):
    file = tmp_path / "small.yaml"
    file.write_text("nodes: [{id: n1, resources: {CPU: 1}}]\narrivals: [{name: a, resources: {GPU: 1}}]\nuntil: 5\n")
    told = " ".join(remora("simulate", str(file)).stdout.split())
    assert "a since 0 s, still waiting 0/1 nodes fit: 1 is too small for 1 GPU" in told
    assert "try: add a node with 1 GPU" in told


def test_json_has_these_keys_and_is_the_same_every_time():
    first, second = remora("simulate", "job-queue", "--json"), remora("simulate", "job-queue", "--json")
    assert first.stdout == second.stdout
    said = json.loads(first.stdout)
    assert list(said) == [
        *("scenario", "description", "seed", "ended", "summary"),
        *("work", "virtual_clusters", "nodes", "events", "waiting", "machines"),
    ]
    assert list(said["summary"]) == [
        *("nodes", "submitted", "placed", "finished", "running", "waiting", "refused", "restarts", "events"),
        *("peak_waiting", "wait"),
    ]
    assert list(said["work"][0]) == [
        *("name", "kind", "namespace", "virtual_cluster", "resources", "state", "submitted", "reason", "stays", "waits"),
    ]
    assert list(said["virtual_clusters"][0]["steps"][0]) == ["at", "state", "reason", "nodes"]
    assert list(said["nodes"][0]) == ["id", "total", "up", "use"]
    assert said["virtual_clusters"][2]["ready"] == 30


def test_the_seed_can_be_given():
    assert json.loads(remora("simulate", "cats-and-dogs", "--json", "--seed", "7").stdout)["seed"] == 7


def test_shipped_scenarios_are_listed():
    told = remora("simulate", "--list")
    assert (told.exit_code, "virtual-cluster-walkthrough" in told.stdout) == (0, True)
    names = [item["name"] for item in json.loads(remora("simulate", "--list", "--json").stdout)]
    assert "cats-and-dogs" in names


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ([], "no scenario is named; for example: remora simulate cats-and-dogs, or remora simulate --list"),
        (["nope.yaml"], "there is no scenario file 'nope.yaml'"),
        (["cats"], "did you mean 'cats-and-dogs'?"),
        (["cats-and-dogs", "--plot", "/no/such/folder/x.png"], "the picture '/no/such/folder/x.png' has no folder to lie in"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(args: list[str], want: str):
    result = remora("simulate", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert want in result.stderr
    assert result.stderr.startswith("remora: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_bad_file_is_refused_with_its_name_and_the_place(tmp_path: Path):
    file = tmp_path / "bad.yaml"
    file.write_text("nodes: [{id: n1, resources: {CPU: -1}}]\n")
    result = remora("simulate", str(file))
    assert result.exit_code == 2
    assert f"remora: {file}: nodes[0].resources: the amount -1 of CPU is negative" in result.stderr
    file.write_text("nodes: [\n")
    assert "line 2, column 1: it is not YAML" in remora("simulate", str(file)).stderr


def test_options_that_do_not_exist_are_a_mistake_too():
    assert remora("simulate", "--sed", "1").exit_code == 2
    assert remora("simulate", "cats-and-dogs", "--seed", "many").exit_code == 2


def test_version_and_help():
    assert remora("--version").stdout == f"remora {__version__}\n"
    told = " ".join(remora("simulate", "--help").stdout.split())
    assert "remora simulate my-cluster.yaml --plot use.png" in told


def test_starting_the_command_does_not_load_ray_or_matplotlib():
    code = "import sys, remora.cli.main; sys.exit(bool({'ray', 'matplotlib', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_installed_command_shows_no_traceback(tmp_path: Path):
    code = "from remora.cli.main import run; import sys; sys.argv = ['remora', 'simulate', 'nope.yaml']; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("remora: there is no scenario file 'nope.yaml'")
    assert "Traceback" not in done.stderr


# Pictures


@pytest.mark.parametrize("name", ["cats-and-dogs", "virtual-cluster-walkthrough"])
def test_plot_writes_a_picture_with_a_lane_for_each_node(tmp_path: Path, name: str):
    result = remora("simulate", name, "--plot", str(tmp_path / "x.png"))
    assert result.exit_code == 0
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_many_nodes_become_a_heat_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[str] = []
    heat = plotting._draw_heat

    def counted(*args: Any) -> None:
        drawn.append("heat")
        heat(*args)

    monkeypatch.setattr(plotting, "_draw_heat", counted)
    scenario = parse_scenario(
        "nodes: [{id: n, count: 41, resources: {CPU: 2}}]\narrivals: [{name: a, count: 90, every: 1, runs_for: 50}]\n"
        "events: [{at: 20, remove_node: n-3}]"
    )
    plotting.plot(run_scenario(scenario), tmp_path / "x.png")
    assert (drawn, (tmp_path / "x.png").read_bytes()[:8]) == (["heat"], PNG)


def test_an_empty_run_and_a_crowded_one_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plotting.plot(run_scenario(parse_scenario("{}")), tmp_path / "empty.png")
    monkeypatch.setattr(plotting, "_MOST_BLOCKS", 3)
    text = "nodes: [{id: n, resources: {CPU: 2}}]\narrivals: [{name: a, count: 9, every: 1, runs_for: 5}]"
    plotting.plot(run_scenario(parse_scenario(text)), tmp_path / "crowded.png")
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in ("empty.png", "crowded.png"))


def test_an_unknown_picture_format_is_a_mistake(tmp_path: Path):
    result = remora("simulate", "cats-and-dogs", "--plot", str(tmp_path / "x.zzz"))
    assert result.exit_code == 2
    assert "cannot be written: Format 'zzz' is not supported" in result.stderr


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = remora("simulate", "cats-and-dogs", "--plot", str(tmp_path / "x.png"))
    assert result.exit_code == 1
    assert result.stderr == "remora: a picture needs matplotlib, which is not installed: pip install 'remora[plot]'\n"


# The bar


def test_a_bar_is_shown_at_a_terminal_for_long_runs_only(monkeypatch: pytest.MonkeyPatch):
    class Bar(Progress):
        started = 0

        def start(self) -> None:
            Bar.started += 1

    monkeypatch.setattr(command, "Progress", Bar)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with command._progress("short") as report:
        assert report is not None
        report(10, 100)
    assert Bar.started == 0
    with command._progress("long") as report:
        assert report is not None
        report(10, 10_000)
    assert Bar.started == 1
    monkeypatch.delenv("FORCE_COLOR")
    with command._progress("nobody looks") as report:
        assert report is None
