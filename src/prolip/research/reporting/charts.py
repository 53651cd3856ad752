"""The four kinds of charts, in one style: lines, bars, heat maps and scatter plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prolip.io.environment import MissingPackageError
from prolip.research.reporting.results import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Ten colours that differ for any kind of colour vision: Okabe and Ito's, then Paul Tol's. With a marker for
# each line, and another stroke after ten, twenty lines can be distinguished.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#999933",
    "#555555",
)  # fmt: skip
DARK = ("#0072B2", "#D55E00", "#009E73", "#332288", "#882255", "#555555")  # white text is readable on them
GREY, RED, BLACK = "#666666", "#b3261e", "#222222"
STROKES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
LEVELS = ((5, 3), (1, 1.5), (6, 2, 1, 2), (3, 1.5, 1, 1.5, 1, 1.5))  # dashes of horizontal lines
MARKERS = "os^Dv*PX<>phd8H"
MANY_LINES = 6  # above, error bars replace bands, which would hide each other


@dataclass(frozen=True)
class Panel:
    """The content of one pair of axes."""

    series: Mapping[str, Sequence[Estimate]]  # for each line or set of bars: the figure at each tick
    title: str = ""
    published: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # the paper's figures
    levels: Mapping[str, float] = field(default_factory=dict)  # horizontal lines, like zero-shot accuracy


@dataclass(frozen=True)
class ScatterRow:
    """Points of one dataset at several stages."""

    stages: Mapping[str, Any]  # points [n, 2] by title
    labels: Sequence[int]  # the class of each point
    names: Sequence[str]  # of the classes


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure in our style, in inches."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError("drawing", "matplotlib", "plot") from error
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {
            "font.size": 11,
            "axes.titlesize": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e6e6e6",
            "axes.axisbelow": True,
            "legend.frameon": False,
        }
    )
    return Figure(figsize=(width, height), layout="constrained")


def _finish(figure: Figure, axes: Sequence[Any], title: str) -> None:
    """Add the title of the whole figure, and a legend with each name once."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    found: dict[str, Any] = {}
    for one in axes:
        for handle, name in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    found |= {"published": found.pop("published")} if "published" in found else {}  # the last one
    figure.legend(found.values(), found.keys(), loc="outside right upper", fontsize=9, handlelength=3)


def lines(
    ticks: Sequence[str], panels: Sequence[Panel], xlabel: str, ylabel: str = "accuracy, %", title: str = ""
) -> Figure:
    """Draw a line for each series, in one or several panels.

    Bands, or bars where there are many lines, are one deviation to either side; crosses in a line's colour
    are published figures.
    """
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    order = list(dict.fromkeys(name for panel in panels for name in panel.series))
    names = {*order, *(name for panel in panels for name in panel.levels)}
    size = (9.6, 4.8) if len(panels) == 1 else (2.7 * columns + 3.0, 2.7 * rows + 0.6)
    figure = new_figure(size[0], max(size[1], 0.24 * len(names) + 1.4))  # high enough for the legend
    grid = figure.subplots(rows, columns, squeeze=False)
    for i, axes in enumerate(grid.flat):
        axes.set_visible(i < len(panels))
        if i + columns >= len(panels):
            axes.set_xlabel(xlabel)
        if i % columns == 0:
            axes.set_ylabel(ylabel)
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.set_title(panel.title)
        _draw_lines(axes, ticks, panel, order)
    _finish(figure, list(grid.flat)[: len(panels)], title)
    return figure


def _draw_lines(axes: Any, ticks: Sequence[str], panel: Panel, order: list[str]) -> None:
    for i, (name, level) in enumerate(panel.levels.items()):
        look = {"color": COLOURS[-i] if i else GREY, "linestyle": (0, LEVELS[i % len(LEVELS)])}
        axes.axhline(level, linewidth=1.4, label=name, **look)
    many = len(order) > MANY_LINES
    for name, marks in panel.series.items():
        place = order.index(name)
        turn, i = divmod(place, len(COLOURS))
        style = {"color": COLOURS[i], "marker": MARKERS[place % len(MARKERS)], "markersize": 5.5}
        known = [(x, mark) for x, mark in enumerate(marks) if mark.mean is not None]
        stds = [mark.std or 0.0 for _, mark in known]
        # So that error bars stand side by side.
        shift = 0.3 * (place / (len(order) - 1) - 0.5) if many and any(stds) else 0.0
        if known:
            xs, means = [x + shift for x, _ in known], [float(mark.mean or 0.0) for _, mark in known]
            stroke = {"linestyle": STROKES[turn % len(STROKES)], "linewidth": 1.4, "label": name}
            if many:
                axes.errorbar(
                    xs, means, stds if any(stds) else None, **style, **stroke, elinewidth=0.8, capsize=1.5
                )
            else:
                low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
                axes.fill_between(xs, low, high, color=COLOURS[i], alpha=0.13, linewidth=0)
                axes.plot(xs, means, **style, **stroke)
            if hollow := [(x, mark.mean) for x, (_, mark) in zip(xs, known, strict=True) if mark.missing]:
                axes.plot(
                    *zip(*hollow, strict=True), linestyle="", markerfacecolor="white", zorder=3, **style
                )
        for x, value in enumerate(panel.published.get(name, ())):
            if value is not None:
                axes.plot(
                    x + shift, value, "x", color=COLOURS[i], markersize=6 if many else 9, markeredgewidth=1.6
                )
    if panel.published:
        axes.plot([], [], "x", color=GREY, markersize=8, markeredgewidth=2, label="published")
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlim(-0.4, len(ticks) - 0.6)


def bars(groups: Sequence[str], panels: Sequence[Panel], title: str = "", seconds: bool = False) -> Figure:
    """Draw groups of bars with deviations, panels one above the other; published figures are dark lines.

    Percentages have one decimal; seconds three digits, on a logarithmic axis.
    """
    series = max(len(panel.series) for panel in panels)
    count = len(groups) * series
    height = 4.6 if len(panels) == 1 else 2.9 * len(panels) + 0.6
    figure = new_figure(max(9.0, 0.17 * count + 3.5), max(height, 0.26 * series + 1.2))
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    turned = {"rotation": 25, "ha": "right"} if len(groups) > 6 and series < 4 else {}
    for axes, panel in zip(grid.flat, panels, strict=True):
        _draw_bars(axes, panel, ".3g" if seconds else ".1f")
        axes.set_xticks(range(len(groups)), groups, **turned)
        axes.set(xlim=(-0.6, len(groups) - 0.4), ylabel="accuracy, %", title=panel.title)
        if seconds:
            axes.set(ylabel="seconds, logarithmic", yscale="log", xticks=[])
        axes.grid(visible=False, axis="x")
    _finish(figure, list(grid.flat), title)
    return figure


def _draw_bars(axes: Any, panel: Panel, form: str) -> None:
    from matplotlib.patheffects import withStroke

    width = 0.82 / len(panel.series)
    for i, (name, marks) in enumerate(panel.series.items()):
        offset = (i - (len(panel.series) - 1) / 2) * width
        colour = COLOURS[i % len(COLOURS)]
        known = [(group + offset, mark) for group, mark in enumerate(marks) if mark.mean is not None]
        axes.bar(
            [x for x, _ in known],
            [mark.mean for _, mark in known],
            width * 0.88,
            yerr=[mark.std or 0.0 for _, mark in known] if any(mark.std for _, mark in known) else None,
            error_kw={"elinewidth": 0.9, "capsize": 1.5, "ecolor": BLACK},
            color=["white" if mark.missing else colour for _, mark in known],
            hatch="////" if i >= len(COLOURS) else None,
            edgecolor=[colour if mark.missing else "white" for _, mark in known],
            linewidth=[1.5 * (mark.missing > 0) for _, mark in known],
            label=name,
        )
        for x, mark in known:  # at the foot, where no mark of a published figure hides it; of seconds on top
            inside = colour if not mark.missing and form == ".1f" else "white"
            ink = "white" if inside in DARK else BLACK
            text = {"ha": "center", "va": "bottom", "fontsize": 8, "rotation": 90, "color": ink}
            text |= {"path_effects": [withStroke(linewidth=2.5, foreground=inside)]}  # over hatches
            place = {} if form != ".1f" else {"xycoords": axes.get_xaxis_transform()}
            at = (x, 0 if place else mark.mean)
            axes.annotate(format(mark.mean, form), at, (0, 3), textcoords="offset points", **place, **text)
        for group, paper in enumerate(panel.published.get(name, ())):
            if paper is not None:
                ends = [group + offset - width * 0.46, group + offset + width * 0.46]
                axes.plot(ends, [paper] * 2, color=BLACK, linewidth=2, label="published")


def heat_maps(
    maps: Mapping[str, Any],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    title: str = "",
) -> Figure:
    """Draw figures [rows, columns], a map for each title, on one colour scale; NaN is left empty."""
    import numpy as np

    wide = min(5, len(maps))
    high = -(-len(maps) // wide)
    titles = max(name.count("\n") for name in maps)
    figure = new_figure(max(6.0, 3.0 * wide + 0.6), (0.4 * len(rows) + 0.15 * titles) * high + 1.5)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    everything = np.stack(list(maps.values()))
    low, top = float(np.nanmin(everything)), float(np.nanmax(everything))
    for i, (name, values) in enumerate(maps.items()):
        axes = figure.add_subplot(high, wide, i + 1)
        axes.imshow(values, cmap="Blues", vmin=low, vmax=max(top, low + 1.0), aspect="auto")
        axes.grid(visible=False)
        axes.set_xticks(range(len(columns)), columns, rotation=45, fontsize=8)
        axes.set_yticks(range(len(rows)), rows if i % wide == 0 else [""] * len(rows), fontsize=8)
        axes.set(xlabel=labels[1], ylabel=labels[0] if i % wide == 0 else "")
        axes.set_title(name, fontsize=8 if "\n" in name else 11, loc="left")
        for (r, k), value in np.ndenumerate(values):
            text = "" if np.isnan(value) else f"{value:.1f}"
            colour = "white" if value > low + 0.6 * (top - low) else BLACK
            axes.text(k, r, "" if text == "0.0" else text, ha="center", va="center", fontsize=7, color=colour)
    return figure


def scatters(rows: Iterable[ScatterRow], title: str = "") -> Figure:
    """Draw points in the colours of their classes, a row of panels for each dataset."""
    from matplotlib import colormaps

    rows = list(rows)
    figure = new_figure(12.2, 4.8 * len(rows) + 0.3)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for part, row in zip(figure.subfigures(len(rows), 1, squeeze=False).flat, rows, strict=True):
        palette = colormaps["tab20" if len(row.names) > 10 else "tab10"]
        grid = part.subplots(1, len(row.stages), squeeze=False)
        for axes, (title, points) in zip(grid.flat, row.stages.items(), strict=True):
            for k, name in enumerate(row.names):
                mine = [point for point, label in zip(points, row.labels, strict=True) if label == k]
                axes.scatter(
                    *(zip(*mine, strict=True) if mine else ((), ())),
                    s=16 if len(row.labels) < 1000 else 6,
                    color=palette(k % palette.N),
                    marker="os^Dv"[k // palette.N % 5],
                    alpha=0.8,
                    linewidths=0,
                    label=name,
                )
            axes.set(xticks=[], yticks=[], title=title)
            axes.grid(visible=False)
        handles = grid.flat[0].get_legend_handles_labels()
        columns = 1 + (len(row.names) - 1) // 22
        part.legend(*handles, loc="outside right upper", fontsize=8, markerscale=2, ncols=columns)
    return figure
