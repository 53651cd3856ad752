"""Softmax regression on top of given scores, for several weightings of the rows at once.

    minimise over C_b, c_b:   sum_i w_ib CE( base_i + f_i C_b + c_b, y_i )  +  lam |C_b|^2,      b = 1 .. B

f [n, D] features, base [n, K] given scores (zero, or zero-shot logits), w [n, B] weights of the rows, every
column summing to one: a fold of a cross-validation gives the rows that it holds out the weight 0. The
columns of C_b are combinations of the rows of f, so C_b = B Z_b with the decomposition of `reduction`, which
serves every lam and every weighting. The problems share nothing: what minimises their sum minimises each.
With `basis` Q [K, k], of orthonormal columns, C_b = B Z_b Q': scores that move only within span(Q).

The problem is convex; L-BFGS is preconditioned by the diagonal of the Hessian at the start, which in this
basis is most of it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, softmax, softmax_loss
from prolip.solvers import threads
from prolip.solvers.minimise import Minimum, minimise
from prolip.solvers.reduction import factorise
from prolip.solvers.threads import parallel_for, parallel_matmul, single_thread, split_range


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Class rows C' [K, D] and intercepts [K] of the first problem, and how they were found."""

    weight: Array
    bias: Array
    unknowns: Array  # Z [r, B, k] of every problem: where a neighbouring lam can start
    minimum: Minimum


class SoftmaxRegression:
    """The problems, decomposed once; `solve` them for any lam > 0.

    Examples
    --------
    >>> regression = SoftmaxRegression(np.array([[1.0], [-1.0]]), np.array([0, 1]), classes=2)
    >>> np.sign(regression.solve(lam=0.1).weight).tolist()
    [[1.0], [-1.0]]
    """

    def __init__(
        self,
        f: Array,
        y: Array,
        classes: int,
        *,
        intercept: bool = True,
        basis: Array | None = None,
    ) -> None:
        self.f, self.y, self.problems = f, y, 1
        size = len(f), min(f.shape), classes
        self.kind, self.chunks = threads.precision_and_chunks(*size, f.dtype)
        self.weights, self.base = np.full((len(f), 1), 1 / len(f), self.kind), np.zeros((1, classes))
        self.basis = None if basis is None else basis.astype(self.kind)
        with single_thread():
            factor, self.back, _ = factorise(f.astype(self.kind, copy=False))
        self.penalty = np.ones(factor.shape[1] + intercept, self.kind)
        if intercept:  # a feature that is 1, and costs nothing
            factor, self.penalty[-1] = np.hstack([factor, np.ones((len(f), 1), factor.dtype)]), 0.0
        self.factor, self.intercept = factor, intercept
        self.shape = factor.shape[1], self.problems, classes if basis is None else basis.shape[1]

    def on(self, base: Array, weights: Array | None = None) -> SoftmaxRegression:
        """The same rows, decomposed already, with other scores to start from and other weights."""
        other = copy(self)
        other.base = base
        if weights is not None:
            other.weights, other.problems = weights.astype(self.kind), weights.shape[1]
            other.shape = self.shape[0], other.problems, self.shape[2]
        return other

    def solve(
        self, lam: float, *, start: Array | None = None, tol: float = 1e-7, evaluations: int = 500
    ) -> Coefficients:
        """The minimum for this lam; `tol` as `minimise` has it."""
        z = np.zeros(self.shape, self.kind) if start is None else start
        with single_thread():
            scale = self._inverse_diagonal(lam)
            found = minimise(lambda z: self.value(z, lam), z, tol=tol, evaluations=evaluations, scale=scale)
            weight, bias = self.coefficients(found.x)
        return Coefficients(weight.T, bias, found.x, found)

    def value(self, z: Array, lam: float) -> tuple[float, Array]:
        """The objective at Z [r, B, k], and its gradient."""
        flat = z.reshape(len(z), -1)
        losses = np.empty_like(self.weights)
        slope = np.empty((len(self.y), flat.shape[1]), self.kind)
        gradient = np.empty_like(flat)

        def forward(rows: slice) -> None:
            scores = self._scores(rows, flat)  # [m, B, K]
            losses[rows], p = softmax_loss(scores, self.y[rows], self.weights[rows], out=scores)
            inside = p if self.basis is None else p @ self.basis
            slope[rows] = inside.reshape(len(p), -1)

        def backward(part: slice) -> None:
            np.matmul(self.factor[:, part].T, slope, out=gradient[part])

        parallel_for(forward, split_range(len(self.y), self.chunks))
        parallel_for(backward, split_range(len(gradient), self.chunks))
        pull = lam * self.penalty[:, None, None] * z
        value = float(np.vdot(losses, self.weights)) + float(np.vdot(pull, z))
        return value, gradient.reshape(z.shape) + 2 * pull

    def scores(self, z: Array, problem: Array) -> Array:
        """Scores [n, K] of each row in the problem [n] named for it, without the base."""
        flat, found = z.reshape(len(z), -1), []
        for rows in split_range(len(problem), self.chunks):
            own = (self.factor[rows] @ flat).reshape(-1, *self.shape[1:])
            found.append(own[np.arange(len(own)), problem[rows]])
        inside = np.concatenate(found)
        return inside if self.basis is None else inside @ self.basis.T

    def coefficients(self, z: Array) -> tuple[Array, Array]:
        """C [D, K] and intercepts [K] of the first problem."""
        own = z[:, 0] if self.basis is None else z[:, 0] @ self.basis.T
        bias = own[-1] if self.intercept else np.zeros(own.shape[1])
        step = self.back @ (own[:-1] if self.intercept else own).astype(self.back.dtype)
        weight = (
            parallel_matmul(self.f.T, step.astype(self.f.dtype)) if len(self.f) <= self.f.shape[1] else step
        )
        return weight.astype(self.f.dtype), bias.astype(self.f.dtype)

    def _scores(self, rows: slice, flat: Array) -> Array:
        own: Array = (self.factor[rows] @ flat).reshape(-1, *self.shape[1:])
        if self.basis is not None:
            own = own @ self.basis.T
        base = self.base if len(self.base) == 1 else self.base[rows]
        own += base[:, None]
        return own

    def _inverse_diagonal(self, lam: float) -> Array:
        """One over the Hessian's diagonal at zero, sum_i w_i p_ik (1 - p_ik) F_ij^2 + 2 lam, [r, B, k]."""
        p = softmax(np.broadcast_to(self.base, (len(self.y), self.base.shape[1])))
        # A class that no sample is unsure about has no curvature here yet; it will along the way.
        spread = np.maximum(p * (1 - p), 1e-3 / p.shape[1]) / len(self.y)
        if self.basis is not None:
            spread = spread @ np.square(self.basis)
        diagonal = parallel_matmul(np.square(self.factor.T), spread.astype(self.factor.dtype))
        diagonal += 2 * lam * self.penalty[:, None]
        return np.repeat(1 / diagonal[:, None].astype(self.kind), self.problems, axis=1)
