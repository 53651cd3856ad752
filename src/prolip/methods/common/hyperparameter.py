"""Methods with one number to choose: lam, C or alpha, on a validation set or inside the support set.

The search fits every candidate without the images of each fold. What the chosen one said about them is the
model's out-of-fold answer, so that no fold has to be fitted again for it.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from prolip.core import Fitted, HeldOutPredictions, Task
from prolip.core.arrays import Array
from prolip.methods import selection as cross_validation
from prolip.methods.base import Method, Progress
from prolip.solvers import check_lam, lam_value
from prolip.solvers.threads import cores, single_thread

# Multiples of 1/N, strongest first: of equals the one nearer to zero-shot wins.
GRID = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Hyperparameter:
    """A number that was given or chosen, and what the fit tells about the choice."""

    value: float
    report: dict[str, Any]
    logits: list[Array] = field(default_factory=list)  # of the images of every split that was held out


class HyperparameterSearch(Method):
    """A method with an option that may be "auto", and a `seed` of the folds."""

    option: ClassVar[str]  # its name
    fallback: ClassVar[float]  # its value where there is nothing to hold out
    seed: int

    @abstractmethod
    def search(self, task: Task, parts: Sequence[cross_validation.Split]) -> Hyperparameter:
        """The value that does best on the held-out images of these splits."""

    def find(self, task: Task, validation: Task | None) -> Hyperparameter:
        """The option's value on this task, searched if it is "auto"."""
        value = getattr(self, self.option)
        if value != "auto":
            return Hyperparameter(float(value), {})
        if parts := cross_validation.splits(task, validation, seed=self.seed):
            return self.search(task, parts)
        return Hyperparameter(self.fallback, cross_validation.fallback(self.option, self.fallback))

    @abstractmethod
    def fit_with(self, task: Task, value: float) -> Fitted:
        """The fit with this value; its `report` is what the solver tells."""

    def chooses(self) -> bool:
        """Whether the option is "auto"."""
        return bool(getattr(self, self.option) == "auto")

    @single_thread()
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Search where that is asked for, then fit on everything."""
        started = self.begin(task, validation)
        return self._fit_found(task, self.find(task, validation), started)

    @single_thread()
    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOutPredictions]:
        """The fit, and the answers that its search gave about held-out images where it saw all classes."""
        started = self.begin(task)
        saw_all = seed == self.seed and task.classes <= cross_validation.CLASSES
        if getattr(self, self.option) == "auto" and saw_all:
            found = self.find(task, None)
            if found.logits:
                images = np.concatenate([held for _, held in cross_validation.fold_parts(task, seed)])
                order = np.argsort(images)
                logits, images = np.concatenate(found.logits)[order], images[order]
                return self._fit_found(task, found, started), HeldOutPredictions(
                    logits, task.y[images], images
                )
        return super().fit_held_out(task, progress, seed)

    def _fit_found(self, task: Task, found: Hyperparameter, started: float) -> Fitted:
        fitted = self.fit_with(task, found.value)
        settled = replace(self, **{self.option: found.value})  # type: ignore[type-var]
        return settled.finish(fitted, task, started, **found.report)


@dataclass(frozen=True)
class PenaltySearch(HyperparameterSearch):
    """A method with a penalty lam |.|^2, which pulls to zero-shot.

    lam multiplies a squared distance between unit rows or matrices at CLIP's scale s = 100. Where it is the
    class rows that move, a model with a smaller scale has to move them further for the same change of logits;
    there the penalty has a factor (s / 100)^2, so that lam means the same pull for every model.

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
        check_lam(self.lam)

    @abstractmethod
    def path(self, task: Task, lams: Sequence[float], coarse: bool = False) -> Iterator[Fitted]:
        """The minimum for each lam, each from its neighbour's; `coarse` is good enough to compare by."""

    def fit_with(self, task: Task, value: float) -> Fitted:
        """The minimum for one lam."""
        return next(iter(self.path(task, [value])))

    def find(self, task: Task, validation: Task | None) -> Hyperparameter:
        """The number behind `lam`."""
        if self.lam != "auto":
            found = Hyperparameter(lam_value(self.lam, task), {})
        elif parts := cross_validation.splits(task, validation, seed=self.seed):
            found = self.search(task, parts)
        else:
            found = Hyperparameter(1 / task.shots, cross_validation.fallback("lam", "1/N"))
        return replace(found, report={"lam_rule": self.lam, "lam": found.value, **found.report})

    def search(self, task: Task, parts: Sequence[cross_validation.Split]) -> Hyperparameter:
        """The best multiple of 1/N."""

        def logits(part: cross_validation.Split) -> list[Array]:
            lams = [multiple / part.task.shots for multiple in GRID]
            return [fitted.logits(part.x) for fitted in self.path(part.task, lams, coarse=True)]

        paths = in_parallel(logits, parts)
        columns = [list(column) for column in zip(*paths, strict=True)]  # for each of GRID, by split
        values = [f"{multiple:g}/N" for multiple in GRID]
        place, report = cross_validation.pick("lam", values, columns, parts)
        return Hyperparameter(GRID[place] / task.shots, report, columns[place])


def in_parallel(work: Callable[[In], Out], items: Sequence[In]) -> list[Out]:
    """`work` on each, as many at a time as there are cores, for BLAS has one thread in a fit.

    On two cores a search over 1,632 images of 102 classes took two thirds of the time; small ones as long.
    """
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, items))
