"""The table of `make verify`: each method, what it is compared with, and how far apart they are."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array
from prolip.solvers.threads import single_thread
from reference import closed_forms as forms
from reference import newer, recipes
from reference.problems import Problem

LIMITS = {"logits": 1e-2, "points": 0.3}

SCIPY, STEPS, FORMULA = "SciPy's minimum, float64", "the authors' steps", "the formula"


@dataclass(frozen=True)
class Check:
    """A method beside something else.

    `wide` hands the method its features in float64, to compare the problem or the steps and not the rounding.
    Minima are flat: from float32 features, methods end at a millionth of the objective, up to 0.06 of a logit
    away. And rounding switches the ReLUs of CLIP-Adapter: in float32, loops of NumPy and of torch through the
    same steps end 0.09 of a logit apart.
    """

    method: str
    against: str
    pair: Callable[..., forms.Pair | None]  # of a Problem, and further options of the line
    wide: bool = False
    logits: float = LIMITS["logits"]  # how far apart they may be


CHECKS = (
    Check("zero_shot", FORMULA, forms.zero_shot),
    Check("anchored", SCIPY, forms.anchored, logits=0.1),  # it stops at 1e-5 of the objective
    Check("prolip, exact", SCIPY, forms.prolip, wide=True),
    Check("prolip, Adam", STEPS, recipes.prolip_adam),
    Check("prolip, Adam, searched", "the authors' steps and search", recipes.prolip_searched, wide=True),
    Check("rla, exact", SCIPY, forms.rla, wide=True),
    Check("rla, Adam", STEPS, recipes.rla_adam),
    Check("prolip_text, exact", SCIPY, forms.prolip_text, wide=True),
    Check("prolip_text, Adam", STEPS, recipes.prolip_text_adam),
    Check("linear_probe", SCIPY, forms.linear_probe, wide=True),
    Check("linear_probe, grid", "LP++'s authors' search", forms.linear_probe_searched, wide=True),
    Check("lp_plus_plus", STEPS, recipes.lp_plus_plus),
    Check("clap, exact", SCIPY, forms.clap, wide=True),
    Check("clap, SGD", STEPS, recipes.clap_sgd),
    Check("cross_modal, exact", SCIPY, forms.cross_modal, wide=True),
    Check("task_res, exact", SCIPY, forms.task_res, wide=True),
    Check("task_res, Adam", STEPS, recipes.task_res_adam),
    Check("task_res, SGD", "CLAP's authors' steps", recipes.task_res_sgd),
    Check("clip_adapter, Adam", "the ProLIP authors' steps, float64", recipes.clip_adapter_adam, wide=True),
    Check("clip_adapter, SGD", "LP++'s authors' steps, float64", recipes.clip_adapter_sgd, wide=True),
    Check("tip_adapter", FORMULA, forms.tip_adapter),
    Check("tip_adapter_f", STEPS, recipes.tip_adapter_f),
    Check("tip_adapter_f, validated", "LP++'s authors' steps", recipes.tip_adapter_f_validated),
    Check("tip_adapter_f_star", "LP++'s authors' steps and search", recipes.tip_adapter_f_star),
    Check("tip_adapter_f_star, shared", "LP++'s program as it runs", newer.tip_adapter_f_star_shared),
    Check("clap_tip_adapter_f", "CLAP's authors' steps", newer.clap_tip_adapter_f),
    Check("clap_cross_modal", "CLAP's authors' steps", newer.clap_cross_modal),
    Check("gda", FORMULA, forms.gda),
    Check("prolip+task_res, Adam", STEPS, recipes.prolip_and_task_res),
    Check("prolip+tip_adapter_f, Adam", STEPS, recipes.prolip_and_tip_adapter_f),
    Check("test-time ProLIP", FORMULA, recipes.test_time),
)

# Lines through towers, which `towers_torch.py` compares.
TOWER_LINES = (
    "coop", "coop, phrase", "coop, lp++", "kgcoop", "prograd", "cocoop", "plot", "plot, pooled", "maple",
    "maple, shallow", "clip_lora", "full", "last_layer", "norm_tuning", "tpt", "tpt, coop",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the table: the largest differences over all problems, by what they are in ("logits", ..)."""

    method: str
    against: str
    apart: dict[str, float]
    seconds: float
    logits: float = LIMITS["logits"]

    @property
    def beyond(self) -> list[str]:
        """In what it is too far apart."""
        limits = LIMITS | {"logits": self.logits}
        return [name for name, difference in self.apart.items() if not difference <= limits[name]]

    @property
    def agrees(self) -> bool:
        """Whether it is near enough in everything."""
        return not self.beyond


def compare(problems: Iterable[Problem], checks: Iterable[Check] = CHECKS) -> Iterator[Line]:
    """Each check over all problems; a line as soon as it is done."""
    shared = list(problems)
    for check in checks:
        started = time.perf_counter()
        with single_thread():
            pairs = [(check.pair(p.wide() if check.wide else p), p) for p in shared]
        apart = [differences(*pair, p.y) for pair, p in pairs if pair is not None]
        if apart:
            largest = {name: max(each[name] for each in apart) for name in apart[0]}
            yield Line(check.method, check.against, largest, time.perf_counter() - started, check.logits)


def differences(mine: Array, theirs: Array, y: Array) -> dict[str, float]:
    """The largest difference of a logit, and of accuracy in points, on the first images."""
    right = [100 * float(np.mean(logits.argmax(axis=1) == y[: len(logits)])) for logits in (mine, theirs)]
    return {"logits": float(np.abs(mine - theirs).max()), "points": abs(right[0] - right[1])}
