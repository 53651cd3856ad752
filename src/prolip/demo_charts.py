"""The charts of `prolip demo`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from prolip.bench.reporting.plot_style import COLOURS, GREEN, RED, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def accuracy_curves(
    shots: Sequence[int],
    curves: Mapping[str, Sequence[Sequence[float]]],
    zero_shot: Mapping[str, float],
) -> Figure:
    """Accuracy against shots, a line per set with its zero-shot accuracy at 0.

    `curves[name][i]` holds one accuracy per seed for `shots[i]`; the band spans them.
    """
    figure = new_figure(6.4, 4.2)
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
    figure = new_figure(1.55 * columns, 2.2 * rows)
    for i, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.imshow(image)
        axes.set_axis_off()
        axes.set_title(truths[i], fontsize=10, fontweight="bold", color="#222222", pad=3)
        for y, prefix, answer in ((-0.06, "before: ", before[i]), (-0.22, "after: ", after[i])):
            colour = GREEN if answer == truths[i] else RED
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
    figure = new_figure(size + 0.6, size)
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
