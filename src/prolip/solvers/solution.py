"""What a solver returns, and how a regularisation strength is written."""

import math
from dataclasses import dataclass
from typing import Any

from prolip.core import Task, UsageError
from prolip.core.arrays import Array


@dataclass(frozen=True, eq=False)
class Solution:
    """A fitted projection W [Do, D], that replaces `task.linear.weight`, and how it was found.

    Objectives are mean cross-entropy over every view plus lam |W - W0|^2, at W and at W0; `converged`: it
    stopped because nothing more was to be gained, None where a fixed number of steps does not tell.
    """

    weight: Array
    lam: float
    objective: float
    start_objective: float
    evaluations: int
    solver: str  # "exact" or "adam"
    converged: bool | None

    def report(self) -> dict[str, Any]:
        """Figures of the fit."""
        names = ("solver", "objective", "start_objective", "evaluations", "converged")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def lam_value(lam: Any, task: Task) -> float:
    """The number behind "1/N", "1/N^2" (N = images per class) or a number >= 0."""
    check_lam(lam)
    named = {"1/N": 1.0 / task.shots, "1/N^2": 1.0 / task.shots**2}
    return named[lam] if lam in named else float(lam)


def check_lam(lam: Any) -> None:
    """Refuse what is neither a rule nor a number >= 0."""
    if lam in ("auto", "1/N", "1/N^2"):
        return
    try:
        value = float(lam)
    except (TypeError, ValueError):
        value = math.nan
    if not (0 <= value < math.inf):
        raise UsageError(f'lam must be "auto", "1/N", "1/N^2" or a finite number >= 0, got {lam!r}')
