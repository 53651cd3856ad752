"""Linear probe: logistic regression on the images alone.

    minimise over W, b:   C sum_i CE( f_i W' + b, y_i )  +  |W|^2 / 2,      f = normalize(v)

as scikit-learn writes it. The text is not used. C is swept over {1e-6, 1e-4, .., 1e6} and then refined, as
the paper's baseline does, on a validation set or by cross-validation inside the support set. With one image
a class and no validation set, C = 100: on the sets of `benchmarks/development.py` accuracy is flat from 10
to 1,000.

Differences from the authors: the refinement is by halving steps of log C around the best, not a fixed count
of bisections whose last is taken; of equal candidates the one with the smaller C wins. `features="pre"`
fits on the features before the projection instead, where there is more to be found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from prolip.core import Task, UsageError, errors
from prolip.methods import search
from prolip.methods.base import Method, Progress, Shape
from prolip.methods.fitted import SPACES, LinearClassifier, unit_features
from prolip.solvers.linear import SoftmaxRegression

SWEEP = (-6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0)  # log10 C
REFINE = (1.0, 0.5, 0.25)
DEFAULT = 100.0
ROUGH = 1e-2


@dataclass(frozen=True)
class LinearProbe(Method):
    """Logistic regression.

    Parameters
    ----------
    C
        Inverse strength of the penalty: "auto" (searched), or a number.
    features
        "embedding", or "pre" for what comes before the projection.
    seed
        Of the folds.
    tol
        Gap to the minimum, relative to it, to stop at.
    """

    name: ClassVar[str] = "linear_probe"
    summary: ClassVar[str] = "logistic regression on the images alone, C swept"
    open_class: ClassVar[bool] = False
    size: ClassVar[str] = "K x D"

    C: str | float = "auto"
    features: str = "embedding"
    seed: int = 0
    tol: float = 1e-4

    def __post_init__(self) -> None:
        if self.features not in SPACES:
            raise errors.unknown_name("features", str(self.features), SPACES)
        if self.C != "auto" and not (isinstance(self.C, (int, float)) and 0 < self.C < math.inf):
            raise UsageError(f'C must be "auto" or a positive number, got {self.C!r}')

    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> LinearClassifier:
        """Search C where that is asked for, then fit on everything."""
        started = time.perf_counter()
        more: dict[str, Any] = {"space": self.features}
        C = self.C
        if isinstance(C, str):
            C, more["search"] = self._search(task, validation)
        f, y = self._rows(task)
        found = SoftmaxRegression(f, y, task.classes).solve(1 / (2 * len(f) * C), tol=self.tol)
        more |= {"chosen": {"C": C}, "converged": found.minimum.converged}
        info = self.report(task, started, **more)
        return LinearClassifier(task.linear, task.text, found.weight, found.bias, self.features, info)

    def count(self, shape: Shape) -> int:
        """K x D, or K x Do on the features before the projection."""
        return shape.classes * (shape.dim if self.features == "embedding" else shape.features)

    def rough(self) -> LinearProbe:
        """To a hundredth."""
        return replace(self, tol=ROUGH)

    def _rows(self, task: Task) -> tuple[Tensor, Tensor]:
        x, y = task.rows()
        return unit_features(task.linear, x, self.features), y

    def _search(self, task: Task, validation: Task | None) -> tuple[float, dict[str, Any]]:
        parts = search.splits(task, validation, seed=self.seed)
        if not parts:
            return DEFAULT, {"option": "C", "on": "nothing to hold out: the fixed default"}
        path = _Path([self._rows(part.task) for part in parts], task.classes, parts, self)
        place = path.best(SWEEP)
        for step in REFINE:
            place = path.best((place - step, place, place + step))
        tried = sorted(path.scores)
        source = "validation" if validation is not None else "support"
        scores = [path.scores[exponent] for exponent in tried]
        return 10**place, search.report("C", [10**exponent for exponent in tried], scores, source)


class _Path:
    """Held-out scores along C. Each problem is decomposed once; each fit starts from its neighbour's."""

    def __init__(
        self,
        rows: Sequence[tuple[Tensor, Tensor]],
        classes: int,
        parts: Sequence[search.Split],
        probe: LinearProbe,
    ) -> None:
        self.problems = [
            SoftmaxRegression(f, y, part.task.classes) for (f, y), part in zip(rows, parts, strict=True)
        ]
        self.held = [unit_features(part.task.linear, part.x, probe.features) for part in parts]
        self.labels = [part.y for part in parts]
        self.scores: dict[float, search.Score] = {}
        self.starts: dict[float, list[Tensor]] = {}

    def best(self, exponents: Sequence[float]) -> float:
        """The best of these; of equals the smallest."""
        for exponent in exponents:
            if exponent not in self.scores:
                self._fit(exponent)
        return exponents[search.best([self.scores[exponent] for exponent in exponents])]

    def _fit(self, exponent: float) -> None:
        near = min(self.starts, key=lambda e: abs(e - exponent), default=None)
        logits, starts = [], []
        for i, problem in enumerate(self.problems):
            lam = 1 / (2 * len(problem.y) * 10**exponent)
            start = None if near is None else self.starts[near][i]
            found = problem.solve(lam, start=start, tol=ROUGH, evaluations=50)
            starts.append(found.unknowns)
            logits.append(self.held[i] @ found.weight.T + found.bias)
        self.starts[exponent] = starts
        self.scores[exponent] = search.score(logits, self.labels)
