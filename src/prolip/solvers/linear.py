"""Logistic regression over K classes, with scores to start from.

    minimise over W, b:   sum_i w_i CE( base_i + f_i W' + b, y_i )  +  lam |W|_F^2

f [n, D] features, base [n, K] given scores (zero, or zero-shot logits), w sample weights that sum to one.
The rows of W are combinations of the rows of f, so with F the features in their own eigenbasis,

    (A) n <= D   f f' = U diag(e) U',   F = U sqrt(e),   W = Z diag(e^-1/2) U' f
    (B) n >  D   f' f = U diag(e) U',   F = f U,         W = Z U'

|W| = |Z|, and one decomposition serves every lam. The problem is convex; L-BFGS starts from the diagonal of
the Hessian, which in this basis is most of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.solvers.smooth import Minimum, join, minimise, split

SMALL = 1 << 23  # n * K * rank: below it, float64 costs nothing worth saving


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """Weights [K, D] and intercepts [K], and how they were found."""

    weight: Tensor
    bias: Tensor
    unknowns: Tensor  # Z and b in one vector: where a neighbouring lam can start
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
    >>> import torch
    >>> problem = SoftmaxRegression(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]), classes=2)
    >>> problem.solve(lam=0.1).weight.sign().tolist()
    [[1.0], [-1.0]]
    """

    def __init__(
        self,
        f: Tensor,
        y: Tensor,
        classes: int,
        *,
        base: Tensor | None = None,
        weights: Tensor | None = None,
        intercept: bool = True,
    ) -> None:
        self.dtype = f.dtype
        exact = torch.float64 if len(f) * classes * min(f.shape) <= SMALL else torch.float32
        f = f.to(exact)
        self.y, self.classes, self.intercept = y, classes, intercept
        self.base = None if base is None else base.to(exact)
        self.weights = f.new_full((len(f),), 1 / len(f)) if weights is None else weights.to(exact)
        if len(f) <= f.shape[1]:
            e, u = torch.linalg.eigh(f @ f.T)
            keep = e > e[-1] * len(e) * torch.finfo(e.dtype).eps
            roots = e[keep].sqrt()
            self.factor = u[:, keep] * roots
            self.back = (u[:, keep] / roots).T @ f  # [r, D]
        else:
            _, u = torch.linalg.eigh(f.T @ f)
            self.factor, self.back = f @ u, u.T
        self.shapes = [torch.Size((classes, self.factor.shape[1])), torch.Size((classes,))]

    def solve(
        self, lam: float, *, start: Tensor | None = None, tol: float = 1e-4, evaluations: int = 500
    ) -> LinearSolution:
        """The minimum for this lam, to a relative gap of `tol`."""
        if start is None:
            start = join([self.factor.new_zeros(shape) for shape in self.shapes])

        def function(point: Tensor) -> tuple[float, Tensor]:
            z, bias = split(point, self.shapes)
            logp = self._scores(z, bias).log_softmax(dim=1)
            losses = -logp.gather(1, self.y[:, None])[:, 0]
            value = float((losses * self.weights).sum(dtype=torch.float64))
            value += lam * float(z.square().sum(dtype=torch.float64))
            residual = logp.exp_()
            residual.scatter_add_(1, self.y[:, None], residual.new_full((len(self.y), 1), -1.0))
            residual *= self.weights[:, None]
            slope = residual.sum(dim=0) if self.intercept else torch.zeros_like(bias)
            return value, join([torch.addmm(2 * lam * z, residual.T, self.factor), slope])

        found = minimise(
            function,
            start,
            tol=tol,
            evaluations=evaluations,
            modulus=2 * lam,
            preconditioner=self._preconditioner(start, lam),
        )
        z, bias = split(found.x, self.shapes)
        return LinearSolution((z @ self.back).to(self.dtype), bias.to(self.dtype), found.x, found)

    def _scores(self, z: Tensor, bias: Tensor) -> Tensor:
        if self.base is None:
            return torch.addmm(bias, self.factor, z.T)
        return torch.addmm(self.base + bias, self.factor, z.T)

    def _preconditioner(self, point: Tensor, lam: float) -> Tensor:
        """One over the Hessian's diagonal: sum_i w_i p_ik (1 - p_ik) F_ij^2 + 2 lam."""
        z, bias = split(point, self.shapes)
        p = self._scores(z, bias).softmax(dim=1)
        # A class that no sample is unsure about has no curvature here yet; it will along the way.
        spread = ((p * (1 - p)).clamp_min(1e-3 / self.classes)) * self.weights[:, None]
        diagonal = spread.T @ self.factor.square() + 2 * lam
        return join([1 / diagonal, 1 / spread.sum(dim=0)])
