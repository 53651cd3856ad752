"""ProLIP: fine-tune the projection at the end of the image encoder, and nothing else. The paper's method.

With x the frozen tower's output, W [Do, D] the projection, b its frozen bias, T the class texts and s the
scale, the paper minimises (its equation 4, over the support set)

    mean_i CE( s * normalize(x_i W + b) T', y_i )  +  lam |W - W0|_F^2

The paper's equation 2 leaves the normalisation out; its pseudo-code and the authors' program have it, and so
do we. Penalty and cross-entropy are scaled as in their program: a mean over samples, a sum over weights.

Differences from the authors' program: by default the exact minimum instead of 300 steps of Adam towards it
(`solver="adam"` has them), in float32. Theirs trains in float16 (`precision="float16"`), which moves the
results without a penalty by a point.
A residual head (SigLIP's) adds each sample's own offset before the normalisation.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from prolip import solvers
from prolip.core import Fitted, Projected, Task, UsageError
from prolip.core.arrays import Array
from prolip.core.capabilities import Capability
from prolip.methods.base import FitContext
from prolip.methods.logit_bias import LogitBias, LogitBiasMethod, Pullback, normalised, row_space
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning, accuracy

# The grid of the paper for a few-shot validation set, in its order. The authors try 49 pairs with a learning
# rate, and replace the best only by a strictly better one; the exact solver has no learning rate.
LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)


@dataclass(frozen=True)
class Projection(LogitBiasMethod):
    """One matrix, held near its starting value: what ProLIP and RLA share.

    Parameters
    ----------
    lam
        Weight of the penalty |W - W0|^2: "1/N", "1/N^2" or a number; or "auto", the best of the paper's grid
        on a validation set.
    solver
        "exact" goes to the minimum and has no learning rate; "adam" is the paper's recipe.
    lr, epochs
        Learning rate and epochs of "adam".
    precision
        "float32", or for "adam" "float16", the authors'.
    """

    lam: str | float = "1/N"
    solver: Literal["exact", "adam"] = "exact"
    lr: float = 1e-4
    epochs: int = 300
    precision: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        solvers.check_lam(self.lam)
        if self.solver == "exact" and self.precision == "float16":
            raise UsageError('precision="float16" is that of solver="adam"')

    @abstractmethod
    def inner(self, task: Task) -> Task:
        """The task whose head is the matrix to fit."""

    @abstractmethod
    def place(self, task: Task, weight: Array) -> Projected:
        """The fitted matrix in its place in the model."""

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Replace a rule by its number; choose lam on the validation set where it is "auto"."""
        report: dict[str, Any] = {"lam_rule": self.lam}
        if self.lam != "auto":
            lam = solvers.lam_value(self.lam, task)
        elif splits.validation is None:
            raise UsageError(
                f'lam="auto" of {self.name} is chosen on a validation set: give one, or lam="1/N"; '
                'method="anchored" chooses everything inside the support set'
            )
        else:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="lam = 0")  # part of the paper's grid
                weights = [solution.weight for solution in solvers.path(self.inner(task), LAMS)]
            accuracies = [accuracy(self.place(task, weight), splits.validation) for weight in weights]
            best = accuracies.index(max(accuracies))  # of equals the first, the largest lam
            lam, report["validation_accuracy"] = LAMS[best], accuracies[best]
        return Tuning(replace(self, lam=lam), report | {"lam": lam})

    def solve(self, task: Task, context: FitContext) -> Projected:
        """Fit W, and return the model with W in place of the pretrained projection."""
        inner, lam = self.inner(task), float(self.lam)
        if self.solver == "exact":
            solution = solvers.exact(inner, lam)
        else:
            solution = solvers.adam(
                inner,
                lam,
                lr=self.lr,
                epochs=self.epochs,
                precision=self.precision,
                progress=context.progress,
            )
        if solution.converged is False and lam > 0:
            warnings.warn(
                f"no minimum was reached with lam {lam:.3g}; a larger one may do better",
                ConvergenceWarning,
                stacklevel=4,
            )
        return replace(self.place(task, solution.weight), report=solution.report())

    def fit_parts(self, task: Task, parts: Sequence[Any]) -> Iterator[Fitted]:
        """Yield a fit on each part of the images; minima share one decomposition.

        Not where a part lacks a class, which a fit on it leaves out.
        """
        complete = all(len(np.unique(task.y[part])) == task.classes for part in parts)
        if self.solver != "exact" or not complete:
            yield from super().fit_parts(task, parts)
            return
        inner = self.inner(task)
        for weight in solvers.fit_parts(inner, solvers.lam_value(self.lam, task), parts):
            yield self.place(task, weight)

    def needs_tuning(self) -> bool:
        """Whether lam is "auto"."""
        return self.lam == "auto"

    def bias(self, task: Task, exact: bool) -> Matrix:
        """The matrix as a term."""
        return Matrix(self, task, self.inner(task), solvers.lam_value(self.lam, task), exact)


class ConvergenceWarning(UserWarning):
    """A fit ended before it was at a minimum."""


@register
@dataclass(frozen=True)
class ProLIP(Projection):
    """Fine-tune the visual projection.

    Examples
    --------
    >>> import numpy as np
    >>> from prolip.core import Head, Task
    >>> rng = np.random.default_rng(0)
    >>> x, text = rng.normal(size=(8, 6)), rng.normal(size=(2, 4))
    >>> task = Task(x, [0, 0, 0, 0, 1, 1, 1, 1], text, Head(rng.normal(size=(6, 4))))
    >>> ProLIP().fit(task).logits(x).shape
    (8, 2)
    """

    name: ClassVar[str] = "prolip"
    summary: ClassVar[str] = "fine-tune the image projection, close to its pretrained value"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Do x D"
    needs: ClassVar[Capability] = Capability.IMAGE_FEATURES

    def inner(self, task: Task) -> Task:
        """The task itself; on a black box (no head) this is RLA."""
        return task

    def place(self, task: Task, weight: Array) -> Projected:
        """Replace the pretrained projection by W."""
        return Projected(task.linear.with_weight(weight), task.text, task.scale, tuned=True)


class Matrix(LogitBias):
    """s (normalize(x W + b) - normalize(x W0 + b)) T', in W - W0.

    `inner` is the task whose head is the matrix. Where `exact` and rows are few, the unknown is W - W0 in the
    row space of x, as in the solvers.
    """

    def __init__(self, method: Projection, task: Task, inner: Task, lam: float, exact: bool) -> None:
        self.method, self.task, self.inner, self.lam = method, task, inner, lam
        rows, _ = inner.rows()
        self.x, _ = inner.linear.split(rows)
        self.v = inner.linear(rows)
        self.unit, _ = normalised(self.v)
        self.text = task.text.rows.astype(self.v.dtype, copy=False)
        self.basis: Array | None = None
        if exact and len(self.x) < self.x.shape[1]:
            self.basis, self.x = row_space(self.x)
        self.start = (np.zeros((self.x.shape[1], self.v.shape[1]), self.v.dtype),)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """What the tuned matrix changes."""
        x, scale = self.x[rows], self.task.scale
        unit, pullback = normalised(self.v[rows] + x @ parameters[0])
        logits = scale * (unit - self.unit[rows]) @ self.text.T
        return logits, lambda slope: [x.T @ pullback(scale * slope @ self.text)]

    def fitted(self, parameters: Sequence[Array]) -> Projected:
        """The method's own form."""
        step = parameters[0] if self.basis is None else self.basis.T @ parameters[0]
        return self.method.place(self.task, self.inner.linear.weight + step)
