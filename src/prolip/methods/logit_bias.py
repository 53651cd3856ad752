"""Methods as biases on the zero-shot logits, and how a sum of them is trained.

The paper, after Tang et al. (2024), sees each method as a bias that is added to the zero-shot logits:

    logits = s f T' + bias_1(x; p_1) + bias_2(x; p_2) + ..

A `LogitBias` is one such term on the support set. Its parameters are arrays; it gives its logits and, for any
slope of the loss by them, the gradient by its parameters; it has a penalty (or none), and it can turn trained
parameters into a `Fitted`. Whatever has a `LogitBias` can be trained alone or with any others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prolip import solvers
from prolip.core import Fitted, Task
from prolip.core.arrays import Array, row_lengths, softmax_loss, unit_rows
from prolip.methods.base import Method, Progress
from prolip.methods.selection import accuracy
from prolip.solvers.adam import Steps
from prolip.solvers.threads import parallel_for, split_range

# Rows x classes that are worth waking a thread for, and at most so many chunks, as each repeats what does not
# depend on its rows. How a problem is split depends on its size alone: any number of cores adds up alike.
CHUNK_SIZE, MAX_CHUNKS = 1 << 16, 4

Pullback = Callable[[Array], list[Array]]  # slope of the loss by logits [m, K] -> gradients by the parameters


class LogitBias(ABC):
    """One method's term on the support set."""

    start: tuple[Array, ...]  # the parameters to begin from; training keeps their precision
    lam: float | Array = 0.0  # weight of the penalty, of each parameter or of each entry
    smooth: ClassVar[bool] = True  # whether there is a minimum to go to; if not, only steps can be taken

    @abstractmethod
    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The bias on rows of the support set, and the way back from a slope to the parameters.

        There is a parameter for each of `start`, of its shape; `rows` is an index into `task.rows()`: a
        slice, or an array of places. Returns the logits [m, K], a new array; and a function from the slope of
        the loss by them [m, K] to its gradient by each parameter, the product with the transposed Jacobian.
        """

    def penalty(self, parameters: Sequence[Array]) -> tuple[float, list[Array]]:
        """What is added to the mean cross-entropy, lam |p - start|^2, and its gradient by each parameter."""
        steps = [parameter - start for parameter, start in zip(parameters, self.start, strict=True)]
        pulls = [self.lam * step for step in steps]
        value = sum(float(np.vdot(pull, step)) for pull, step in zip(pulls, steps, strict=True))
        return value, [2 * pull for pull in pulls]

    @abstractmethod
    def fitted(self, parameters: Sequence[Array]) -> Fitted:
        """The method's own classifier, zero-shot logits included, with these parameters."""


def normalised(v: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Rows of length one, u = v / |v|, and the way back: (slope - u (u . slope)) / |v|."""
    lengths = np.maximum(row_lengths(v), 1e-12)
    unit = v / lengths

    def pullback(slope: Array) -> Array:
        gradient: Array = unit * np.einsum("...d,...d->...", unit, slope)[..., None]
        np.subtract(slope, gradient, out=gradient)
        gradient /= lengths
        return gradient

    return unit, pullback


def row_space(x: Array) -> tuple[Array, Array]:
    """An orthonormal basis [n, D] of the rows of x [n, D], n < D, and x in its coordinates, [n, n]."""
    basis = np.linalg.qr(x.T)[0].T
    return basis, x @ basis.T


class LogitBiasMethod(Method):
    """A method that can be one term of a sum."""

    options_in_sum: ClassVar[dict[str, Any]] = {}  # that differ from the defaults in a sum
    options_in_adam_sum: ClassVar[dict[str, Any]] = {}  # likewise, where the sum is trained by Adam
    decay_in_adam_sum: ClassVar[float] = 0.0  # weight decay there

    @abstractmethod
    def bias(self, task: Task, exact: bool) -> LogitBias:
        """The term on this task. `exact` may use unknowns in which only the minimum is the same."""


@dataclass(frozen=True, eq=False)
class Trained:
    """Parameters of each term, and the loss that they reached."""

    parameters: list[list[Array]]
    objective: float
    start_objective: float
    evaluations: int
    converged: bool | None  # None where a fixed number of steps does not tell

    def report(self) -> dict[str, Any]:
        """Figures of the training."""
        values = {name: value for name, value in vars(self).items() if name != "parameters"}
        return {name: value for name, value in values.items() if value is not None}


class Sum:
    """Zero-shot logits and biases on a task's support set."""

    def __init__(self, task: Task, terms: Sequence[LogitBias]) -> None:
        self.task, self.terms = task, list(terms)
        x, self.y = task.rows()
        f = unit_rows(task.linear(x))
        self.base = task.scale * f @ task.text.rows.astype(f.dtype, copy=False).T
        self.start = [array for term in self.terms for array in term.start]

    def by_term(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """A flat list of arrays, term by term."""
        left = iter(arrays)
        return [[next(left) for _ in term.start] for term in self.terms]

    def loss(self, arrays: Sequence[Array], rows: Any = slice(None)) -> tuple[float, list[Array]]:
        """Mean cross-entropy on some rows and every penalty, and the gradient by each array."""
        parameters, m = self.by_term(arrays), len(self.y[rows])
        chunks = split_range(m, min(MAX_CHUNKS, max(1, m * self.base.shape[1] // CHUNK_SIZE)))
        done: dict[int, tuple[float, list[Array]]] = {}

        def work(chunk: slice) -> None:
            done[chunk.start] = self._cross_entropy(parameters, within(rows, chunk), m)

        parallel_for(work, chunks)
        value, gradients = done[0]
        for chunk in chunks[1:]:
            more, others = done[chunk.start]
            value, gradients = value + more, [a + b for a, b in zip(gradients, others, strict=True)]
        penalties = [term.penalty(own) for term, own in zip(self.terms, parameters, strict=True)]
        pulls = [pull for _, own in penalties for pull in own]
        value += sum(penalty for penalty, _ in penalties)
        return value, [a + b for a, b in zip(gradients, pulls, strict=True)]

    def _cross_entropy(
        self, parameters: Sequence[Sequence[Array]], rows: Any, count: int
    ) -> tuple[float, list[Array]]:
        """The sum over rows of the cross-entropy, over `count`, and the gradient by each array."""
        added = [term.logits(own, rows) for term, own in zip(self.terms, parameters, strict=True)]
        logits = sum((own for own, _ in added), self.base[rows])
        losses, slope = softmax_loss(logits, self.y[rows], 1 / count)
        value = float(losses.sum(dtype=np.float64)) / count
        return value, [gradient for _, pullback in added for gradient in pullback(slope)]

    def minimise(self, start: Sequence[Array] | None = None, coarse: bool = False) -> Trained:
        """Go to the minimum, from `start` or the terms' own; `coarse` is good enough to compare by."""
        first, _ = self.loss(self.start)

        def function(x: Array) -> tuple[float, Array]:
            value, gradients = self.loss(split(x, self.start))
            return value, join(gradients)

        point = join(self.start if start is None else start)
        found = solvers.minimise(function, point, **stopping(self.base, coarse))
        arrays = split(found.x, self.start)
        return Trained(self.by_term(arrays), found.value, first, found.evaluations, found.converged)

    def train(
        self,
        steps: Steps,
        judge: Callable[[list[list[Array]]], float] | None = None,
        progress: Progress | None = None,
        start: Sequence[Array] | None = None,
    ) -> Trained:
        """Take an authors' steps, one view an epoch, from `start` or the terms' own.

        With `judge`, the best epoch by it is kept (of equals the first), not the last.
        """
        first, _ = self.loss(self.start)
        arrays = [array.copy() for array in (self.start if start is None else start)]
        optimizer, rng, n = steps.build(arrays), np.random.default_rng(steps.seed), self.task.n
        kept, best, taken = arrays, -math.inf, 0
        for epoch in range(steps.epochs):
            for rows in steps.batches(n, self.task.views, epoch, rng):
                _, gradients = self.loss(arrays, rows)
                optimizer.step(gradients, steps.rate(taken, n))
                taken += 1
            if judge is not None and (verdict := judge(self.by_term(arrays))) > best:
                kept, best = [array.copy() for array in arrays], verdict
            if progress is not None:
                progress(epoch + 1, steps.epochs)
        value, _ = self.loss(kept)
        return Trained(self.by_term(kept), value, first, taken, None)


def stopping(features: Array, coarse: bool = False) -> dict[str, Any]:
    """When a fit to the minimum ends: `tol` and `evaluations` of `minimise`.

    Minima are flat. With float32 features 1e-6 leaves up to 0.06 of a logit, and one image in a thousand that
    is judged otherwise (WHU-RS19, 1 to 16 shots); 1e-8 takes CLAP a quarter and the cross-modal probe a third
    longer, and ends where rounding does. Features in float64 are fitted to within 0.01 of a logit.
    """
    if coarse:  # good enough to compare by
        return {"tol": 1e-3, "evaluations": 50}
    if features.dtype == np.float32:
        return {"tol": 1e-6, "evaluations": 200}
    return {"tol": 1e-9, "evaluations": 1000}


def best_epoch(term: LogitBias, validation: Task | None) -> Callable[[list[list[Array]]], float] | None:
    """A judge of epochs: the accuracy of a term alone on the validation set, if there is one."""
    if validation is None:
        return None
    return lambda parameters: accuracy(term.fitted(parameters[0]), validation)


def join(arrays: Sequence[Array]) -> Array:
    """Several arrays as one vector."""
    return np.concatenate([array.ravel() for array in arrays])


def split(flat: Array, like: Sequence[Array]) -> list[Array]:
    """The inverse of `join`: arrays of the shapes and precisions of `like`."""
    parts = np.split(flat, np.cumsum([array.size for array in like])[:-1])
    return [
        part.reshape(array.shape).astype(array.dtype, copy=False)
        for part, array in zip(parts, like, strict=True)
    ]


def within(rows: Any, chunk: slice) -> Any:
    """A chunk of a slice with a start (or of all), or of an array of indices."""
    if not isinstance(rows, slice):
        return rows[chunk]
    start = rows.start or 0
    return slice(start + chunk.start, start + chunk.stop)
