"""Plots in one style. Figures are returned; who asked for them saves them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from prolip.core.errors import ModelError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY, RIGHT, WRONG = "#666666", "#00724f", "#b3261e"


def _figure(width: float, height: float) -> Figure:
    try:
        import matplotlib
    except ImportError as error:
        raise ModelError("plots need matplotlib: pip install 'prolip[plot]'") from error
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e6e6e6",
            "axes.axisbelow": True,
            "legend.frameon": False,
        }
    )
    return Figure(figsize=(width, height), layout="constrained")


def accuracy_curves(
    shots: Sequence[int],
    curves: Mapping[str, Sequence[Sequence[float]]],
    zero_shot: Mapping[str, float],
) -> Figure:
    """Accuracy against shots, a line per set with its zero-shot accuracy at 0.

    `curves[name][i]` holds one accuracy per seed for `shots[i]`; the band spans them.
    """
    figure = _figure(6.4, 4.2)
    axes = figure.add_subplot()
    places = list(range(len(shots) + 1))
    for colour, (name, values) in zip(COLOURS, curves.items(), strict=False):
        columns = [[zero_shot[name]], *values]
        means = [100 * sum(column) / len(column) for column in columns]
        low, high = ([100 * pick(column) for column in columns] for pick in (min, max))
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(places, means, "o-", color=colour, label=name)
        for place, mean in zip(places, means, strict=True):
            axes.annotate(
                f"{mean:.0f}",
                (place, mean),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                color=colour,
            )
    axes.set_xticks(places, ["zero-shot", *(f"{n}" for n in shots)])
    axes.set_xlabel("labelled images per class")
    axes.set_ylabel("accuracy on unseen images, %")
    axes.set_ylim(0, 105)
    axes.legend(loc="lower right")
    return figure


def answer_sheet(
    images: Sequence[Image.Image], truths: Sequence[str], before: Sequence[str], after: Sequence[str]
) -> Figure:
    """Pictures with the answer before and after the fit: green where right, red where wrong."""
    columns = min(6, len(images))
    rows = -(-len(images) // columns)
    figure = _figure(1.55 * columns, 2.2 * rows)
    for i, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.imshow(image)
        axes.set_axis_off()
        axes.set_title(truths[i], fontsize=10, fontweight="bold", color="#222222", pad=3)
        for y, prefix, answer in ((-0.06, "before: ", before[i]), (-0.22, "after: ", after[i])):
            colour = RIGHT if answer == truths[i] else WRONG
            axes.text(
                0.5,
                y,
                prefix + answer,
                transform=axes.transAxes,
                ha="center",
                va="top",
                fontsize=8,
                color=colour,
            )
    return figure


def confusion_matrix(counts: Any, names: Sequence[str]) -> Figure:
    """Rows are the truth, columns the answer, in percent of the row."""
    size = 2.2 + 0.42 * len(names)
    figure = _figure(size + 0.6, size)
    axes = figure.add_subplot()
    share = 100 * counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=100)
    axes.grid(visible=False)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("answer")
    axes.set_ylabel("truth")
    for i, row in enumerate(share):
        for j, value in enumerate(row):
            if value >= 1:
                colour = "white" if value > 55 else "#222222"
                axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=8, color=colour)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


STYLES = ("-", "--", ":")

Points = Sequence[tuple[float | None, float | None]]  # mean and deviation, in percent


def lines(
    ticks: Sequence[str],
    series: Mapping[str, Points],
    xlabel: str,
    published: Mapping[str, Sequence[float | None]] | None = None,
    levels: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """Accuracy, a line for each of several methods.

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
    figure = _figure(9.0, max(4.2, 0.26 * rows + 1.2))
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
    axes.set_ylabel("accuracy, %")
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
    figure = _figure(2.5 * len(titles) + 0.8, 3.6)
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
    """Groups of bars with their values on top; the paper's figures as short dark lines across them."""
    figure = _figure(max(7.0, 0.30 * len(groups) * len(series) + 2.0), 4.4)
    axes = figure.add_subplot()
    width = 0.82 / len(series)
    for i, (name, values) in enumerate(series.items()):
        xs = [g + (i - (len(series) - 1) / 2) * width for g in range(len(groups))]
        colour = COLOURS[i % len(COLOURS)]
        known = [(x, value) for x, value in zip(xs, values, strict=True) if value is not None]
        axes.bar([x for x, _ in known], [value for _, value in known], width * 0.92, color=colour, label=name)
        for x, value in known:
            axes.annotate(
                f"{value:.0f}", (x, value), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8
            )
        for x, figure_of_paper in zip(xs, (published or {}).get(name, ()), strict=False):
            if figure_of_paper is not None:
                axes.plot(
                    [x - width * 0.46, x + width * 0.46], [figure_of_paper] * 2, color="#222222", linewidth=2
                )
    axes.set_xticks(
        range(len(groups)),
        groups,
        rotation=25 if len(groups) > 6 else 0,
        ha="right" if len(groups) > 6 else "center",
    )
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 105)
    figure.legend(loc="outside upper center", ncols=min(4, len(series)), fontsize=10)
    return figure


def heat_maps(
    titles: Sequence[str],
    counts: Sequence[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
) -> Figure:
    """Counts [rows, columns], a map for each title, each in percent of its own sum."""
    figure = _figure(3.0 * len(titles) + 0.6, 3.9)
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

    figure = _figure(5.0 * len(titles) + 2.2, 4.8)
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
                s=9,
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
