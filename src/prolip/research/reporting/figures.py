"""The paper's figures, from the cells of a run's table: lines, bars, heat maps and scatter plots."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from prolip.core.errors import InputError
from prolip.io.environment import require
from prolip.io.writing import write_atomic
from prolip.research.catalogue.experiments import power
from prolip.research.reporting.results import Results, shots_name, title_of
from prolip.research.reporting.table import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Ten colours that differ for any kind of colour vision: Okabe and Ito's, then Paul Tol's. With a marker for
# each line, and another stroke after ten, twenty lines can be distinguished.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#999933",
    "#555555",
)  # fmt: skip
GREY, RED, BLACK = "#666666", "#b3261e", "#222222"
STROKES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
MARKERS = "os^Dv*PX<>phd8H"


def draw(results: Results) -> Figure:
    """Draw the figure of an experiment."""
    if not results.done:
        raise InputError(f"no run of {results.experiment.name} is done yet: there is nothing to draw")
    figure = _CHARTS[results.experiment.plot](results)
    if missing := len(results.runs) - results.done:
        note = textwrap.fill(
            f"Unfinished: {missing} of {len(results.runs)} runs are missing; means are of the others.",
            int(14 * figure.get_figwidth()),
        )
        figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=RED)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a .png, .pdf or .svg file atomically."""
    style = path.suffix.lower().lstrip(".")
    write_atomic(path, lambda temporary: figure.savefig(temporary, format=style, dpi=130))


def lines(results: Results) -> Figure:
    """Draw a line for each method over shots; where the table goes by datasets, a panel for each.

    Lines that have a `gain_over` are drawn as the gain over it, because the accuracies overlap. Bars are one
    deviation to either side; crosses are published figures.
    """
    entries = {entry.key: entry for entry in results.entries}
    trained = [entry for entry in results.entries if entry.trained]
    shown = [entry for entry in trained if entry.in_figure] or trained
    gains = [entry for entry in shown if entry.gain_over in entries]
    ticks = [shots_name(shots) for shots in results.plan.shots]
    if gains:
        cells = _gains(results)
        shown, ylabel = gains, "gain, points"
    else:
        cells, ylabel = build(results).cells, "accuracy, %"
    cells = cells[cells["column"].isin(ticks)]
    groups = list(cells.groupby("group", sort=False))
    figure, axes = _panels(len(groups), len(shown) + 2)
    for panel, (group, members) in zip(axes, groups, strict=True):
        panel.set_title(group)
        for place, entry in enumerate(shown):
            own = members[members["entry"] == entry.key].set_index("column").reindex(ticks)
            _draw_line(panel, own, entry.label, place, len(shown))
        levels = [entry for entry in results.entries if not entry.trained] if not gains else []
        for entry in levels:
            level = members[members["entry"] == entry.key]["mean"].mean()
            panel.axhline(level, color=GREY, linestyle="--", linewidth=1.4, label=entry.label)
        if gains:
            panel.axhline(
                0.0, color=GREY, linestyle="--", linewidth=1.4, label=entries[str(gains[0].gain_over)].label
            )
        panel.set_xticks(range(len(ticks)), ticks)
        panel.set(xlabel="labelled images per class", ylabel=ylabel, xlim=(-0.4, len(ticks) - 0.6))
    several = len(results.plan.seeds) > 1 or results.experiment.deviation != "seeds"
    _finish(figure, axes, _title(results, f"deviation over {results.experiment.deviation}" * several))
    return figure


def _gains(results: Results) -> pd.DataFrame:
    """Return the cells with the gain of each entry over its own base as the mean."""
    parts = []
    for entry in results.entries:
        base = next((other for other in results.entries if other.key == entry.gain_over), None)
        if base is not None:
            cells = build(replace(results, against=base)).cells
            own = cells[cells["entry"] == entry.key]
            parts.append(own.assign(mean=own["gain"], std=own["interval"], difference=math.nan))
    return pd.concat(parts, ignore_index=True)


def _draw_line(panel: Any, cells: pd.DataFrame, label: str, place: int, count: int) -> None:
    turn, colour = divmod(place, len(COLOURS))
    marks = {"color": COLOURS[colour], "marker": MARKERS[place % len(MARKERS)], "markersize": 5.5}
    stroke = {"linestyle": STROKES[turn % len(STROKES)], "linewidth": 1.4, "label": label}
    x = np.arange(len(cells)) + 0.3 * (place / max(1, count - 1) - 0.5)  # bars side by side
    deviation = cells["std"] if cells["std"].notna().any() else None
    panel.errorbar(x, cells["mean"], deviation, **marks, **stroke, elinewidth=0.8, capsize=1.5)
    published = cells["published"].where(cells["difference"].notna())
    if published.notna().any():
        panel.plot(x, published, "x", color=COLOURS[colour], markersize=7, label="published")


def bars(results: Results) -> Figure:
    """Draw bars for each row of the table, a panel for each model; of base-to-new only the means.

    Dark lines are published figures; seconds have a logarithmic axis.
    """
    table = build(results)
    cells, layout = table.cells, results.experiment.layout
    names = {name: name for name in dict.fromkeys(cells["column"])}
    if layout == "base_to_new":
        names = {"base": "base classes", "new": "new classes", "H_t2": "harmonic mean of\nboth means (H_t2)"}
        cells = cells[cells["group"].isin(["", *results.plan.models])]
    elif layout == "shots":
        names = {name: f"{name} shots" for name in names if name.isdigit()}
    elif layout == "seconds":
        names = {"seconds": "seconds"}
    groups = list(cells.groupby("group", sort=False))
    height = max(4.6, 2.9 * len(groups) + 0.6)
    labels = list(dict.fromkeys(cells["label"]))
    figure = _new_figure(max(9.0, 0.17 * len(names) * len(labels) + 3.5), height)
    axes = list(figure.subplots(len(groups), 1, sharex=True, squeeze=False).flat)
    for panel, (group, members) in zip(axes, groups, strict=True):
        own = list(dict.fromkeys(members["label"]))
        for place, label in enumerate(own):
            row = members[members["label"] == label].set_index("column").reindex(list(names))
            _draw_bars(panel, row, label, place, len(own), ".3g" if layout == "seconds" else ".1f")
        panel.set_xticks(range(len(names)), list(names.values()))
        panel.set(xlim=(-0.6, len(names) - 0.4), title=group, ylabel="accuracy, %")
        if layout == "seconds":
            panel.set(ylabel="seconds, logarithmic", yscale="log", xticks=[])
        panel.grid(visible=False, axis="x")
    _finish(figure, axes, _title(results, "deviation over seeds" * (len(results.plan.seeds) > 1)))
    return figure


def _draw_bars(panel: Any, cells: pd.DataFrame, label: str, place: int, count: int, form: str) -> None:
    width = 0.82 / count
    x = np.arange(len(cells)) + (place - (count - 1) / 2) * width
    drawn = panel.bar(
        x, cells["mean"], width * 0.88, yerr=cells["std"] if cells["std"].notna().any() else None,
        error_kw={"elinewidth": 0.9, "capsize": 1.5, "ecolor": BLACK}, label=label,
        color=COLOURS[place % len(COLOURS)], hatch="////" if place >= len(COLOURS) else None,
    )  # fmt: skip
    texts = [format(mean, form) if mean == mean else "" for mean in cells["mean"]]
    panel.bar_label(drawn, texts, rotation=90, fontsize=8, padding=3)
    for position, figure in zip(x, cells["published"].where(cells["difference"].notna()), strict=True):
        if not math.isnan(figure):
            ends = [position - width * 0.46, position + width * 0.46]
            panel.plot(ends, [figure] * 2, color=BLACK, linewidth=2, label="published")


def heat_map(results: Results) -> Figure:
    """Draw a map of learning rate and lam for each number of shots.

    With a grid search, it shows how often each pair was chosen; otherwise the accuracy of each pair.
    """
    shown = [entry for entry in results.entries if entry.in_figure]
    searched = [options for entry in shown for options in entry.grid]
    pairs = searched or [entry.options for entry in shown]
    if not all({"lr", "lam"} <= options.keys() for options in pairs):
        return lines(results)
    lrs, lams = (list(dict.fromkeys(options[name] for options in pairs)) for name in ("lr", "lam"))
    pair, maps = ["chosen_lr", "chosen_lam"], dict[str, Any]()
    draws = results.draws[results.draws["entry"].isin([entry.key for entry in shown])]
    for model in results.plan.models:
        for shots in map(shots_name, results.plan.shots):
            of_shots = draws[(draws["model"] == model) & (draws["shots"] == shots)]
            means = of_shots.groupby([*pair, "dataset"])["accuracy"].mean().groupby(pair).mean()
            values = of_shots.value_counts(pair, normalize=True) if searched else means
            wide = 100 * values.unstack().reindex(index=lrs, columns=lams).to_numpy(float)
            maps[results.group(model, "") + f" N = {shots}"] = np.nan_to_num(wide) if searched else wide
    what = "percent of the searches" if searched else "accuracy, %"
    figure, axes = _panels(len(maps), 1)
    everything = np.stack(list(maps.values()))
    low, top = float(np.nanmin(everything)), float(np.nanmax(everything))
    for panel, (name, values) in zip(axes, maps.items(), strict=True):
        panel.imshow(values, cmap="Blues", vmin=low, vmax=max(top, low + 1.0), aspect="auto")
        panel.grid(visible=False)
        panel.set_xticks(range(len(lams)), [f"{lam:g}" for lam in lams], rotation=45, fontsize=8)
        panel.set_yticks(range(len(lrs)), [power(lr) for lr in lrs], fontsize=8)
        panel.set(xlabel="lam", ylabel="learning rate", title=name)
        for (row, column), value in np.ndenumerate(values):
            text = "" if math.isnan(value) or value == 0 else f"{value:.1f}"
            colour = "white" if value > low + 0.6 * (top - low) else BLACK
            panel.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    figure.suptitle(_title(results, what), x=0.01, ha="left", fontsize=11)
    return figure


def scatter(results: Results) -> Figure:
    """Draw a row for each dataset, model and number of shots; of several seeds the first that is done."""
    from matplotlib import colormaps

    rows = {
        (one.run.dataset, one.run.model, one.run.shots): one for one in reversed(results.runs) if one.result
    }
    figure = _new_figure(12.2, 4.8 * len(rows) + 0.6)
    figure.suptitle(_title(results, "UMAP"), x=0.01, ha="left", fontsize=11)
    grid = figure.subplots(len(rows), 2, squeeze=False)
    for panels, one in zip(grid, reversed(rows.values()), strict=True):
        result: dict[str, Any] = one.result or {}
        labels, names = np.array(result["labels"]), result["classes"]
        palette = colormaps["tab20" if len(names) > 10 else "tab10"]
        for panel, stage in zip(panels, ("before", "after"), strict=True):
            points, title = np.array(result[f"points_{stage}"]), results.group(one.run.model, one.run.dataset)
            for k, name in enumerate(names):
                mine = points[labels == k]
                panel.scatter(
                    mine[:, 0], mine[:, 1], s=16 if len(labels) < 1000 else 6, color=palette(k % palette.N),
                    marker="os^Dv"[k // palette.N % 5], alpha=0.8, linewidths=0, label=name,
                )  # fmt: skip
            when = "zero-shot" if stage == "before" else f"after {one.run.shots} shots"
            accuracy = 100 * result[f"accuracy_{stage}"]
            panel.set(xticks=[], yticks=[], title=f"{title}, {when}: {accuracy:.1f} %")
            panel.grid(visible=False)
        panels[-1].legend(bbox_to_anchor=(1.01, 1), fontsize=8, ncols=1 + (len(names) - 1) // 22)
    return figure


_CHARTS = {"lines": lines, "bars": bars, "heat_map": heat_map, "scatter": scatter}


def _title(results: Results, note: str) -> str:
    """Return the title of a figure: the experiment, and below it what was run."""
    plan = results.plan
    subject = title_of(plan.datasets[0]) if results.experiment.targets else results.datasets()
    mean = "mean of " if len(plan.datasets) > 1 and results.experiment.layout == "shots" else ""
    parts = (", ".join(plan.models), f"{mean}{subject}", note)
    return f"{results.title()}\n{'; '.join(part for part in parts if part)}"


def _new_figure(width: float, height: float) -> Figure:
    """Create an empty figure in our style, in inches."""
    matplotlib = require("matplotlib", "plot", "drawing")
    from matplotlib.figure import Figure

    style = {"font.size": 11, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False}
    style |= {"axes.grid": True, "axes.axisbelow": True, "legend.frameon": False}
    matplotlib.rcParams.update({**style, "grid.color": "#e6e6e6"})
    return Figure(figsize=(width, height), layout="constrained")


def _panels(count: int, names: int) -> tuple[Figure, list[Any]]:
    """Create a figure with so many pairs of axes, high enough for a legend of so many names."""
    columns = min(4, count)
    rows = -(-count // columns)
    size = (9.6, 4.8) if count == 1 else (2.9 * columns + 3.0, 2.9 * rows + 0.6)
    figure = _new_figure(size[0], max(size[1], 0.24 * names + 1.4))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in axes[count:]:
        panel.set_visible(False)
    return figure, axes[:count]


def _finish(figure: Figure, axes: Sequence[Any], title: str) -> None:
    """Add the title of the whole figure, and a legend with each name once, "published" as the last."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    handles: dict[str, Any] = {}
    for panel in axes:
        marks, names = panel.get_legend_handles_labels()
        handles |= dict(zip(names, marks, strict=True))
    handles |= {"published": handles.pop("published")} if "published" in handles else {}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", fontsize=9, handlelength=3)
