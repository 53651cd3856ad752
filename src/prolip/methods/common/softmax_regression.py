"""Logistic regression over K classes, with scores to start from.

    minimise over W, b:   sum_i w_i CE( base_i + f_i W' + b, y_i )  +  lam |W|_F^2

f [n, D] features, base [n, K] given scores (zero, or zero-shot logits), w sample weights that sum to one.
The rows of W are combinations of the rows of f, so with F the features in their own eigenbasis,

    (A) n <= D   f f' = U diag(e) U',   F = U sqrt(e),   W = Z diag(e^-1/2) U' f
    (B) n >  D   f' f = U diag(e) U',   F = f U,         W = Z U'

|W| = |Z|, and one decomposition serves every lam. The problem is convex; L-BFGS is preconditioned by the
diagonal of the Hessian at the start, which in this basis is most of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, softmax
from prolip.solvers.minimise import Minimum, minimise
from prolip.solvers.threads import single_thread

SMALL = 1 << 23  # n * K * rank: below it, float64 costs nothing worth saving


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """Weights [K, D] and intercepts [K], and how they were found."""

    weight: Array
    bias: Array
    unknowns: Array  # Z and b in one array [K, r + 1]: where a neighbouring lam can start
    minimum: Minimum


class SoftmaxRegression:
    """The problem, decomposed once; `solve` it for any lam > 0.

    Parameters
    ----------
    f, y
        Features [n, D] and labels [n].
    classes
        K.
    base
        Scores [n, K] that the linear ones are added to.
    weights
        Of the samples; equal unless given.
    intercept
        Whether b is free, or zero.

    Examples
    --------
    >>> problem = SoftmaxRegression(np.array([[1.0], [-1.0]]), np.array([0, 1]), classes=2)
    >>> np.sign(problem.solve(lam=0.1).weight).tolist()
    [[1.0], [-1.0]]
    """

    def __init__(
        self,
        f: Array,
        y: Array,
        classes: int,
        *,
        base: Array | None = None,
        weights: Array | None = None,
        intercept: bool = True,
    ) -> None:
        self.dtype, self.intercept = f.dtype, intercept
        exact = np.float64 if len(f) * classes * min(f.shape) <= SMALL else np.float32
        f = f.astype(exact, copy=False)
        self.y, self.classes = y, classes
        self.base = np.zeros((1, classes), exact) if base is None else base.astype(exact, copy=False)
        self.weights = (np.full(len(f), 1 / len(f)) if weights is None else weights).astype(exact)
        with single_thread():
            if len(f) <= f.shape[1]:
                e, u = np.linalg.eigh(f @ f.T)
                keep = e > e[-1] * len(e) * np.finfo(exact).eps
                root = np.sqrt(e[keep])
                self.factor, self.back = u[:, keep] * root, (u[:, keep] / root).T @ f  # [n, r], [r, D]
            else:
                u = np.linalg.eigh(f.T @ f)[1]
                self.factor, self.back = f @ u, u.T

    def solve(
        self, lam: float, *, start: Array | None = None, tol: float = 1e-7, evaluations: int = 500
    ) -> LinearSolution:
        """The minimum for this lam; `tol` as `minimise` has it."""
        rank = self.factor.shape[1]
        if start is None:
            start = np.zeros((self.classes, rank + 1))
        with single_thread():
            scale = self._inverse_diagonal(start, lam)
            found = minimise(
                lambda point: self._value(point, lam), start, tol=tol, evaluations=evaluations, scale=scale
            )
            weight = found.x[:, :rank].astype(self.back.dtype) @ self.back
        return LinearSolution(weight.astype(self.dtype), found.x[:, rank].astype(self.dtype), found.x, found)

    def _value(self, point: Array, lam: float) -> tuple[float, Array]:
        """The objective and its gradient."""
        z, every = point[:, :-1], np.arange(len(self.y))
        scores = self._scores(point)
        scores -= scores.max(axis=1, keepdims=True)
        own = scores[every, self.y]
        p = np.exp(scores, out=scores)
        total = p.sum(axis=1)
        value = float(np.vdot(np.log(total) - own, self.weights)) + lam * float(np.vdot(z, z))
        p *= (self.weights / total)[:, None]
        p[every, self.y] -= self.weights
        gradient = np.empty_like(point)
        gradient[:, :-1] = p.T @ self.factor
        gradient[:, :-1] += 2 * lam * z
        gradient[:, -1] = p.sum(axis=0) if self.intercept else 0.0
        return value, gradient

    def _scores(self, point: Array) -> Array:
        """Scores [n, K] of the samples at a point."""
        point = point.astype(self.factor.dtype, copy=False)
        scores = self.factor @ point[:, :-1].T
        scores += point[:, -1]
        scores += self.base
        return scores

    def _inverse_diagonal(self, point: Array, lam: float) -> Array:
        """One over the Hessian's diagonal: sum_i w_i p_ik (1 - p_ik) F_ij^2 + 2 lam."""
        p = softmax(self._scores(point))
        # A class that no sample is unsure about has no curvature here yet; it will along the way.
        spread = np.maximum(p * (1 - p), 1e-3 / self.classes) * self.weights[:, None]
        diagonal = np.concatenate(
            [spread.T @ np.square(self.factor) + 2 * lam, spread.sum(axis=0)[:, None]], axis=1
        )
        return 1 / diagonal
