"""The paper's choice of lam with a few-shot validation set: a grid, and the best accuracy.

The authors try 49 combinations of learning rate and lam. The exact solver has no learning rate: 7 fits along
one path. As in their program lam comes in descending order and replaces the best only when it is strictly
better: ties go to the larger lam.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prolip.core import Task
from prolip.solvers.exact import path
from prolip.solvers.solution import Solution

LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)


@dataclass(frozen=True, eq=False)
class Search:
    """The best fit on the validation set, its accuracy there, and (lam, accuracy) of every fit."""

    solution: Solution
    accuracy: float
    tried: tuple[tuple[float, float], ...]


def grid_search(task: Task, validation: Task, lams: Sequence[float] = LAMS) -> Search:
    """Fit `task` for every lam and keep the fit that does best on the first view of `validation`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lam = 0")  # part of the paper's grid
        solutions = path(task, lams)
    accuracies = [_accuracy(validation, solution) for solution in solutions]
    best = int(np.argmax(accuracies))
    return Search(solutions[best], accuracies[best], tuple(zip(lams, accuracies, strict=True)))


def _accuracy(validation: Task, solution: Solution) -> float:
    embeddings = validation.linear.with_weight(solution.weight)(validation.x[0])
    predicted = (embeddings @ validation.text.rows.T.astype(embeddings.dtype)).argmax(axis=1)
    return float(np.mean(predicted == validation.y))
