"""Charts of experiments: lines, panels, bars, maps and clouds of points, in the style of `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prolip.bench.plots import COLOURS, GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("-", "--", ":")

Points = Sequence[tuple[float | None, float | None]]  # mean and deviation, in percent


def lines(
    ticks: Sequence[str],
    series: Mapping[str, Points],
    xlabel: str,
    published: Mapping[str, Sequence[float | None]] | None = None,
    levels: Mapping[str, float] | None = None,
    title: str = "",
    ylabel: str = "accuracy, %",
) -> Figure:
    """A line for each of several methods.

    Parameters
    ----------
    ticks
        Of the horizontal axis.
    series
        Mean and deviation at each tick; the band is one deviation to either side.
    published
        The paper's figures, drawn as crosses in the line's colour.
    levels
        Horizontal lines, like zero-shot accuracy.
    """
    rows = len(series) + len(levels or {})
    figure = new_figure(9.0, max(4.2, 0.26 * rows + 1.2))
    axes = figure.add_subplot()
    places = list(range(len(ticks)))
    for name, level in (levels or {}).items():
        axes.axhline(level, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2, label=name)
    for i, (name, points) in enumerate(series.items()):
        colour, style = COLOURS[i % len(COLOURS)], STYLES[i // len(COLOURS) % len(STYLES)]
        _band(axes, places, points, colour, style, name)
        for place, value in zip(places, (published or {}).get(name, ()), strict=False):
            if value is not None:
                axes.plot(place, value, "x", color=colour, markersize=8, markeredgewidth=2)
    if published:
        axes.plot([], [], "x", color=GREY, markersize=8, markeredgewidth=2, label="published")
    axes.set_xticks(places, ticks)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    figure.legend(loc="outside right upper", fontsize=9)
    return figure


def panels(
    titles: Sequence[str],
    ticks: Sequence[str],
    series: Mapping[str, Sequence[Points]],
    xlabel: str,
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """Small pictures side by side on one scale: `series[name][i]` belongs to the i-th."""
    figure = new_figure(2.5 * len(titles) + 0.8, 3.6)
    places = list(range(len(ticks)))
    first: Any = None
    for i, title in enumerate(titles):
        axes = figure.add_subplot(1, len(titles), i + 1, sharey=first)
        first = first or axes
        for name, level in (levels or {}).items():
            axes.axhline(
                level, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2, label=name if not i else None
            )
        for j, (name, points) in enumerate(series.items()):
            _band(axes, places, points[i], COLOURS[j % len(COLOURS)], "-", name if not i else None)
        axes.set_xticks(places, ticks, fontsize=9)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel(xlabel)
        if i:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("accuracy, %")
    figure.legend(loc="outside lower center", ncols=len(series) + len(levels or {}), fontsize=10)
    return figure


def _band(axes: Any, places: list[int], points: Points, colour: str, style: str, name: str | None) -> None:
    known = [
        (place, mean, std or 0.0)
        for place, (mean, std) in zip(places, points, strict=True)
        if mean is not None
    ]
    if not known:
        return
    xs, means, stds = zip(*known, strict=True)
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    axes.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(xs, means, marker="o", markersize=4.5, linestyle=style, color=colour, label=name)


def bars(
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    published: Mapping[str, Sequence[float | None]] | None = None,
) -> Figure:
    """Groups of bars, with values on top where there is room; the paper's figures as dark lines."""
    count = len(groups) * len(series)
    step = 0.3 if count <= 40 else 0.17  # inches for a bar
    figure = new_figure(max(9.0, step * count + 4.5), 4.4)
    axes = figure.add_subplot()
    width = 0.82 / len(series)
    marked = False
    for i, (name, values) in enumerate(series.items()):
        xs = [g + (i - (len(series) - 1) / 2) * width for g in range(len(groups))]
        known = [(x, value) for x, value in zip(xs, values, strict=True) if value is not None]
        axes.bar(
            [x for x, _ in known],
            [value for _, value in known],
            width * 0.92,
            color=COLOURS[i % len(COLOURS)],
            hatch="////" if i >= len(COLOURS) else None,
            edgecolor="white",
            linewidth=0,
            label=name,
        )
        for x, value in known if count <= 40 else ():
            axes.annotate(
                f"{value:.0f}", (x, value), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8
            )
        for x, paper in zip(xs, (published or {}).get(name, ()), strict=False):
            if paper is not None:
                ends = [x - width * 0.46, x + width * 0.46]
                axes.plot(
                    ends, [paper] * 2, color="#222222", linewidth=2, label=None if marked else "published"
                )
                marked = True
    slanted = len(groups) > 6
    axes.set_xticks(
        range(len(groups)), groups, rotation=25 if slanted else 0, ha="right" if slanted else "center"
    )
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 105)
    figure.legend(loc="outside right upper", fontsize=10)
    return figure


def heat_maps(
    titles: Sequence[str],
    counts: Sequence[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
) -> Figure:
    """Counts [rows, columns], a map for each title, each in percent of its own sum."""
    figure = new_figure(3.0 * len(titles) + 0.6, 3.9)
    for i, (title, values) in enumerate(zip(titles, counts, strict=True)):
        axes = figure.add_subplot(1, len(titles), i + 1)
        share = 100 * values / max(values.sum(), 1)
        axes.imshow(share, cmap="Blues", vmin=0, vmax=max(float(share.max()), 1.0))
        axes.grid(visible=False)
        axes.set_xticks(range(len(columns)), columns, fontsize=8, rotation=60)
        axes.set_yticks(range(len(rows)), rows if not i else [""] * len(rows), fontsize=8)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel(labels[1])
        if not i:
            axes.set_ylabel(labels[0])
        for r, row in enumerate(share):
            for k, value in enumerate(row):
                if value >= 0.5:
                    colour = "white" if value > 0.6 * share.max() else "#222222"
                    axes.text(k, r, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    return figure


def scatters(
    titles: Sequence[str], points: Sequence[Any], labels: Sequence[int], names: Sequence[str]
) -> Figure:
    """Points [n, 2] in the colours of their classes, a picture for each title."""
    from matplotlib import colormaps

    figure = new_figure(5.0 * len(titles) + 2.2, 4.8)
    palette = colormaps["tab20" if len(names) > 10 else "tab10"]
    for i, (title, place) in enumerate(zip(titles, points, strict=True)):
        axes = figure.add_subplot(1, len(titles), i + 1)
        for k, name in enumerate(names):
            mine = [point for point, label in zip(place, labels, strict=True) if label == k]
            xs, ys = zip(*mine, strict=True) if mine else ((), ())
            colour = palette(k % palette.N)
            marker = "os^Dv"[k // palette.N % 5]
            axes.scatter(
                xs,
                ys,
                s=16 if len(labels) < 1000 else 6,
                color=colour,
                marker=marker,
                alpha=0.8,
                linewidths=0,
                label=name if not i else None,
            )
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.set_title(title, fontsize=11)
    figure.legend(loc="outside right upper", fontsize=8, markerscale=2, ncols=1 + (len(names) - 1) // 22)
    return figure
