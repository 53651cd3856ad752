"""What ProLIP and RLA share: one matrix, pulled to its starting value, fitted by one of two solvers."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip import solvers
from prolip.core import Fitted, Projected, Task, UsageError, errors
from prolip.core.arrays import unit_rows
from prolip.methods import search
from prolip.methods.base import Progress
from prolip.methods.bias import Bias, BiasMethod

CLASSES = 300  # where there are more, lam is chosen on a sample of so many: on 1,000 it would take minutes
ROUGH = 0.015


class Matrix(Bias):
    """s (normalize(x W + b) - normalize(x W0 + b)) T', in W - W0.

    `inner` is the task whose head is the matrix. Where `exact` and rows are few, the unknown is W - W0 in the
    row space of x, as in the solvers.
    """

    def __init__(self, method: Projection, task: Task, inner: Task, lam: float, exact: bool) -> None:
        self.method, self.task, self.inner, self.lam = method, task, inner, lam
        rows, _ = inner.rows()
        self.x, _ = inner.linear.split(rows)
        self.v = inner.linear(rows)
        self.unit = unit_rows(self.v)
        self.text = task.text.rows.to(self.v)
        self.basis: Tensor | None = None
        if exact and len(self.x) < self.x.shape[1]:
            self.basis = torch.linalg.qr(self.x.T)[0].T  # [n, Do]
            self.x = self.x @ self.basis.T
        self.start = (self.v.new_zeros(self.x.shape[1], self.v.shape[1]),)

    def __call__(self, parameters: Sequence[Tensor], rows: Any) -> Tensor:
        """What the tuned matrix changes."""
        v = self.v[rows] + self.x[rows] @ parameters[0]
        return self.task.scale * (unit_rows(v) - self.unit[rows]) @ self.text.T

    def penalty(self, parameters: Sequence[Tensor]) -> Tensor:
        """The pull lam |W - W0|^2."""
        return self.lam * parameters[0].square().sum()

    def fitted(self, parameters: Sequence[Tensor], info: dict[str, Any]) -> Projected:
        """The method's own form."""
        step = parameters[0].detach()
        if self.basis is not None:
            step = self.basis.T @ step
        return self.method.place(self.task, self.inner.linear.weight.to(step) + step, self.task.scale, info)


@dataclass(frozen=True)
class Projection(BiasMethod):
    """Options of a regularised linear map.

    Parameters
    ----------
    lam
        Weight of the penalty |W - W0|^2: "auto" (chosen inside the support set), "1/N", "1/N^2" or a number.
    scale
        What cosines are multiplied by: "fixed" (the model's own), "auto" (chosen along with lam="auto"), or
        a number.
    solver
        "exact" goes to the minimum and has no learning rate; "adam" is the paper's recipe.
    lr, epochs
        Of "adam".
    seed
        Of the folds that lam="auto" is chosen on.
    fit_scale, restrained
        What cosines are multiplied by in the fit, where not by `scale`; and whether to fit the restrained
        form of the objective (`prolip.solvers.selection`). lam="auto" settles both.
    tol
        Of "exact": see `prolip.solvers.exact`.
    """

    in_sum: ClassVar[dict[str, Any]] = {"lam": "1/N", "scale": "fixed"}

    lam: str | float = "auto"
    scale: str | float = "auto"
    solver: str = "exact"
    lr: float = 1e-4
    epochs: int = 300
    seed: int = 0
    fit_scale: float | None = None
    restrained: bool = False
    tol: float | None = None

    def __post_init__(self) -> None:
        if self.solver not in ("exact", "adam"):
            raise errors.unknown_name("solver", str(self.solver), ["exact", "adam"])
        if isinstance(self.scale, str) and self.scale not in ("fixed", "auto"):
            raise UsageError(f'scale must be "fixed", "auto" or a number, got {self.scale!r}')

    @abstractmethod
    def inner(self, task: Task) -> Task:
        """The task whose head is the matrix to fit."""

    @abstractmethod
    def place(self, task: Task, weight: Tensor, scale: float, info: dict[str, Any]) -> Projected:
        """The fitted matrix in its place in the model."""

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Projected:
        """Choose lam (and scale) where that is asked for, then fit the matrix."""
        return self._fit(task, progress, validation)

    def refit(self, task: Task, before: Fitted) -> Projected:
        """The same minimum, from a matrix that is near it already."""
        start = None
        if isinstance(before, Projected):
            start = before.head.weight if before.adapter is None else before.adapter
        return self._fit(task, start=start)

    def _fit(
        self,
        task: Task,
        progress: Progress | None = None,
        validation: Task | None = None,
        start: Tensor | None = None,
    ) -> Projected:
        started = time.perf_counter()
        task, chosen, told = self.settle(task, validation)
        inner, lam = self.inner(task), float(chosen.lam)
        if chosen.fit_scale is not None:
            inner = inner.with_scale(chosen.fit_scale)
        if self.solver == "exact":
            solution = solvers.exact(inner, lam, tol=self.tol, start=start, restrained=chosen.restrained)
        else:
            solution = solvers.adam(inner, lam, lr=self.lr, epochs=self.epochs, progress=progress)
        told |= {
            "solver": solution.solver,
            "objective": solution.objective,
            "start_objective": solution.start_objective,
            "evaluations": solution.evaluations,
            "converged": solution.converged,
        }
        return self.place(task, solution.weight, task.scale, self.report(task, started, **told))

    def settle(self, task: Task, validation: Task | None) -> tuple[Task, Projection, dict[str, Any]]:
        """Choose lam and scale."""
        if not isinstance(self.scale, str):
            task = task.with_scale(self.scale)
        told: dict[str, Any] = {"lam_rule": self.lam}
        fit_scale, restrained = self.fit_scale, self.restrained
        if self.lam == "auto" and validation is not None:
            found = solvers.grid_search(self.inner(task), self.inner(validation.with_scale(task.scale)))
            lam, told["validation_accuracy"] = found.solution.lam, found.accuracy
        elif self.lam == "auto":
            how = "auto" if self.scale == "auto" else "fixed"
            inner = self.inner(task)
            if inner.classes > CLASSES:
                inner = search.some_classes(inner, CLASSES, self.seed)
            choice = solvers.choose(inner, scale=how, seed=self.seed)
            task, lam, told["choice"] = task.with_scale(choice.scale), choice.lam, _report(choice)
            fit_scale, restrained = choice.fit_scale, choice.restrained
        else:
            lam = solvers.lam_value(self.lam, task)
        chosen = {"lam": lam, "scale": task.scale, "fit_scale": fit_scale, "restrained": restrained}
        told |= {"lam": lam, "chosen": chosen}
        return task, replace(self, **chosen), told  # type: ignore[arg-type]

    def rough(self) -> Projection:
        """To 1e-4 of the objective."""
        return replace(self, tol=ROUGH)

    def bias(self, task: Task, exact: bool) -> Matrix:
        """The matrix as a term."""
        return Matrix(self, task, self.inner(task), solvers.lam_value(self.lam, task), exact)


def _report(choice: solvers.Choice) -> dict[str, Any]:
    """A choice of lam as `info` tells it."""
    return {
        "reason": choice.reason,
        "unit": choice.unit,
        "fit_scale": choice.fit_scale,
        "restrained": choice.restrained,
        "lam": [trial.lam for trial in choice.tried],
        "scale": [trial.scale for trial in choice.tried],
        "accuracy": [round(trial.accuracy, 4) for trial in choice.tried],
        "likelihood": [round(trial.log_likelihood, 4) for trial in choice.tried],
    }
