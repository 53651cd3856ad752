"""Draw a learning curve with matplotlib."""

import io
from importlib.util import find_spec
from pathlib import Path

from prolip.core import UsageError
from prolip.evaluate.curve import Curve
from prolip.io.environment import MissingPackageError


def plot_format(path: Path) -> str:
    """Return the format of a file by its suffix: png, pdf or svg; refuse others, and missing matplotlib."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("png", "pdf", "svg"):
        raise UsageError(f"{path}: a plot is a .png, .pdf or .svg file")
    if find_spec("matplotlib") is None:
        raise MissingPackageError("drawing", "matplotlib", "plot")
    return suffix


def draw_curve(curve: Curve, style: str = "png") -> bytes:
    """Draw measured points, and the forecast with its interval."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    ahead = [curve.now, *curve.forecasts]
    x = [f.shots for f in ahead]
    blue = "#2a5d9f"
    axes.fill_between(
        x, [100 * f.low for f in ahead], [100 * f.high for f in ahead],
        color=blue, alpha=0.15, linewidth=0, label="90 % interval",
    )  # fmt: skip
    axes.plot(x, [100 * f.accuracy for f in ahead], "--", color=blue, label="forecast")
    axes.errorbar(
        [p.shots for p in curve.points],
        [100 * p.accuracy for p in curve.points],
        yerr=[100 * p.spread for p in curve.points],
        fmt="o-", color=blue, capsize=3, label="measured on the labelled images",
    )  # fmt: skip
    axes.axvline(curve.now.shots, color="0.6", linewidth=1)
    axes.annotate(
        "now", (curve.now.shots, 1.0), xycoords=("data", "axes fraction"),
        xytext=(0, 2), textcoords="offset points", color="0.4", ha="center",
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    ticks = sorted({*(p.shots for p in curve.points), *x})
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("labelled images per class")
    axes.set_ylabel("accuracy, %")
    axes.grid(axis="y", color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=style)
    return buffer.getvalue()
