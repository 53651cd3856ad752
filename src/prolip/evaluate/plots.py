"""Draw values with matplotlib: a learning curve, a comparison of methods, a confusion matrix."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.io.environment import MissingPackageError, require

if TYPE_CHECKING:
    from prolip.evaluate.comparison import Comparison
    from prolip.evaluate.curve import Curve

BLUE = "#2a5d9f"


def plot_format(path: Path) -> str:
    """Return the format of a file by its suffix: png, pdf or svg; refuse others, and missing matplotlib."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("png", "pdf", "svg"):
        raise UsageError(f"{path}: a plot is a .png, .pdf or .svg file")
    if find_spec("matplotlib") is None:
        raise MissingPackageError("drawing", "matplotlib", "plot")
    return suffix


def draw_curve(curve: Curve, style: str = "png") -> bytes:
    """Draw a learning curve as a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    plot_curve(curve, figure.subplots())
    buffer = io.BytesIO()
    figure.savefig(buffer, format=style)
    return buffer.getvalue()


def new_axes(width: float, height: float) -> Any:
    """Return the axes of a new figure, which a notebook shows."""
    pyplot = require("matplotlib.pyplot", "plot", "plotting")
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def plot_curve(curve: Curve, axes: Any = None) -> Any:
    """Plot measured points, and the forecast with its interval; return the axes."""
    axes = new_axes(6.4, 4.0) if axes is None else axes
    ahead = [curve.now, *curve.forecasts]
    x = [f.shots for f in ahead]
    axes.fill_between(
        x, [100 * f.low for f in ahead], [100 * f.high for f in ahead],
        color=BLUE, alpha=0.15, linewidth=0, label="90 % interval",
    )  # fmt: skip
    axes.plot(x, [100 * f.accuracy for f in ahead], "--", color=BLUE, label="forecast")
    axes.errorbar(
        [p.shots for p in curve.points],
        [100 * p.accuracy for p in curve.points],
        yerr=[100 * p.spread for p in curve.points],
        fmt="o", color=BLUE, capsize=3, label="measured on the labelled images",
    )  # fmt: skip
    axes.plot([p.shots for p in curve.points], [100 * value for value in curve.trend], color=BLUE)
    axes.axvline(curve.now.shots, color="0.6", linewidth=1)
    axes.annotate(
        "now", (curve.now.shots, 1.0), xycoords=("data", "axes fraction"),
        xytext=(0, 2), textcoords="offset points", color="0.4", ha="center",
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    ticks = sorted({*(p.shots for p in curve.points), *x})
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set(xlabel="labelled images per class", ylabel="accuracy, %")
    axes.grid(axis="y", color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return axes


def plot_comparison(comparison: Comparison, axes: Any = None) -> Any:
    """Plot the accuracies with their intervals, the best on top; return the axes."""
    scores = comparison.scores[::-1]
    axes = new_axes(6.4, 1.2 + 0.3 * len(scores)) if axes is None else axes
    for y, each in enumerate(scores):
        chosen = comparison.decided and each is comparison.chosen
        axes.plot([100 * each.low, 100 * each.high], [y, y], color=BLUE, alpha=1 if chosen else 0.5)
        axes.plot(100 * each.accuracy, y, "o", color=BLUE, markersize=8 if chosen else 5)
    axes.set_yticks(range(len(scores)), [comparison.title(each) for each in scores])
    axes.set_xlabel("held-out accuracy with its 95 % interval, %")
    axes.grid(axis="x", color="0.92")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes


def plot_confusion(classes: Sequence[Any], counts: Array, axes: Any = None) -> Any:
    """Plot a confusion matrix [K, K], shaded by the fraction of each label; return the axes."""
    side = 2.5 + 0.3 * len(classes)
    axes = new_axes(side, side) if axes is None else axes
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.argwhere(counts).tolist():
        tone = "white" if share[i, j] > 0.5 else "black"
        axes.text(j, i, str(counts[i, j]), ha="center", va="center", color=tone, fontsize=8)
    names = [str(name) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="prediction", ylabel="label")
    return axes
