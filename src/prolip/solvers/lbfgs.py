"""L-BFGS for B problems at once, each with its own steps.

With the last m steps s_j and gradient changes y_j as columns of S and Y, R the upper triangle of S'Y and
H0 a first guess of the inverse Hessian, the two-loop recursion is two small triangular solves:

    a = R^-1 S'g        q = H0 (g - Y a)        direction = -( q + S R^-T (diag(R) a - Y'q) )
"""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.solvers.arithmetic import total


class History:
    """The last m pairs of B problems with N unknowns each."""

    def __init__(self, memory: int, like: Tensor) -> None:
        """For unknowns `like` these [B, N]. Pairs are kept in their precision, whatever that of the rest."""
        problems, unknowns = like.shape
        self.steps = like.new_zeros(problems, memory, unknowns)
        self.changes = like.new_zeros(problems, memory, unknowns)
        self.products = torch.eye(memory, dtype=torch.float64, device=like.device).repeat(problems, 1, 1)
        self.room = like.new_empty(problems, unknowns)
        self.used = 0
        self.last = -1  # the slot of the newest pair; they are taken in turn

    def add(self, moved: tuple[Tensor, Tensor], slopes: tuple[Tensor, Tensor], inverse: Tensor) -> Tensor:
        """Take in a step, and return the factor [B] that fits H0 to it.

        Where a problem stood still or its curvature came out negative, its pair counts as absent.

        Parameters
        ----------
        moved, slopes
            Unknowns and gradients [B, N], before and after.
        inverse
            Diagonal of H0 [B, N].
        """
        memory = self.steps.shape[1]
        slot = (self.last + 1) % memory
        self.last, self.used = slot, min(self.used + 1, memory)
        step, change = self.steps[:, slot], self.changes[:, slot]
        torch.sub(moved[1], moved[0], out=step)
        torch.sub(slopes[1], slopes[0], out=change)
        curvature = total(torch.mul(step, change, out=self.room))
        good = curvature > 1e-8 * step.norm(dim=1) * change.norm(dim=1)
        if not bool(good.all()):
            step.mul_(good[:, None])
            change.mul_(good[:, None])
        self.products[:, : self.used, slot] = _dot(self.steps[:, : self.used], change)
        self.products[:, slot, slot] = torch.where(good, curvature, torch.ones_like(curvature))
        fit = curvature / total(torch.mul(change, change, out=self.room).mul_(inverse)).clamp_min(1e-30)
        return torch.where(good, fit, torch.ones_like(fit)).to(inverse)

    def direction(self, gradient: Tensor, inverse: Tensor, fit: Tensor) -> Tensor:
        """Minus the approximate inverse Hessian times the gradient [B, N].

        H0 is diagonal: `inverse` [B, N], times `fit` [B].
        """
        if not self.used:
            return (inverse * gradient).mul_(-fit[:, None])
        used = self.used
        steps, changes = self.steps[:, :used], self.changes[:, :used]
        g, guess = gradient.to(steps), inverse.to(steps)
        turn = used - 1 - self.last  # from slots to the order of time
        upper = _roll(self.products[:, :used, :used], turn, 1, 2).triu()
        right = _roll(_dot(steps, g), turn, 1).to(upper)
        a = torch.linalg.solve_triangular(upper, right[..., None], upper=True)
        q = _combine(g, -_roll(a[..., 0], -turn, 1), changes).mul_(guess).mul_(fit[:, None])
        right = upper.diagonal(dim1=1, dim2=2) * a[..., 0] - _roll(_dot(changes, q), turn, 1)
        b = torch.linalg.solve_triangular(upper.transpose(1, 2), right[..., None], upper=False)
        return _combine(q, _roll(b[..., 0], -turn, 1), steps).neg_().to(gradient)


def _roll(x: Tensor, by: int, *dims: int) -> Tensor:
    return x.roll((by,) * len(dims), dims) if by else x


def _dot(vectors: Tensor, x: Tensor) -> Tensor:
    """[B, m, N] with [B, N] -> [B, m]."""
    return torch.bmm(vectors, x[:, :, None])[:, :, 0]


def _combine(x: Tensor, weights: Tensor, vectors: Tensor) -> Tensor:
    """[B, N] plus weights [B, m] times [B, m, N]."""
    return torch.baddbmm(x[:, None], weights[:, None, :].to(x), vectors)[:, 0]
