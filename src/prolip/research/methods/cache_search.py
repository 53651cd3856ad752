"""What methods with a cache share that search the numbers alpha, beta and gamma together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array
from prolip.methods import selection
from prolip.methods.base import FitContext, Method, OptionError, Shape
from prolip.methods.selection import Split, Splits, Tuning


class CacheSearch(Method):
    """A method without training whose fields alpha, beta and gamma are numbers, or alpha "auto" to search."""

    grid: ClassVar[dict[str, tuple[float, ...]]]  # of alpha, beta and gamma, in the order of the search
    alpha: str | float

    def __post_init__(self) -> None:
        if self.alpha != "auto" and not isinstance(self.alpha, (int, float)):
            raise OptionError("alpha", '"auto" or a number', self.alpha)

    @abstractmethod
    def count_right(self, part: Split) -> Array:
        """Count the held-out images that are right, with an axis for each entry of `grid`."""

    @abstractmethod
    def cache(self, task: Task) -> Any:
        """Return the fitted model at alpha 1."""

    def needs_tuning(self) -> bool:
        """Whether alpha is "auto"."""
        return self.alpha == "auto"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Search alpha, beta and gamma; the first of equals is taken."""
        if self.alpha != "auto":
            return Tuning(self)
        if not splits.parts:
            return selection.fallback(self, "alpha", 1.0)
        right = np.sum(selection.in_parallel(self.count_right, splits.parts), axis=0)
        places = np.unravel_index(right.argmax(), right.shape)
        found = {name: self.grid[name][i] for name, i in zip(self.grid, places, strict=True)}
        values = [[found[name] for name in ("alpha", "beta", "gamma")]]
        report = {"option": "alpha, beta, gamma", "values": values}
        return Tuning(replace(self, **found), {"search": report})  # type: ignore[type-var]

    def solve(self, task: Task, context: FitContext) -> Any:
        """Build the cache."""
        return replace(self.cache(task), alpha=float(self.alpha))

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0
