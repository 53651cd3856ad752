"""TaskRes: a residual on every class text (Yu et al., 2023).

    minimise over R:   mean_i CE( s f_i . normalize(t_k + alpha r_k), y_i )  +  lam (s / 100)^2 |R|^2

from R = 0, with alpha = 0.5. As a term of a sum it is the paper's (supplement): alpha = 0.1, and the moved
texts are not normalised again, so that the bias is linear, alpha s f R'.

Differences from the authors: texts are of unit length (theirs keep the length that CLIP gives them, about
10, and R is in that unit); by default the minimum itself, with lam searched. `solver="adam"` is their
recipe in our unit: Adam at 2e-4 for 100 epochs (200 from 8 shots on), batches of 256, and their weight decay
of 5e-4, which is lam = 0.025 here. That recipe hardly regularises: it ends where its epochs do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from prolip.core import Task, errors
from prolip.methods.base import Progress, Shape
from prolip.methods.bias import BiasMethod, Sum
from prolip.methods.fitted import LinearClassifier
from prolip.methods.regularised import Regularised
from prolip.methods.residual import TextResidual
from prolip.solvers import lam_value

SOLVERS = ("exact", "adam")


@dataclass(frozen=True)
class TaskRes(Regularised, BiasMethod):
    """A residual on the text classifier.

    Parameters
    ----------
    alpha
        What the residual is multiplied by.
    normalise
        Whether moved texts are brought back to unit length.
    solver
        "exact", or "adam" for the authors' recipe.
    lr, epochs
        Of "adam"; epochs None: 100, or 200 from 8 shots on.
    """

    name: ClassVar[str] = "task_res"
    summary: ClassVar[str] = "TaskRes: a residual on every class text"
    open_class: ClassVar[bool] = False
    size: ClassVar[str] = "K x D"
    in_sum: ClassVar[dict[str, Any]] = {"alpha": 0.1, "normalise": False}

    alpha: float = 0.5
    normalise: bool = True
    solver: str = "exact"
    lr: float = 2e-4
    epochs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver not in SOLVERS:
            raise errors.unknown_name("solver", str(self.solver), SOLVERS)

    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> LinearClassifier:
        """Train the residual."""
        if self.solver == "exact":
            return super().fit(task, progress, validation)  # type: ignore[return-value]
        started = time.perf_counter()
        _, method, told = self.settle(task, validation)
        term = method.bias(task, exact=False)
        epochs = self.epochs or (200 if task.shots >= 8 else 100)
        trained = Sum(task, [term]).adam(
            lr=self.lr, epochs=epochs, eps=1e-8, batch=256, seed=self.seed, progress=progress
        )
        info = self.report(task, started, **told, solver="adam", **trained.report())
        return term.fitted(trained.parameters[0], info)

    def path(self, task: Task, lams: Sequence[float], rough: bool = False) -> Iterator[LinearClassifier]:
        """The residual for each lam."""
        start = None
        for lam in lams:
            term = replace(self, lam=lam).bias(task, exact=True)
            trained = Sum(task, [term]).minimise(start, rough)
            start = trained.parameters[0]
            yield term.fitted(start, {"solver": "exact", **trained.report()})

    def settle(self, task: Task, validation: Task | None) -> tuple[Task, TaskRes, dict[str, Any]]:
        """Choose lam."""
        rule = "auto" if self.solver == "exact" else 0.025
        method = replace(self, lam=rule) if self.lam == "auto" else self
        lam, told = method.strength(task, validation)
        return task, replace(self, lam=lam), told

    def bias(self, task: Task, exact: bool) -> TextResidual:
        """The term alpha s f R', or what that is after normalising."""
        strength = lam_value(self.lam, task) * (task.scale / 100) ** 2
        return TextResidual(
            task, task.text.rows.new_full((task.classes,), strength), self.alpha, self.normalise
        )

    def count(self, shape: Shape) -> int:
        """K x D."""
        return shape.classes * shape.dim
