"""Charts of experiments: lines, panels, bars, maps and clouds of points, in the style of `plot_style`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from prolip.research.reporting.plot_style import COLOURS, DARK, GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Mark(NamedTuple):
    """A figure to draw: mean and deviation in percent; `partial` if runs are missing, then it is hollow."""

    mean: float | None
    std: float | None = None
    partial: bool = False


Marks = Sequence[Mark]

# Beyond the colours, lines differ by stroke and marker.
STYLES = (("-", "o"), ("--", "s"), (":", "^"))


@dataclass(frozen=True)
class Panel:
    """What one pair of axes shows."""

    series: Mapping[str, Marks]  # for each line or set of bars: the figure at each tick
    title: str = ""  # above the axes
    # The paper's figures by the name of the line.
    published: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)  # horizontal lines, like zero-shot accuracy


@dataclass(frozen=True)
class Cloud:
    """Points of one dataset at several stages."""

    stages: Mapping[str, Any]  # points [n, 2] by title
    labels: Sequence[int]  # the class of each point
    names: Sequence[str]  # of the classes


def lines(
    ticks: Sequence[str],
    panels: Sequence[Panel],
    xlabel: str,
    ylabel: str = "accuracy, %",
    title: str = "",
    columns: int = 4,
    share: bool = False,
) -> Figure:
    """A line for each of several methods, in one panel, or several in rows of `columns`.

    Bands are one deviation to either side; crosses in a line's colour are the paper's figures. With `share`,
    all panels have one vertical scale.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels for name in (*panel.levels, *panel.series)))
    tall = 0.26 * len(names) + 1.2  # what the legend needs
    size = (9.0, 4.2) if len(panels) == 1 else (2.7 * columns + 3.0, 2.7 * rows + 0.6)
    figure = new_figure(size[0], max(size[1], tall))
    grid = figure.subplots(rows, columns, sharey=share, squeeze=False)
    order = list(dict.fromkeys(name for panel in panels for name in panel.series))
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_lines(axes, ticks, panel, order)
        axes.set_title(panel.title, fontsize=11)
    for i, axes in enumerate(grid.flat):
        axes.set_visible(i < len(panels))
        if i + columns >= len(panels):
            axes.set_xlabel(xlabel)
        if i % columns == 0:
            axes.set_ylabel(ylabel)
    _head(figure, grid[0, 0], title, len(panels))
    _legend(figure, grid.flat[: len(panels)])
    return figure


def _head(figure: Figure, axes: Any, title: str, panels: int) -> None:
    """The title of a whole figure, at its left."""
    if panels == 1:
        axes.set_title(title, loc="left", fontsize=11)
    elif title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)


def _legend(figure: Figure, axes: Iterable[Any]) -> None:
    """Each name once, whichever panel has it."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, name in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    figure.legend(found.values(), found.keys(), loc="outside right upper", fontsize=9)


def _draw_lines(axes: Any, ticks: Sequence[str], panel: Panel, order: list[str]) -> None:
    places = list(range(len(ticks)))
    for i, (name, level) in enumerate(panel.levels.items()):
        axes.axhline(
            level, color=GREY, linestyle=(0, (5, 3) if not i else (1, i + 1)), linewidth=1.2, label=name
        )
    for name, marks in panel.series.items():
        turn, i = divmod(order.index(name), len(COLOURS))
        _band(axes, places, marks, COLOURS[i], STYLES[turn % len(STYLES)], name)
        for place, value in zip(places, panel.published.get(name, ()), strict=False):
            if value is not None:
                axes.plot(place, value, "x", color=COLOURS[i], markersize=8, markeredgewidth=2)
    if panel.published:
        axes.plot([], [], "x", color=GREY, markersize=8, markeredgewidth=2, label="published")
    axes.set_xticks(places, ticks)


def _band(axes: Any, places: list[int], marks: Marks, colour: str, style: tuple[str, str], name: str) -> None:
    known = [(place, mark) for place, mark in zip(places, marks, strict=True) if mark.mean is not None]
    if not known:
        return
    xs, means = [x for x, _ in known], [float(mark.mean or 0.0) for _, mark in known]
    stds = [mark.std or 0.0 for _, mark in known]
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    axes.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
    stroke, marker = style
    axes.plot(xs, means, marker=marker, markersize=4.5, linestyle=stroke, color=colour, label=name)
    hollow = [i for i, (_, mark) in enumerate(known) if mark.partial]
    if hollow:
        places, values = [xs[i] for i in hollow], [means[i] for i in hollow]
        axes.plot(
            places, values, marker=marker, markersize=5, linestyle="", color=colour, markerfacecolor="white"
        )


def bars(groups: Sequence[str], panels: Sequence[Panel], title: str = "") -> Figure:
    """Groups of bars, panels one above the other; the paper's figures are dark lines."""
    most = max(len(panel.series) for panel in panels)
    count = len(groups) * most
    step = 0.3 if count <= 40 else 0.17  # inches for a bar
    high = 4.4 if len(panels) == 1 else 2.7 * len(panels) + 0.6
    figure = new_figure(max(9.0, step * count + 4.5), high)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    slanted = len(groups) > 6
    for axes, panel in zip(grid.flat, panels, strict=True):
        _draw_bars(axes, panel, figures=count <= 40)
        axes.set_xticks(
            range(len(groups)), groups, rotation=25 if slanted else 0, ha="right" if slanted else "center"
        )
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("accuracy, %")
        axes.set_ylim(0, 105)
        axes.set_title(panel.title, fontsize=11)
    _head(figure, grid[0, 0], title, len(panels))
    _legend(figure, grid.flat)
    return figure


def _draw_bars(axes: Any, panel: Panel, figures: bool) -> None:
    """Bars and the paper's lines; `figures` writes each value at the foot of its bar, clear of the lines."""
    width = 0.82 / len(panel.series)
    for i, (name, marks) in enumerate(panel.series.items()):
        offset = (i - (len(panel.series) - 1) / 2) * width
        colour = COLOURS[i % len(COLOURS)]
        known = [(group + offset, mark) for group, mark in enumerate(marks) if mark.mean is not None]
        axes.bar(
            [x for x, _ in known],
            [mark.mean for _, mark in known],
            width * 0.88,
            color=["white" if mark.partial else colour for _, mark in known],
            hatch="////" if i >= len(COLOURS) else None,
            edgecolor=[colour if mark.partial else "white" for _, mark in known],
            linewidth=[1.5 * mark.partial for _, mark in known],
            label=name,
        )
        for x, mark in known if figures else ():
            ink = "white" if i % len(COLOURS) < DARK and not mark.partial else "#222222"
            axes.text(x, 1.5, f"{mark.mean:.0f}", ha="center", va="bottom", fontsize=8, color=ink)
        for group, paper in enumerate(panel.published.get(name, ())):
            if paper is not None:
                ends = [group + offset - width * 0.46, group + offset + width * 0.46]
                axes.plot(ends, [paper] * 2, color="#222222", linewidth=2, label="published")


def heat_maps(
    titles: Sequence[str],
    counts: Sequence[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    title: str = "",
) -> Figure:
    """Counts [rows, columns], a map for each title, each in percent of its own sum."""
    figure = new_figure(max(6.0, 3.0 * len(titles) + 0.6), 4.2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for i, (name, values) in enumerate(zip(titles, counts, strict=True)):
        axes = figure.add_subplot(1, len(titles), i + 1)
        share = 100 * values / max(values.sum(), 1)
        axes.imshow(share, cmap="Blues", vmin=0, vmax=max(float(share.max()), 1.0))
        axes.grid(visible=False)
        axes.set_xticks(range(len(columns)), columns, fontsize=8, rotation=60)
        axes.set_yticks(range(len(rows)), rows if not i else [""] * len(rows), fontsize=8)
        axes.set_title(name, fontsize=11)
        axes.set_xlabel(labels[1])
        if not i:
            axes.set_ylabel(labels[0])
        for r, row in enumerate(share):
            for k, value in enumerate(row):
                if value >= 0.5:
                    colour = "white" if value > 0.6 * share.max() else "#222222"
                    axes.text(k, r, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    return figure


def scatters(clouds: Sequence[Cloud]) -> Figure:
    """Points in the colours of their classes: a row of pictures for each cloud."""
    from matplotlib import colormaps

    figure = new_figure(12.2, 4.8 * len(clouds))
    for part, cloud in zip(figure.subfigures(len(clouds), 1, squeeze=False).flat, clouds, strict=True):
        palette = colormaps["tab20" if len(cloud.names) > 10 else "tab10"]
        grid = part.subplots(1, len(cloud.stages), squeeze=False)
        for axes, (title, points) in zip(grid.flat, cloud.stages.items(), strict=True):
            for k, name in enumerate(cloud.names):
                mine = [point for point, label in zip(points, cloud.labels, strict=True) if label == k]
                xs, ys = zip(*mine, strict=True) if mine else ((), ())
                axes.scatter(
                    xs,
                    ys,
                    s=16 if len(cloud.labels) < 1000 else 6,
                    color=palette(k % palette.N),
                    marker="os^Dv"[k // palette.N % 5],
                    alpha=0.8,
                    linewidths=0,
                    label=name,
                )
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(visible=False)
            axes.set_title(title, fontsize=11)
        handles = grid.flat[0].get_legend_handles_labels()
        wide = 1 + (len(cloud.names) - 1) // 22
        part.legend(*handles, loc="outside right upper", fontsize=8, markerscale=2, ncols=wide)
    return figure
