"""L-BFGS for B problems at once, each with its own steps.

With the last m steps s_j and gradient changes y_j as columns of S and Y, R the upper triangle of S'Y and
H0 a first guess of the inverse Hessian, the two-loop recursion is two small triangular solves:

    a = R^-1 S'g        q = H0 (g - Y a)        direction = -( q + S R^-T (diag(R) a - Y'q) )
"""

from __future__ import annotations

import torch
from torch import Tensor


class History:
    """The last m pairs of B problems with N unknowns each."""

    def __init__(self, memory: int, problems: int, unknowns: int, like: Tensor) -> None:
        self.steps = like.new_zeros(problems, memory, unknowns)
        self.changes = like.new_zeros(problems, memory, unknowns)
        self.products = torch.eye(memory, dtype=like.dtype, device=like.device).repeat(problems, 1, 1)
        self.order: list[int] = []  # slots, oldest first
        self.last = -1

    def add(self, step: Tensor, change: Tensor, preconditioner: Tensor) -> Tensor:
        """Take in a pair [B, N], and return the factor [B] that fits H0 to it.

        Where a problem stood still or its curvature came out negative, its pair counts as absent.
        """
        curvature = (step * change).sum(dim=1)
        good = curvature > 1e-8 * step.norm(dim=1) * change.norm(dim=1)
        memory = self.steps.shape[1]
        slot = (self.last + 1) % memory
        if len(self.order) == memory:
            self.order.pop(0)
        self.order.append(slot)
        self.last = slot
        self.steps[:, slot] = step * good[:, None]
        self.changes[:, slot] = change * good[:, None]
        used = len(self.order)
        self.products[:, :used, slot] = _dot(self.steps[:, :used], self.changes[:, slot])
        self.products[:, slot, :used] = _dot(self.changes[:, :used], self.steps[:, slot])
        self.products[:, slot, slot] = torch.where(good, curvature, torch.ones_like(curvature))
        fit = curvature / (change.square() * preconditioner).sum(dim=1).clamp_min(1e-30)
        return torch.where(good, fit, torch.ones_like(fit))

    def direction(self, gradient: Tensor, preconditioner: Tensor) -> Tensor:
        """Minus the approximate inverse Hessian times the gradient [B, N]; H0 is diagonal, [B, N]."""
        if not self.order:
            return -preconditioner * gradient
        used = len(self.order)
        steps, changes = self.steps[:, :used], self.changes[:, :used]
        order = torch.tensor(self.order, device=gradient.device)
        back = torch.argsort(order)
        upper = self.products[:, order][:, :, order].triu()
        a = torch.linalg.solve_triangular(upper, _dot(steps, gradient)[:, order, None], upper=True)
        q = preconditioner * (gradient - _combine(changes, a[:, back, 0]))
        right = upper.diagonal(dim1=1, dim2=2)[..., None] * a - _dot(changes, q)[:, order, None]
        b = torch.linalg.solve_triangular(upper.transpose(1, 2), right, upper=False)
        return -(q + _combine(steps, b[:, back, 0]))


def _dot(vectors: Tensor, x: Tensor) -> Tensor:
    """[B, m, N] with [B, N] -> [B, m]."""
    return torch.bmm(vectors, x[:, :, None])[:, :, 0]


def _combine(vectors: Tensor, weights: Tensor) -> Tensor:
    """[B, m, N] with [B, m] -> [B, N]."""
    return torch.bmm(weights[:, None, :], vectors)[:, 0]
