"""What ProLIP and RLA share: one matrix, pulled to its starting value, fitted by one of two solvers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from prolip import solvers
from prolip.core import Task, UsageError, errors
from prolip.methods.base import Method, Progress


@dataclass(frozen=True)
class Projection(Method):
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
    """

    lam: str | float = "auto"
    scale: str | float = "auto"
    solver: str = "exact"
    lr: float = 1e-4
    epochs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if self.solver not in ("exact", "adam"):
            raise errors.unknown_name("solver", str(self.solver), ["exact", "adam"])
        if isinstance(self.scale, str) and self.scale not in ("fixed", "auto"):
            raise UsageError(f'scale must be "fixed", "auto" or a number, got {self.scale!r}')

    def solve(
        self, task: Task, progress: Progress | None, validation: Task | None = None
    ) -> tuple[solvers.Solution, dict[str, Any]]:
        """Choose lam (and scale) where that is asked for, then fit the matrix of `task.linear`."""
        started = time.perf_counter()
        if not isinstance(self.scale, str):
            task = task.with_scale(self.scale)
        info: dict[str, Any] = {"method": self.name, "lam_rule": self.lam}
        if self.lam == "auto" and validation is not None:
            found = solvers.grid_search(task, validation)
            lam, info["validation_accuracy"] = found.solution.lam, found.accuracy
        elif self.lam == "auto":
            choice = solvers.choose(task, scale="auto" if self.scale == "auto" else "fixed", seed=self.seed)
            task, lam = task.with_scale(choice.scale), choice.lam
            info["choice"] = _report(choice)
        else:
            lam = solvers.lam_value(self.lam, task)
        if self.solver == "exact":
            solution = solvers.exact(task, lam)
        else:
            solution = solvers.adam(task, lam, lr=self.lr, epochs=self.epochs, progress=progress)
        info |= {
            "lam": solution.lam,
            "scale": solution.scale,
            "solver": solution.solver,
            "objective": solution.objective,
            "start_objective": solution.start_objective,
            "evaluations": solution.evaluations,
            "converged": solution.converged,
            "chosen": {"lam": solution.lam, "scale": solution.scale},
            "parameters": self.parameters(task),
            "seconds": time.perf_counter() - started,
        }
        return solution, info


def _report(choice: solvers.Choice) -> dict[str, Any]:
    """A choice of lam as `info` tells it."""
    return {
        "reason": choice.reason,
        "unit": choice.unit,
        "lam": [trial.lam for trial in choice.tried],
        "scale": [trial.scale for trial in choice.tried],
        "accuracy": [round(trial.accuracy, 4) for trial in choice.tried],
        "likelihood": [round(trial.log_likelihood, 4) for trial in choice.tried],
    }
