"""Methods with one number to choose: lam, C or alpha, on a validation set or inside the support set.

The search fits every candidate without the images of each fold. What the chosen one said about them is the
model's out-of-fold answer, so that no fold has to be fitted again for it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from prolip.core import Fitted, HeldOut, Task
from prolip.core.arrays import Array
from prolip.methods.common import cross_validation
from prolip.methods.common.method import Method, Progress
from prolip.solvers.threads import cores, single_thread

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Hyperparameter:
    """A number that was given or chosen.

    Attributes
    ----------
    value
        The number.
    report
        What the fit tells about the choice.
    logits
        Of the held-out images of every split, under this value; none where nothing was held out.
    """

    value: float
    report: dict[str, Any]
    logits: list[Array] = field(default_factory=list)


class HyperparameterSearch(Method):
    """A method with an option that may be "auto", and a `seed` of the folds.

    Attributes
    ----------
    option
        The name of that option.
    """

    option: ClassVar[str]
    seed: int

    @abstractmethod
    def find(self, task: Task, validation: Task | None) -> Hyperparameter:
        """The option's value on this task, searched if it is "auto"."""

    @abstractmethod
    def fit_with(self, task: Task, value: float) -> Fitted:
        """The fit with this value; its `report` is what the solver tells."""

    @single_thread()
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Search where that is asked for, then fit on everything."""
        started = time.perf_counter()
        return self._fit_found(task, self.find(task, validation), started)

    @single_thread()
    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOut]:
        """The fit, and the answers that its search gave about held-out images where it saw all classes."""
        started = time.perf_counter()
        if (
            getattr(self, self.option) == "auto"
            and seed == self.seed
            and task.classes <= cross_validation.CLASSES
        ):
            found = self.find(task, None)
            if found.logits:
                images = np.concatenate([held for _, held in cross_validation.fold_parts(task, seed)])
                order = np.argsort(images)
                logits, images = np.concatenate(found.logits)[order], images[order]
                return self._fit_found(task, found, started), HeldOut(logits, task.y[images], images)
        return super().fit_held_out(task, progress, seed)

    def _fit_found(self, task: Task, found: Hyperparameter, started: float) -> Fitted:
        fitted = self.fit_with(task, found.value)
        settled = replace(self, **{self.option: found.value})  # type: ignore[type-var]
        return settled.finish(fitted, task, started, **found.report)


def in_parallel(work: Callable[[In], Out], items: Sequence[In]) -> list[Out]:
    """`work` on each, as many at a time as there are cores, for BLAS has one thread in a fit.

    On two cores a search over 1,632 images of 102 classes took two thirds of the time; small ones as long.
    """
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, items))
