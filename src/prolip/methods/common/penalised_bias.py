"""What ProLIP on the text side and TaskRes share: one logit bias with a penalty, by one of two solvers."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, HeldOutPredictions, Task, errors
from prolip.core.arrays import Array
from prolip.methods.base import Method, Progress
from prolip.methods.common.hyperparameter import PenaltySearch
from prolip.methods.common.logit_bias import LogitBias, LogitBiasMethod, Sum
from prolip.solvers.adam import Steps
from prolip.solvers.threads import single_thread


class PenalisedBias(LogitBias):
    """A term with a penalty lam |.|^2 on its one parameter, which starts at zero."""

    lam: float

    def penalty(self, parameters: Sequence[Array]) -> tuple[float, list[Array]]:
        """The pull to zero-shot."""
        (step,) = parameters
        return self.lam * float(np.vdot(step, step)), [2 * self.lam * step]

    def with_lam(self, lam: float) -> PenalisedBias:
        """The same term under another pull."""
        other = copy.copy(self)
        other.lam = lam
        return other


@dataclass(frozen=True)
class PenalisedBiasMethod(PenaltySearch, LogitBiasMethod):
    """A bias with a penalty lam |.|^2.

    Parameters
    ----------
    solver
        "exact", or "adam" for the authors' steps.
    """

    solvers: ClassVar[tuple[str, ...]] = ("exact", "adam")

    solver: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.check_name("solver", self.solver, self.solvers)

    @abstractmethod
    def bias(self, task: Task, exact: bool) -> PenalisedBias:
        """The term on this task."""

    @abstractmethod
    def recipe(self, task: Task) -> Steps:
        """The authors' steps."""

    @single_thread()
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Go to the minimum, or take the authors' steps."""
        if self.solver == "exact":
            return super().fit(task, progress, validation)
        started = self.begin(task, validation)
        _, method, figures = self.resolve(task, validation)
        term = method.bias(task, exact=False)
        trained = Sum(task, [term]).train(self.recipe(task), progress=progress)
        fitted = term.fitted(trained.parameters[0])
        return method.finish(fitted, task, started, **figures, solver=self.solver, **trained.report())

    @single_thread()
    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOutPredictions]:
        """The answers of the search where it fits as the method does; it goes to minima, Adam does not."""
        if self.solver == "exact":
            return super().fit_held_out(task, progress, seed)
        return Method.fit_held_out(self, task, progress, seed)

    def path(self, task: Task, lams: Sequence[float], coarse: bool = False) -> Iterator[Fitted]:
        """The term's minimum for each lam."""
        term = replace(self, lam=lams[0]).bias(task, exact=True)
        total, start = Sum(task, [term]), None
        for lam in lams:
            term = term.with_lam(lam)
            trained = total.with_terms([term]).minimise(start, coarse)
            start = trained.parameters[0]
            yield replace(term.fitted(start), report={"solver": "exact", **trained.report()})

    def resolves(self) -> bool:
        """Whether lam is "auto"."""
        return self.chooses()

    def resolve(
        self, task: Task, validation: Task | None
    ) -> tuple[Task, PenalisedBiasMethod, dict[str, Any]]:
        """Choose lam where it is "auto"."""
        found = self.find(task, validation)
        return task, replace(self, lam=found.value), found.report
