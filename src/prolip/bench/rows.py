"""Lines that several experiments share, and how lines are written.

The paper trains with Adam. Where it reports a mean over learning rates, the exact solver, which has none,
goes to what those runs approach: rows called "exact" stand beside the paper's own recipe.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from prolip.bench.experiment import Options, Row

LRS = (1e-5, 1e-4, 1e-3, 1e-2)

# The authors' grid and its order: learning rates outside, lam inside, both from large to small. Of equal
# validation accuracies the first wins.
GRID_LRS = tuple(10.0**-k for k in range(2, 9))
GRID_LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)
GRID = tuple({"lr": lr, "lam": lam} for lr, lam in product(GRID_LRS, GRID_LAMS))
GRID_EXACT = tuple({"lam": lam} for lam in GRID_LAMS if lam)  # without a penalty there is no minimum


def power(lr: float) -> str:
    """A learning rate as the published tables write it."""
    return f"1e-{round(-math.log10(lr))}"


def adam(lam: str | float, **more: Any) -> Options:
    """The paper's recipe."""
    return {"solver": "adam", "lam": lam, **more}


def exact(lam: str | float = "1/N", **more: Any) -> Options:
    """The minimum itself."""
    return {"solver": "exact", "lam": lam, **more}


OVER_LRS: tuple[Options, ...] = tuple({"lr": lr} for lr in LRS)


def named(method: str, label: str, **more: Any) -> Row:
    """A line that the paper calls by the same name."""
    return Row(more.pop("key", method), label, method, paper=more.pop("paper", label), **more)


def each_lr(method: str, label: str, options: Options) -> tuple[Row, ...]:
    """A line for each learning rate, and their mean."""
    key = label.lower().replace(", ", "_").replace(" ", "_")
    lines = [
        Row(
            f"{key}_lr{power(lr)}",
            f"{label}, lr={power(lr)}",
            method,
            {**options, "lr": lr},
            paper=f"{label}, lr={power(lr)}",
        )
        for lr in LRS
    ]
    return (*lines, Row(key, label, method, options, over=OVER_LRS, paper=label))


def sums(solver: str, options: Options, alone: Options) -> tuple[Row, ...]:
    """ProLIP alone, and with each of the others, by one solver."""
    end, how = ("_adam", "Adam") if solver == "adam" else ("", "exact")
    mine = {**options, "solver": "adam"} if solver == "adam" else options
    others = {"rla": "RLA", "tip_adapter_f": "Tip-Adapter-F", "task_res": "TaskRes"}
    lines = [
        Row(
            f"prolip+{name}{end}",
            f"ProLIP + {label}, {how}",
            f"prolip+{name}",
            mine,
            paper=f"ProLIP + {label}",
        )
        for name, label in others.items()
    ]
    return (Row(f"prolip{end}", f"ProLIP, {how}", "prolip", alone, paper="ProLIP"), *lines)


ZERO = named("zero_shot", "Zero-shot", paper="CLIP (0-shot)")
TIP = named("tip_adapter_f", "Tip-Adapter-F")

VALIDATED = (
    ZERO,
    named("coop", "CoOp"),
    named("plot", "PLOT"),
    named("kgcoop", "KgCoOp"),
    named("prograd", "ProGrad"),
    named("clip_adapter", "CLIP-Adapter"),
    TIP,
    named("tip_adapter_f_star", "Tip-Adapter-F*"),
    named("linear_probe", "LP"),
    named("lp_plus_plus", "LP++"),
    named("prolip", "ProLIP", key="prolip_adam", options={"solver": "adam"}, grid=GRID),
    Row("prolip", "ProLIP, exact", "prolip", {"solver": "exact"}, grid=GRID_EXACT),
)
VALIDATED_ADAM = VALIDATED[-2]

# Domain generalization, cross-dataset and base-to-new: the paper's fixed setting, and the minimum.
FIXED = (
    Row("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-5), paper="ProLIP"),
    Row("prolip", "ProLIP, exact", "prolip", exact(), paper="ProLIP"),
)
