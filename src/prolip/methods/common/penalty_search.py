"""What methods with a pull towards zero-shot share: the weight of the pull, the search for it, and the fit.

lam multiplies a squared distance between unit rows or matrices at CLIP's scale s = 100. Where it is the
class rows that move, a model with a smaller scale has to move them further for the same change of logits;
there the penalty has a factor (s / 100)^2, so that lam means the same pull for every model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Fitted, Task, UsageError
from prolip.core.arrays import Array
from prolip.methods.common import cross_validation
from prolip.methods.common.hyperparameter import Hyperparameter, HyperparameterSearch, in_parallel
from prolip.solvers import lam_value

# Multiples of 1/N, strongest first: of equals the one nearer to zero-shot wins.
GRID = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)


@dataclass(frozen=True)
class PenaltySearch(HyperparameterSearch):
    """Options of a penalty lam |.|^2.

    Parameters
    ----------
    lam
        "auto" (searched on a validation set or inside the support set; "1/N" where there is nothing to hold
        out), "1/N", "1/N^2" or a number.
    seed
        Of the folds.
    """

    option: ClassVar[str] = "lam"

    lam: str | float = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.lam, str) and self.lam not in ("auto", "1/N", "1/N^2"):
            raise UsageError(f'lam must be "auto", "1/N", "1/N^2" or a number >= 0, got {self.lam!r}')

    @abstractmethod
    def path(self, task: Task, lams: Sequence[float], coarse: bool = False) -> Iterator[Fitted]:
        """The minimum for each lam, each from its neighbour's; `coarse` is good enough to compare by."""

    def fit_with(self, task: Task, value: float) -> Fitted:
        """The minimum for one lam."""
        return next(iter(self.path(task, [value])))

    def find(self, task: Task, validation: Task | None) -> Hyperparameter:
        """The number behind `lam`."""
        found = (
            self._search(task, validation)
            if self.lam == "auto"
            else Hyperparameter(lam_value(self.lam, task), {})
        )
        report = {"lam_rule": self.lam, "lam": found.value, **found.report}
        return Hyperparameter(found.value, report, found.logits)

    def _search(self, task: Task, validation: Task | None) -> Hyperparameter:
        parts = cross_validation.splits(task, validation, seed=self.seed)
        if not parts:
            return Hyperparameter(
                1 / task.shots, {"search": {"option": "lam", "on": "nothing to hold out: 1/N"}}
            )

        def logits(part: cross_validation.Split) -> list[Array]:
            lams = [multiple / part.task.shots for multiple in GRID]
            return [fitted.logits(part.x) for fitted in self.path(part.task, lams, coarse=True)]

        paths = in_parallel(logits, parts)
        columns = [list(column) for column in zip(*paths, strict=True)]  # for each of GRID, by split
        labels = [part.y for part in parts]
        scores = [cross_validation.score(column, labels) for column in columns]
        place = cross_validation.best(scores)
        values = [f"{multiple:g}/N" for multiple in GRID]
        report = cross_validation.report("lam", values, scores, validation is not None)
        return Hyperparameter(GRID[place] / task.shots, {"search": report}, columns[place])
