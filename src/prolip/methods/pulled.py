"""What ProLIP on the text side and TaskRes share: one bias pulled to zero-shot, by one of two solvers."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prolip.core import Fitted, Task, errors
from prolip.methods.base import Progress
from prolip.methods.bias import Bias, BiasMethod, Sum
from prolip.methods.regularised import Regularised

SOLVERS = ("exact", "adam")


class PulledBias(Bias):
    """A term whose penalty is lam times something."""

    lam: float


@dataclass(frozen=True)
class Pulled(Regularised, BiasMethod):
    """A bias with a penalty lam |.|^2.

    Parameters
    ----------
    solver
        "exact", or "adam" for the authors' steps.
    """

    solver: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver not in SOLVERS:
            raise errors.unknown_name("solver", str(self.solver), SOLVERS)

    @abstractmethod
    def bias(self, task: Task, exact: bool) -> PulledBias:
        """The term."""

    @abstractmethod
    def recipe(self, task: Task) -> dict[str, Any]:
        """Of Adam."""

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Train the term."""
        if self.solver == "exact":
            return super().fit(task, progress, validation)
        started = time.perf_counter()
        _, method, told = self.settle(task, validation)
        term = method.bias(task, exact=False)
        trained = Sum(task, [term]).adam(**self.recipe(task), progress=progress)
        info = self.report(task, started, **told, solver="adam", **trained.report())
        return term.fitted(trained.parameters[0], info)

    def path(self, task: Task, lams: Sequence[float], rough: bool = False) -> Iterator[Fitted]:
        """The term's minimum for each lam."""
        term = replace(self, lam=lams[0]).bias(task, exact=True)
        total, start = Sum(task, [term]), None
        for lam in lams:
            term.lam = lam
            trained = total.minimise(start, rough)
            start = trained.parameters[0]
            yield term.fitted(start, {"solver": "exact", **trained.report()})

    def settle(self, task: Task, validation: Task | None) -> tuple[Task, Pulled, dict[str, Any]]:
        """Choose lam."""
        lam, told = self.strength(task, validation)
        return task, replace(self, lam=lam), told
