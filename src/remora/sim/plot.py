"""A picture of a run: how full each node was over time, how many machines there were, and how much waited.

Up to 40 nodes have a lane each, in which every piece of work is a block as high as its share of the node; more become a
heat map. matplotlib is an optional extra, so only this module imports it, and only when a picture is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remora.errors import InvalidInputError, RemoraError
from remora.model.resources import to_units
from remora.sim.history import History, NodeHistory, Run, Stay, Steps

MOST_LANES = 40
_MOST_BLOCKS = 2_000
_ROWS, _COLUMNS = 400, 900
_THIN = 0.06
_MOST_NOTES = 5

_INK, _FAINT, _GRID, _PAPER, _LANE = "#1f2933", "#7b8794", "#e4e7eb", "#ffffff", "#f5f7fa"
# Okabe and Ito's colours, which people with any colour vision can tell apart, then lighter ones of the same hues.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7ae6", "#7f8c8d", "#b8a800", "#5e8c61")
_LIGHT = frozenset(("#e69f00", "#56b4e9", "#b8a800"))
_WAIT = "#d55e00"
_FULL = 0.86
"""How much of a lane a full node fills; the rest is the gap to the next."""

_Block = tuple[NodeHistory, History, Stay, float]
"""Work that lay on a node, when, and its share of that node."""


def check(path: str | Path) -> None:
    """Whether a picture can be drawn and where it should go is there: asked before a long run, not after."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RemoraError("a picture needs matplotlib, which is not installed: pip install 'remora[plot]'") from None
    if not Path(path).parent.is_dir():
        raise InvalidInputError(f"the picture {str(path)!r} has no folder to lie in; for example --plot run.png")


def plot(run: Run, path: str | Path) -> None:
    """Write the picture; the suffix of ``path`` says which format (.png, .svg, .pdf)."""
    check(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = len(run.nodes) <= MOST_LANES
    lane = min(max(6.0 / max(len(run.nodes), 1), 0.34), 0.85)
    body = max(lane * len(run.nodes), 1.2) if lanes else 5.4
    below = (1.3, 1.3) if run.machines else (1.3,)
    height = body + 1.7 * len(below) + 1.3
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "svg.hashsalt": "remora"}):
        figure = Figure(figsize=(11, height), dpi=130, facecolor=_PAPER)
        FigureCanvasAgg(figure)
        upper, *others = figure.subplots(1 + len(below), 1, sharex=True, gridspec_kw={"height_ratios": (body, *below)})
        lower = others[-1]
        figure.subplots_adjust(
            left=0.1, right=0.97, top=1 - 1.0 / height, bottom=0.55 / height, hspace=(0.9 if run.machines else 0.3) / height
        )
        if lanes:
            _draw_lanes(upper, run)
        else:
            _draw_heat(figure, upper, run)
        if run.machines:
            _draw_machines(others[0], run)
        _draw_waiting(lower, run)
        figure.text(0.1, 1 - 0.42 / height, run.scenario, fontsize=14, color=_INK, fontweight="bold")
        figure.text(0.1, 1 - 0.65 / height, _subtitle(run), fontsize=9, color=_FAINT)
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"the picture {str(path)!r} cannot be written: {error}; for example run.png") from None


def family(name: str) -> str:
    """Copies of one thing share a colour: ``cat-3`` is a ``cat``."""
    return re.sub(r"(-\d+)+$", "", name) or name


# Up to 40 nodes: lanes


def _draw_lanes(axes: Any, run: Run) -> None:
    from matplotlib.patches import Patch, Rectangle

    end = _end(run)
    nodes = list(run.nodes.values())
    families = list(dict.fromkeys(family(work.name) for work in run.work))
    colours = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(families)}
    blocks = list(_blocks(run))
    fine = len(blocks) <= _MOST_BLOCKS
    for row, node in enumerate(nodes):
        base = len(nodes) - 1 - row
        for start, stop in node.up:
            axes.add_patch(Rectangle((start, base), (end if stop is None else stop) - start, _FULL, facecolor=_LANE, lw=0))
        _draw_shares(axes, run, node, base, end)
        if not fine:
            name = _busiest(node)
            steps = node.used.get(name, Steps())
            times, levels = _corners(steps, end)
            total = node.total.get(name, 0) or 1
            axes.fill_between(times, base, [base + _FULL * level / total for level in levels], color=_COLOURS[0], lw=0)
        else:
            _draw_blocks(axes, [block for block in blocks if block[0] is node], base, end, colours)
    axes.set_xlim(0, end)
    axes.set_ylim(-0.14, len(nodes))
    axes.set_yticks(
        [len(nodes) - 1 - row + _FULL / 2 for row in range(len(nodes))], [_short(node.node_id, 18) for node in nodes]
    )
    axes.tick_params(axis="both", length=0, colors=_INK, labelbottom=False)
    for side in axes.spines.values():
        side.set_visible(False)
    for happening in run.happenings[:60]:
        axes.axvline(happening.at, color=_FAINT, lw=0.8, ls=(0, (2, 2)), zorder=1)
    handles = [Patch(color=colours[name], label=_short(name, 20)) for name in families[:8]]
    if run.clusters:
        handles.append(Patch(facecolor="none", edgecolor=_INK, ls="--", lw=0.8, label="reserved"))
    if fine and handles:
        _put_legend(axes, min(len(handles), 5), handles=handles)


def _draw_blocks(axes: Any, blocks: list[_Block], base: float, end: float, colours: dict[str, str]) -> None:
    """Each block as low as it fits beside those that are there at the same time."""
    from matplotlib.patches import Rectangle

    placed = _stacked(blocks, end)
    # What takes none of the busiest resource is drawn thin on top of it, so the stack may be higher than the node.
    scale = _FULL / max([1.0, *(bottom + block[3] for block, bottom in placed)])
    for (_, work, stay, share), bottom in placed:
        stop = end if stay.end is None else stay.end
        low, high = base + scale * bottom, scale * share
        colour = colours[family(work.name)]
        axes.add_patch(
            Rectangle((stay.start, low), stop - stay.start, high, facecolor=colour, edgecolor=_PAPER, lw=0.7, zorder=2)
        )
        # About 130 characters fit across the whole picture.
        if (stop - stay.start) / end * 130 > len(work.name) + 1 and share >= 0.2:
            axes.text(
                stay.start + end * 0.004,
                low + high / 2,
                work.name,
                color=_INK if colour in _LIGHT else _PAPER,
                fontsize=7,
                va="center_baseline",
                clip_on=True,
                zorder=3,
            )
        if stay.outcome in ("failed", "lost its node"):
            axes.plot([stop], [low + high / 2], marker="x", color=_WAIT, ms=5, mew=1.6, zorder=4, clip_on=False)


def _stacked(blocks: list[_Block], end: float) -> list[tuple[_Block, float]]:
    """Every block with the height at which it begins."""
    standing: list[tuple[float, float, float]] = []  # until, bottom, top
    placed = []
    for block in sorted(blocks, key=lambda block: block[2].start):
        stay, share = block[2], block[3]
        standing = [other for other in standing if other[0] > stay.start]
        bottom = _lowest(share, [(low, high) for _, low, high in standing])
        standing.append((end if stay.end is None else stay.end, bottom, bottom + share))
        placed.append((block, bottom))
    return placed


def _draw_shares(axes: Any, run: Run, node: NodeHistory, base: float, end: float) -> None:
    """What virtual clusters of the first level hold of a node, as a dashed outline."""
    name = _busiest(node)
    total = node.total.get(name, 0)
    held = Steps()
    for at, level in sorted(_reserved(run, node.node_id, name)):
        held.add(at, level)
    if total and held.times:
        times, levels = _corners(held, end)
        outline = [
            base + _FULL * min(level / total, 1) if _stands(times, levels, index) else float("nan")
            for index, level in enumerate(levels)
        ]
        axes.plot(times, outline, color=_INK, lw=1, ls=(0, (4, 2)), zorder=5)


def _stands(times: list[float], levels: list[float], index: int) -> bool:
    """Whether a corner belongs to something above zero, be it as the foot of its rise or fall."""
    beside = [other for other in (index - 1, index + 1) if 0 <= other < len(times) and times[other] == times[index]]
    return levels[index] > 0 or any(levels[other] > 0 for other in beside)


def _reserved(run: Run, node_id: str, name: str) -> Iterator[tuple[float, int]]:
    """The changes to what the virtual clusters hold of one resource of one node."""
    for cluster in run.clusters:
        before = 0
        for step in cluster.steps if cluster.parent is None else ():
            now = sum(to_units(name, share.total.get(name, 0)) for share in step.shares if share.node == node_id)
            yield step.at, now - before
            before = now


def _blocks(run: Run) -> Iterator[_Block]:
    """Everything that lay on a node, with its share of what that node is busiest with."""
    for work in run.work:
        for stay in work.stays:
            for node_id, resources in zip(stay.nodes, work.resources, strict=False):
                node = run.nodes[node_id]
                name = _busiest(node)
                yield node, work, stay, max(resources.get(name, 0) / (node.total.get(name, 0) or 1), _THIN)


def _lowest(share: float, taken: list[tuple[float, float]]) -> float:
    bottom = 0.0
    for low, high in sorted(taken):
        if low - bottom >= share - 1e-9:
            return bottom
        bottom = max(bottom, high)
    return bottom


# More than 40 nodes: a heat map


def _draw_heat(figure: Any, axes: Any, run: Run) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    end = _end(run)
    nodes = list(run.nodes.values())
    band = -(-len(nodes) // _ROWS)
    moments = (np.arange(_COLUMNS) + 0.5) * end / _COLUMNS
    rows = _banded(np.array([_sampled(node, moments, end) for node in nodes]), band)
    blues = LinearSegmentedColormap.from_list("use", ["#f0f4f8", "#9fc5e8", "#3d85c6", "#0b5394", "#06264a"])
    ramp = blues.with_extremes(bad="#f8d7c4")
    image = axes.imshow(rows, aspect="auto", interpolation="nearest", cmap=ramp, vmin=0, vmax=1, extent=(0, end, len(nodes), 0))
    axes.set_ylabel("nodes" if band == 1 else f"nodes, {band} a row", color=_INK)
    axes.tick_params(axis="both", length=0, colors=_INK, labelbottom=False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for side in axes.spines.values():
        side.set_visible(False)
    inset = axes.inset_axes((0.76, 1.035, 0.24, 0.022))
    bar = figure.colorbar(image, cax=inset, orientation="horizontal", ticks=[0, 0.5, 1])
    bar.ax.set_xticklabels(["idle", "half", "full"])
    bar.ax.xaxis.set_ticks_position("top")
    bar.ax.tick_params(length=0, labelsize=8, colors=_INK, pad=1)
    bar.outline.set_visible(False)


def _sampled(node: NodeHistory, moments: Any, end: float) -> Any:
    """The use of its busiest resource at these moments; nan while the node is not there."""
    import numpy as np

    name = _busiest(node)
    steps, total = node.used.get(name, Steps()), node.total.get(name, 0) or 1
    use = np.array([0, *steps.values])[np.searchsorted(steps.times, moments, side="right")] / total
    there = np.zeros(len(moments), dtype=bool)
    for start, stop in node.up:
        there |= (moments >= start) & (moments < (end + 1 if stop is None else stop))
    return np.where(there, use, np.nan)


def _banded(rows: Any, band: int) -> Any:
    """Neighbours together, so that a picture has as many rows as it has room for; nan where all of them are gone."""
    import numpy as np

    starts = np.arange(0, len(rows), band)
    there = np.add.reduceat(~np.isnan(rows), starts, axis=0)
    used = np.add.reduceat(np.nan_to_num(rows), starts, axis=0)
    return np.where(there > 0, used / np.maximum(there, 1), np.nan)


# Both


def _draw_waiting(axes: Any, run: Run) -> None:
    end = _end(run)
    times, levels = _corners(run.waiting, end)
    axes.fill_between(times, levels, color=_WAIT, alpha=0.25, lw=0)
    axes.plot(times, levels, color=_WAIT, lw=1.4)
    notes = len(run.happenings) if len(run.happenings) <= _MOST_NOTES else 0
    axes.set_ylim(0, max(*levels, 1) * (1.2 + 0.16 * notes))
    axes.set_xlim(0, end)
    axes.set_ylabel("waiting", color=_INK)
    axes.set_xlabel("virtual time in seconds", color=_INK)
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=4)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.tick_params(axis="both", length=0, colors=_INK)
    if notes:
        _note_events(axes, run, end)
    axes.grid(axis="both", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_machines(axes: Any, run: Run) -> None:
    """How many machines of each type are there, on top of each other, and above them those on their way."""
    end = _end(run)
    moments = sorted(
        {0.0, end, *(at for each in run.machines.values() for steps in (each.up, each.starting) for at in steps.times)}
    )
    base = [0.0] * len(moments)
    for index, each in enumerate(run.machines.values()):
        top = [low + each.up.value_at(at) for low, at in zip(base, moments, strict=True)]
        colour = _COLOURS[-1 - index % len(_COLOURS)]  # not those of the work, which stands above
        axes.fill_between(moments, base, top, step="post", color=colour, alpha=0.75, lw=0, label=_short(each.node_type, 20))
        base = top
    coming = [
        low + sum(each.starting.value_at(at) for each in run.machines.values()) for low, at in zip(base, moments, strict=True)
    ]
    axes.fill_between(
        moments, base, coming, step="post", facecolor="none", edgecolor=_FAINT, hatch="///", lw=0, label="starting"
    )
    axes.set_ylim(0, max(*coming, 1) * 1.2)
    axes.set_ylabel("machines", color=_INK)
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=4)
    axes.tick_params(axis="both", length=0, colors=_INK, labelbottom=False)
    axes.grid(axis="both", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    _put_legend(axes, 6)


def _put_legend(axes: Any, columns: int, **what: Any) -> None:
    """Above the axes, at their right end."""
    axes.legend(
        **what,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        handlelength=1,
        handleheight=1,
        columnspacing=1.2,
        labelcolor=_INK,
        borderaxespad=0.1,
    )


def _note_events(axes: Any, run: Run, end: float) -> None:
    for row, happening in enumerate(run.happenings):
        late = happening.at > 0.6 * end
        axes.axvline(happening.at, color=_FAINT, lw=0.8, ls=(0, (2, 2)), zorder=1)
        axes.annotate(
            happening.what,
            (happening.at, 1),
            xytext=(-4 if late else 4, -9 - 11 * row),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if late else "left",
            fontsize=7.5,
            color=_INK,
            bbox={"facecolor": _PAPER, "alpha": 0.85, "lw": 0, "pad": 0.8},
        )


def _corners(steps: Steps, end: float) -> tuple[list[float], list[float]]:
    """A step function as the corners of its outline."""
    times, levels = [0.0], [0.0]
    for at, value in steps:
        times += [at, at]
        levels += [levels[-1], float(value)]
    return [*times, end], [*levels, levels[-1]]


def _busiest(node: NodeHistory) -> str:
    """The resource of which the node was fullest."""
    peaks = {name: max(steps.values, default=0) / (node.total.get(name, 0) or 1) for name, steps in node.used.items()}
    return max(peaks, key=lambda name: (peaks[name], name == "CPU"), default="CPU")


def _end(run: Run) -> float:
    return run.ended or 1.0


def _subtitle(run: Run) -> str:
    return _short(run.description, 110) if run.description else f"{len(run.nodes):,} nodes, {len(run.work):,} submitted"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
