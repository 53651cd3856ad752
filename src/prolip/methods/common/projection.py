"""What ProLIP and RLA share: one matrix, pulled to its starting value, fitted by one of two solvers."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip import solvers
from prolip.core import HeldOutPredictions, Projected, Task, UsageError, errors
from prolip.core.arrays import Array
from prolip.methods.common import automatic
from prolip.methods.common.cross_validation import cross_validate
from prolip.methods.common.logit_bias import LogitBiasMethod, Pullback, normalised, row_space
from prolip.methods.common.method import Progress
from prolip.methods.common.penalised_bias import PenalisedBias

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
        Weight of the penalty |W - W0|^2: "1/N", "1/N^2" or a number, the paper's objective; or "auto", which
        settles everything inside the support set (`prolip.methods.common.automatic`).
    scale
        What cosines are multiplied by: "fixed" (the model's own), "auto" (chosen along with lam="auto"), or
        a number.
    solver
        "exact" goes to the minimum and has no learning rate; "adam" is the paper's recipe.
    lr, epochs
        Of "adam".
    seed
        Of the folds that lam="auto" is chosen on.
    trust, share, fit_scale
        What lam="auto" settled on: with `trust` the fit is a regression on top of zero-shot scores
        (`prolip.methods.common.residual`), b and m there; and what its own cosines were multiplied by.
    """

    in_sum: ClassVar[dict[str, Any]] = {"lam": "1/N", "scale": "fixed"}

    lam: str | float = "auto"
    scale: str | float = "auto"
    solver: str = "exact"
    lr: float = 1e-4
    epochs: int = 300
    seed: int = 0
    trust: float | None = None
    share: float = 1.0
    fit_scale: float | None = None

    def __post_init__(self) -> None:
        solvers.check_lam(self.lam)
        errors.check_name("solver", self.solver, ("exact", "adam"))
        if isinstance(self.scale, str) and self.scale not in ("fixed", "auto"):
            raise UsageError(f'scale must be "fixed", "auto" or a number, got {self.scale!r}')

    @abstractmethod
    def inner(self, task: Task) -> Task:
        """The task whose head is the matrix to fit."""

    @abstractmethod
    def place(self, task: Task, weight: Array) -> Projected:
        """The fitted matrix in its place in the model."""

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Projected:
        """Choose lam (and scale) where that is asked for, then fit the matrix."""
        return self._fit(task, progress, validation)[0]

    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Projected, HeldOutPredictions]:
        """The fit; its choice of lam has asked the folds already."""
        fitted, held_out = self._fit(task, progress)
        if held_out is None or seed != self.seed:
            held_out = cross_validate(self.create(**fitted.settings.options), task, seed=seed)
        return fitted, held_out

    def _fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> tuple[Projected, HeldOutPredictions | None]:
        started = self.begin(task, validation)
        if self.lam == "auto" and self.solver == "exact" and validation is None:
            task = self._scaled(task)
            solution, choice = automatic.automatic(self.inner(task), scale=self._scale_rule(), seed=self.seed)
            task, chosen, figures = self._take(task, choice)
            held_out = choice.held_out
        else:
            task, chosen, figures = self.resolve(task, validation)
            inner, lam, held_out = self.inner(task), float(chosen.lam), None
            if chosen.trust is not None:
                solution = automatic.residual_fit(inner, lam, chosen.trust, chosen.share)
            elif self.solver == "exact":
                solution = solvers.exact(inner, lam)
            else:
                solution = solvers.adam(inner, lam, lr=self.lr, epochs=self.epochs, progress=progress)
        figures |= {
            "lam_rule": self.lam,
            "solver": solution.solver,
            "objective": solution.objective,
            "start_objective": solution.start_objective,
            "evaluations": solution.evaluations,
            "converged": solution.converged,
        }
        return chosen.finish(self.place(task, solution.weight), task, started, **figures), held_out

    def resolves(self) -> bool:
        """Whether lam is "auto"."""
        return self.lam == "auto"

    def resolve(self, task: Task, validation: Task | None) -> tuple[Task, Projection, dict[str, Any]]:
        """Choose lam and scale, where they are "auto"."""
        task = self._scaled(task)
        figures: dict[str, Any] = {"lam_rule": self.lam}
        if self.lam != "auto":
            lam = solvers.lam_value(self.lam, task)
        elif validation is None:
            return self._take(
                task, automatic.choose(self.inner(task), scale=self._scale_rule(), seed=self.seed)
            )
        else:
            judged = self.inner(validation.with_scale(task.scale))
            accuracies = validation_accuracies(self.inner(task), judged)
            lam = max(LAMS, key=accuracies.__getitem__)  # of equals the first, the largest
            figures["validation_accuracy"] = accuracies[lam]
        return task, replace(self, lam=lam, scale=task.scale), figures | {"lam": lam}

    def _take(self, task: Task, choice: automatic.Choice) -> tuple[Task, Projection, dict[str, Any]]:
        """The task and the method as lam="auto" chose them, and what it tells about that."""
        described = {
            "reason": choice.reason,
            "share": [trial.share for trial in choice.tried],
            "scale": [trial.scale for trial in choice.tried],
            "accuracy": [round(trial.accuracy, 4) for trial in choice.tried],
            "likelihood": [round(trial.log_likelihood, 4) for trial in choice.tried],
        }
        chosen = replace(
            self,
            lam=choice.lam,
            scale=choice.scale,
            trust=choice.trust,
            share=choice.share,
            fit_scale=choice.fit_scale,
        )
        figures = {"lam": choice.lam, "trust": choice.trust, "share": choice.share, "choice": described}
        return task.with_scale(choice.scale), chosen, figures

    def bias(self, task: Task, exact: bool) -> Matrix:
        """The matrix as a term."""
        return Matrix(self, task, self.inner(task), solvers.lam_value(self.lam, task), exact)

    def _scaled(self, task: Task) -> Task:
        return task if isinstance(self.scale, str) else task.with_scale(self.scale)

    def _scale_rule(self) -> str:
        return "auto" if self.scale == "auto" else "fixed"


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
