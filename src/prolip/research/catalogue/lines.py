"""Lines that several experiments share, and how lines are written.

The paper trains with Adam. Where it reports a mean over learning rates, the exact solver, which has none,
goes to what those runs approach. A line with a published figure beside it runs the program behind that
figure; lines called "exact" are ours, and have none.
"""

import math
from itertools import product
from typing import Any

from prolip.research.catalogue import phrases
from prolip.research.catalogue.experiment import Line, Options
from prolip.research.protocols.protocols import Setting

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


def line(
    key: str,
    label: str,
    method: str,
    options: Options | None = None,
    *,
    grid: tuple[Options, ...] = (),
    scale: float = 1.0,
    **more: Any,
) -> Line:
    """A line; `more` are fields of `Line`."""
    return Line(key, label, Setting(method, options or {}, grid, scale=scale), **more)


def named(method: str, label: str, **more: Any) -> Line:
    """A line that the paper calls by the same name."""
    return line(more.pop("key", method), label, method, paper=more.pop("paper", label), **more)


def each_lr(method: str, label: str, options: Options, key: str | None = None) -> tuple[Line, ...]:
    """A line for each learning rate, and their mean."""
    key = key or label.lower().replace(", ", "_").replace(" ", "_")
    each = {f"lr={power(lr)}": {**options, "lr": lr} for lr in LRS}
    lines = [
        named(method, f"{label}, {rate}", key=f"{key}_{rate.replace('=', '')}", options=mine)
        for rate, mine in each.items()
    ]
    return (*lines, named(method, label, key=key, options=options, over=OVER_LRS))


def sums(solver: str, options: Options, alone: Options) -> tuple[Line, ...]:
    """ProLIP alone, and with each of the others, by one solver."""
    end, how = ("_adam", "Adam") if solver == "adam" else ("", "exact")
    mine = {**options, "solver": "adam"} if solver == "adam" else options
    others = {"rla": "RLA", "tip_adapter_f": "Tip-Adapter-F", "task_res": "TaskRes"}
    recipe = solver == "adam"
    lines = [
        line(
            f"prolip+{name}{end}",
            f"ProLIP + {label}, {how}",
            f"prolip+{name}",
            mine,
            paper=f"ProLIP + {label}" if recipe else None,
        )
        for name, label in others.items()
    ]
    paper = "ProLIP" if recipe else None
    return (line(f"prolip{end}", f"ProLIP, {how}", "prolip", alone, paper=paper), *lines)


ZERO = named("zero_shot", "Zero-shot", paper="CLIP (0-shot)")
TIP = named("tip_adapter_f", "Tip-Adapter-F")
COOP = named("coop", "CoOp", by_dataset=phrases.COOP)
COCOOP = named("cocoop", "CoCoOp")
PLOT = named("plot", "PLOT", by_dataset=phrases.PLOT)
PROGRAD = named("prograd", "ProGrad", by_dataset=phrases.PROGRAD)
TASK_RES = (
    named("task_res", "TaskRes", options={"solver": "adam"}, by_dataset=phrases.TASK_RES),
    line("task_res_exact", "TaskRes, exact", "task_res", {"solver": "exact"}),
)
PROLIP = line("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N"), over=OVER_LRS, paper="ProLIP")
EXACT = line("prolip", "ProLIP, exact", "prolip", exact())

VALIDATED = (
    ZERO,
    COOP,
    PLOT,
    named("kgcoop", "KgCoOp", by_dataset=phrases.KGCOOP),
    PROGRAD,
    named("clip_adapter", "CLIP-Adapter", options={"solver": "sgd"}),
    line("clip_adapter_adam", "CLIP-Adapter, Adam, alpha searched", "clip_adapter", {"solver": "adam"}),
    TIP,
    named("tip_adapter_f_star", "Tip-Adapter-F*"),
    named("linear_probe", "LP"),
    named("lp_plus_plus", "LP++"),
    named("prolip", "ProLIP", key="prolip_adam", options={"solver": "adam"}, grid=GRID),
    line("prolip", "ProLIP, exact", "prolip", {"solver": "exact"}, grid=GRID_EXACT),
)
VALIDATED_ADAM = VALIDATED[-2]

# Domain generalization, cross-dataset and base-to-new: the paper's fixed setting, and the minimum.
FIXED = (line("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-5), paper="ProLIP"), EXACT)
