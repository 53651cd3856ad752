"""Methods with a penalty lam |.|^2, which pulls to zero-shot; lam may be searched over multiples of 1/N.

lam multiplies a squared distance between unit rows or matrices at CLIP's scale s = 100. Where it is the class
rows that move, a model with a smaller scale has to move them further for the same change of logits; there the
penalty has a factor (s / 100)^2, so that lam means the same pull for every model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from prolip.core import Fitted, Task
from prolip.core.arrays import Array
from prolip.methods import selection
from prolip.methods.base import FitContext, Method
from prolip.methods.logit_bias import LogitBiasMethod, Sum
from prolip.methods.selection import Split, Splits, Tuning
from prolip.solvers import check_lam, lam_value
from prolip.solvers.adam import Steps

# Multiples of 1/N, strongest first: of equals the one nearer to zero-shot wins.
MULTIPLES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)


@dataclass(frozen=True)
class PenaltyMethod(Method):
    """A method with a penalty.

    Parameters
    ----------
    lam
        "auto" (searched on a validation set or inside the support set; "1/N" where there is nothing to hold
        out), "1/N", "1/N^2" or a number.
    seed
        Random seed for the folds.
    """

    lam: str | float = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_lam(self.lam)

    @abstractmethod
    def path(self, task: Task, lams: Sequence[float], coarse: bool = False) -> Iterator[Fitted]:
        """Yield the minimum for each lam, each from its neighbour's; `coarse` is enough to compare by."""

    def needs_tuning(self) -> bool:
        """Whether lam is "auto"."""
        return self.lam == "auto"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose the best multiple of 1/N, or replace a rule by its number."""
        if self.lam != "auto":
            tuning = Tuning(replace(self, lam=lam_value(self.lam, task)))
        elif splits.parts:
            columns = list(zip(*selection.in_parallel(self._held_out_path, splits.parts), strict=True))
            lams, names = [m / task.shots for m in MULTIPLES], [f"{m:g}/N" for m in MULTIPLES]
            tuning = splits.choose(self, "lam", lams, columns, names)
        else:
            tuning = selection.fallback(self, "lam", 1 / task.shots, "1/N")
        lam = tuning.method.lam  # type: ignore[attr-defined]
        return replace(tuning, report={"lam_rule": self.lam, "lam": lam, **tuning.report})

    def solve(self, task: Task, context: FitContext) -> Fitted:
        """Go to the minimum."""
        return next(iter(self.path(task, [float(self.lam)])))

    def _held_out_path(self, part: Split) -> list[Array]:
        """Logits of held-out images for each of MULTIPLES."""
        lams = [multiple / part.task.shots for multiple in MULTIPLES]
        return [fitted.logits(part.x) for fitted in self.path(part.task, lams, coarse=True)]


@dataclass(frozen=True)
class PenalisedBiasMethod(PenaltyMethod, LogitBiasMethod):
    """A logit bias with a penalty, by one of several solvers.

    Parameters
    ----------
    solver
        "exact", or "adam" for the authors' steps.
    """

    solver: Literal["exact", "adam"] = "exact"

    @abstractmethod
    def recipe(self, task: Task) -> Steps:
        """The authors' steps."""

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose lam by minima; their predictions are not those of a recipe that takes steps."""
        tuning = super().tune(task, splits)
        return tuning if self.solver == "exact" else replace(tuning, held_out=None)

    def solve(self, task: Task, context: FitContext) -> Fitted:
        """Go to the minimum, or take the authors' steps."""
        if self.solver == "exact":
            return super().solve(task, context)
        term = self.bias(task, exact=False)
        trained = Sum(task, [term]).train(self.recipe(task), progress=context.progress)
        return replace(term.fitted(trained.parameters[0]), report={"solver": self.solver, **trained.report()})

    def path(self, task: Task, lams: Sequence[float], coarse: bool = False) -> Iterator[Fitted]:
        """Yield the term's minimum for each lam."""
        start = None
        for lam in lams:
            term = replace(self, lam=lam).bias(task, exact=True)
            trained = Sum(task, [term]).minimise(start, coarse)
            start = trained.parameters[0]
            yield replace(term.fitted(start), report={"solver": "exact", **trained.report()})
