"""What a solver returns, and how a regularisation strength is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from prolip.core import Task, UsageError


@dataclass(frozen=True, eq=False)
class Solution:
    """A fitted projection.

    Attributes
    ----------
    weight
        W [Do, D], in the place of `task.linear.weight`.
    lam, scale
        The problem that was solved.
    objective, start_objective
        Mean cross-entropy over every view plus lam |W - W0|^2, at W and at W0.
    gradient
        Norm of the objective's gradient at W, relative to its norm at W0.
    evaluations
        How often objective and gradient were computed.
    seconds
        The solve alone.
    solver
        "exact" or "adam".
    converged
        Whether the solver stopped because it was done, not because it ran out of steps.
    """

    weight: Tensor
    lam: float
    scale: float
    objective: float
    start_objective: float
    gradient: float
    evaluations: int
    seconds: float
    solver: str
    converged: bool


def lam_value(lam: Any, task: Task) -> float:
    """The number behind "1/N", "1/N^2" (N = images per class) or a number >= 0.

    Examples
    --------
    >>> import torch
    >>> task = Task(torch.eye(4), [0, 0, 1, 1], torch.eye(4)[:2])
    >>> lam_value("1/N", task), lam_value("1/N^2", task), lam_value(0.1, task)
    (0.5, 0.25, 0.1)
    """
    named = {"1/N": 1.0 / task.shots, "1/N^2": 1.0 / task.shots**2}
    if isinstance(lam, str) and lam in named:
        return named[lam]
    try:
        value = float(lam)
    except (TypeError, ValueError):
        value = math.nan
    if not (0 <= value < math.inf):
        raise UsageError(f'lam must be "auto", "1/N", "1/N^2" or a finite number >= 0, got {lam!r}')
    return value
