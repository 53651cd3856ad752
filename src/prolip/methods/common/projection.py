"""What ProLIP and RLA share: one matrix, pulled to its starting value, fitted by one of two solvers."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip import solvers
from prolip.core import Projected, Task, UsageError, errors
from prolip.core.arrays import Array
from prolip.methods.base import FitContext, Tuning
from prolip.methods.common.logit_bias import LogitBiasMethod, Pullback, normalised, row_space
from prolip.methods.common.penalised_bias import PenalisedBias
from prolip.methods.selection import Splits

# The grid of the paper for a few-shot validation set, in its order. The authors try 49 pairs with a learning
# rate, and replace the best only by a strictly better one; the exact solver has no learning rate.
LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)


class Matrix(PenalisedBias):
    """s (normalize(x W + b) - normalize(x W0 + b)) T', in W - W0.

    `inner` is the task whose head is the matrix. Where `exact` and rows are few, the unknown is W - W0 in the
    row space of x, as in the solvers.
    """

    def __init__(self, method: Projection, task: Task, inner: Task, lam: float, exact: bool) -> None:
        self.method, self.task, self.inner, self.lam = method, task, inner, lam
        rows, _ = inner.rows()
        self.x, _ = inner.linear.split(rows)
        self.v = inner.linear(rows)
        self.unit, _ = normalised(self.v)
        self.text = task.text.rows.astype(self.v.dtype, copy=False)
        self.basis: Array | None = None
        if exact and len(self.x) < self.x.shape[1]:
            self.basis, self.x = row_space(self.x)
        self.start = (np.zeros((self.x.shape[1], self.v.shape[1]), self.v.dtype),)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """What the tuned matrix changes."""
        x, scale = self.x[rows], self.task.scale
        unit, pullback = normalised(self.v[rows] + x @ parameters[0])
        logits = scale * (unit - self.unit[rows]) @ self.text.T
        return logits, lambda slope: [x.T @ pullback(scale * slope @ self.text)]

    def fitted(self, parameters: Sequence[Array]) -> Projected:
        """The method's own form."""
        step = parameters[0] if self.basis is None else self.basis.T @ parameters[0]
        return self.method.place(self.task, self.inner.linear.weight + step)


@dataclass(frozen=True)
class Projection(LogitBiasMethod):
    """Options of a regularised linear map.

    Parameters
    ----------
    lam
        Weight of the penalty |W - W0|^2: "1/N", "1/N^2" or a number; or "auto", the best of the paper's grid
        on a validation set.
    solver
        "exact" goes to the minimum and has no learning rate; "adam" is the paper's recipe.
    lr, epochs
        Of "adam".
    """

    lam: str | float = "1/N"
    solver: str = "exact"
    lr: float = 1e-4
    epochs: int = 300

    def __post_init__(self) -> None:
        solvers.check_lam(self.lam)
        errors.check_name("solver", self.solver, ("exact", "adam"))

    @abstractmethod
    def inner(self, task: Task) -> Task:
        """The task whose head is the matrix to fit."""

    @abstractmethod
    def place(self, task: Task, weight: Array) -> Projected:
        """The fitted matrix in its place in the model."""

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Replace a rule by its number; choose lam on the validation set where it is "auto"."""
        report: dict[str, Any] = {"lam_rule": self.lam}
        if self.lam != "auto":
            lam = solvers.lam_value(self.lam, task)
        elif splits.validation is None:
            raise UsageError(
                f'lam="auto" of {self.name} is chosen on a validation set: give one, or lam="1/N"; '
                'method="anchored" chooses everything inside the support set'
            )
        else:
            accuracies = validation_accuracies(self.inner(task), self.inner(splits.validation))
            lam = max(LAMS, key=accuracies.__getitem__)  # of equals the first, the largest
            report["validation_accuracy"] = accuracies[lam]
        return Tuning(replace(self, lam=lam), report | {"lam": lam})

    def solve(self, task: Task, context: FitContext) -> Projected:
        """Fit the matrix."""
        inner, lam = self.inner(task), float(self.lam)
        if self.solver == "exact":
            solution = solvers.exact(inner, lam)
        else:
            solution = solvers.adam(inner, lam, lr=self.lr, epochs=self.epochs, progress=context.progress)
        report = {
            "solver": solution.solver,
            "objective": solution.objective,
            "start_objective": solution.start_objective,
            "evaluations": solution.evaluations,
            "converged": solution.converged,
        }
        return replace(self.place(task, solution.weight), report=report)

    def resolves(self) -> bool:
        """Whether lam is "auto"."""
        return self.lam == "auto"

    def resolve(self, task: Task, validation: Task | None) -> tuple[Task, Projection, dict[str, Any]]:
        """Choose lam, where it is "auto"."""
        tuned = self.tune(task, Splits(task, validation))
        return task, tuned.method, tuned.report  # type: ignore[return-value]

    def bias(self, task: Task, exact: bool) -> Matrix:
        """The matrix as a term."""
        return Matrix(self, task, self.inner(task), solvers.lam_value(self.lam, task), exact)


def validation_accuracies(task: Task, validation: Task, lams: Sequence[float] = LAMS) -> dict[float, float]:
    """The accuracy of the fit under each lam on the first view of `validation`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lam = 0")  # part of the paper's grid
        solutions = solvers.path(task, lams)
    accuracies = {}
    for solution in solutions:
        embeddings = validation.linear.with_weight(solution.weight)(validation.x[0])
        predicted = (embeddings @ validation.text.rows.T.astype(embeddings.dtype)).argmax(axis=1)
        accuracies[solution.lam] = float(np.mean(predicted == validation.y))
    return accuracies
