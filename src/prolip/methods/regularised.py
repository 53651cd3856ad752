"""What methods with a pull towards zero-shot share: the weight of the pull, the search for it, and the fit.

lam multiplies a squared distance between unit rows or matrices at CLIP's scale s = 100. Where it is the
class rows that move, a model with a smaller scale has to move them further for the same change of logits;
there the penalty has a factor (s / 100)^2, so that lam means the same pull for every model.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prolip.core import Fitted, Task, UsageError
from prolip.methods import search
from prolip.methods.base import Method, Progress
from prolip.solvers import lam_value

# Multiples of 1/N, strongest first: of equals the one nearer to zero-shot wins.
GRID = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)


@dataclass(frozen=True)
class Regularised(Method):
    """Options of a penalty lam |.|^2.

    Parameters
    ----------
    lam
        "auto" (searched on a validation set or inside the support set; "1/N" where there is nothing to hold
        out), "1/N", "1/N^2" or a number.
    seed
        Of the folds.
    """

    lam: str | float = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.lam, str) and self.lam not in ("auto", "1/N", "1/N^2"):
            raise UsageError(f'lam must be "auto", "1/N", "1/N^2" or a number >= 0, got {self.lam!r}')

    @abstractmethod
    def path(self, task: Task, lams: Sequence[float], rough: bool = False) -> Iterator[Fitted]:
        """The minimum for each lam, each from its neighbour's; `rough` is good enough to compare by."""

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Choose lam where that is asked for, then go to the minimum."""
        started = time.perf_counter()
        lam, told = self.strength(task, validation)
        fitted = next(iter(self.path(task, [lam])))
        info = self.report(task, started, **told, **fitted.info)
        return replace(fitted, info=info)  # type: ignore[type-var]

    def strength(self, task: Task, validation: Task | None) -> tuple[float, dict[str, Any]]:
        """The number behind `lam`, and what `info` tells about it."""
        told: dict[str, Any] = {"lam_rule": self.lam}
        if self.lam != "auto":
            lam = lam_value(self.lam, task)
        else:
            lam, told["search"] = self._search(task, validation)
        return lam, told | {"lam": lam, "chosen": {"lam": lam}}

    def _search(self, task: Task, validation: Task | None) -> tuple[float, dict[str, Any]]:
        parts = search.splits(task, validation, seed=self.seed)
        if not parts:
            return 1 / task.shots, {"option": "lam", "on": "nothing to hold out: 1/N"}
        logits = [
            [
                fitted.logits(part.x)
                for fitted in self.path(part.task, [m / part.task.shots for m in GRID], rough=True)
            ]
            for part in parts
        ]
        labels = [part.y for part in parts]
        scores = [search.score(column, labels) for column in zip(*logits, strict=True)]
        source = "validation" if validation is not None else "support"
        told = search.report("lam", [f"{multiple:g}/N" for multiple in GRID], scores, source)
        return GRID[search.best(scores)] / task.shots, told
