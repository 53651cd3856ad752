"""The one style of plots. Figures are returned; who asked for them saves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prolip.io.environment import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DARK = 3  # of them, the first, that white letters can be read on
GREY, RED = "#666666", "#b3261e"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in our style, in inches."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError("drawing", "matplotlib", "plot") from error
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
