"""The paper's grid search, with a few-shot validation set.

Adam: learning rates 1e-2 .. 1e-8 times lam 10 .. 1e-4 and 0, 49 fits. The exact solver has no learning rate:
7 fits, warm-started along the path. As in the authors' code a combination replaces the best only when it is
strictly better on the validation images, and rates and lam come in descending order: ties go to the larger
learning rate, then to the larger lam.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from prolip.core import Task, UsageError
from prolip.core.arrays import unit_rows
from prolip.core.errors import unknown_name
from prolip.solvers.adam import adam
from prolip.solvers.exact import path
from prolip.solvers.solution import Solution

RATES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)


@dataclass(frozen=True, eq=False)
class Search:
    """The best fit on the validation set, with every accuracy.

    Attributes
    ----------
    solution
        The fit chosen, on the support set alone.
    rate
        Its learning rate; None for the exact solver.
    accuracy
        Its validation accuracy.
    tried
        (learning rate or None, lam, validation accuracy), in the order tried.
    """

    solution: Solution
    rate: float | None
    accuracy: float
    tried: tuple[tuple[float | None, float, float], ...]


def grid_search(
    task: Task,
    validation: Task,
    solver: str = "exact",
    *,
    rates: Sequence[float] = RATES,
    lams: Sequence[float] = LAMS,
    epochs: int = 300,
    progress: Callable[[int, int], None] | None = None,
) -> Search:
    """Fit every combination on `task` and keep the one that does best on `validation`.

    Parameters
    ----------
    task
        The support set.
    validation
        Held-out images of the same classes; their first view counts.
    solver
        "adam" or "exact".
    rates, lams
        The grids, tried in the order given.
    epochs
        Of each Adam fit.
    progress
        Called with (fits done, fits) after each.
    """
    if solver not in ("adam", "exact"):
        raise unknown_name("solver", solver, ("adam", "exact"))
    if not lams or (solver == "adam" and not rates):
        raise UsageError("a grid search needs at least one lam, and for Adam one learning rate")
    best: tuple[float, float | None, Solution] | None = None
    tried = []
    count = len(lams) * (len(rates) if solver == "adam" else 1)
    fits = _adam_fits(task, rates, lams, epochs) if solver == "adam" else _exact_fits(task, lams)
    for done, (rate, solution) in enumerate(fits, start=1):
        accuracy = _accuracy(validation, solution)
        tried.append((rate, solution.lam, accuracy))
        if best is None or accuracy > best[0]:
            best = (accuracy, rate, solution)
        if progress is not None:
            progress(done, count)
    assert best is not None
    return Search(best[2], best[1], best[0], tuple(tried))


def _adam_fits(
    task: Task, rates: Sequence[float], lams: Sequence[float], epochs: int
) -> Iterable[tuple[float | None, Solution]]:
    for rate in rates:
        for lam in lams:
            yield rate, adam(task, lam, lr=rate, epochs=epochs)


def _exact_fits(task: Task, lams: Sequence[float]) -> Iterable[tuple[float | None, Solution]]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lam = 0")  # part of the paper's grid
        solutions = path(task, lams)
    for solution in solutions:
        yield None, solution


@torch.no_grad()
def _accuracy(validation: Task, solution: Solution) -> float:
    embeddings = validation.linear.with_weight(solution.weight)(validation.x[0])
    predicted = (unit_rows(embeddings) @ validation.text.rows.to(embeddings).T).argmax(dim=1)
    return float((predicted.cpu() == validation.y.cpu()).double().mean())
