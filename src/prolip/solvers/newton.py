"""Newton's method for one small problem: steps by conjugate gradients, from products with the Hessian.

Where arrays are small, the time is in the number of operations and not in their size. A product with the
Hessian takes a quarter of the operations of a step of L-BFGS, which has a line search and a history to keep;
so a dozen Newton steps, with a handful of products each, are sooner at the minimum than fifty of those.

With q = v T', m = |v|^2, logits l = s q h(m) and e = p - onehot(y), a change u of v changes

    d = v.u / m                        half the relative change of m
    dl = s h u T' - share d l          share: 1 where h = m^-1/2, 1/2 in the restrained form
    dp = p * (dl - p.dl)
    slope in v:  s h (dp - share d e) T  -  share (dp.l + e.dl - 2 d e.l) / m v  +  c u
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prolip.solvers.objective import TINY
from prolip.solvers.reduced import Reduced

PRODUCTS = 30  # at most, for a step


class Hessian:
    """Of one problem, in its unknowns, where it stands.

    Parameters
    ----------
    reduced
        The problem.
    v, products
        Embeddings [n, k], and their products with the text [n, K].
    squared, factor, share
        |v|^2 and s h(|v|^2), both [n, 1]; and `share`, as above.
    weights, c
        w and w c, both [n, 1].
    lam
        Weight of the penalty.
    """

    def __init__(
        self,
        reduced: Reduced,
        v: Tensor,
        products: Tensor,
        squared: Tensor,
        factor: Tensor,
        share: float,
        weights: Tensor,
        c: Tensor,
        lam: float,
    ) -> None:
        self.reduced, self.v, self.factor, self.share, self.c, self.lam = reduced, v, factor, share, c, lam
        inverse = squared.clamp_min(TINY).reciprocal()
        self.v_short = v * inverse
        self.logits = products * factor
        self.p = self.logits.softmax(dim=1)
        self.e = self.p.scatter_add(1, reduced.y[:, None], torch.full_like(factor, -1.0))
        self.e_logits = 2 * (self.e * self.logits).sum(dim=1, keepdim=True)
        self.weighted_factor = weights * factor
        self.weighted_inverse = (-share) * weights * inverse

    def __call__(self, z: Tensor) -> Tensor:
        """Times z [1, r, k]."""
        text = self.reduced.text
        u = self.reduced.forward(z)[:, 0]
        d = (self.v_short * u).sum(dim=1, keepdim=True)
        dl = (u @ text.T).mul_(self.factor).addcmul_(self.logits, d, value=-self.share)
        dp = self.p * dl
        dp.addcmul_(self.p, dp.sum(dim=1, keepdim=True), value=-1)
        dc = (dp * self.logits).addcmul_(self.e, dl).sum(dim=1, keepdim=True)
        dc.addcmul_(self.e_logits, d, value=-1).mul_(self.weighted_inverse)
        slope = dp.addcmul_(self.e, d, value=-self.share).mul_(self.weighted_factor) @ text
        slope.addcmul_(self.v, dc).addcmul_(u, self.c)
        return self.reduced.adjoint(slope[:, None]).add_(z, alpha=2 * self.lam)


def newton_step(hessian: Hessian, gradient: Tensor, guess: Tensor, enough: float) -> tuple[Tensor, int]:
    """A step down from where the gradient [1, r, k] is this, and how many products with the Hessian it took.

    Conjugate gradients from zero, until the norm of what is left of the gradient, to first order, is
    `enough`. They always lead down, and end early where the objective curves downward.

    `guess` is the diagonal of an approximate inverse of the Hessian.
    """
    step, left = torch.zeros_like(gradient), gradient.neg()
    direction = guess * left
    height = _dot(left, direction)
    for count in range(1, PRODUCTS + 1):
        product = hessian(direction)
        curvature = _dot(direction, product)
        if not curvature > 0:
            return (direction if count == 1 else step), count
        step.add_(direction, alpha=height / curvature)
        left.sub_(product, alpha=height / curvature)
        if math.sqrt(_dot(left, left)) <= enough:
            break
        near = guess * left
        last, height = height, _dot(left, near)
        direction = near.add_(direction, alpha=height / last)
    return step, count


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.view(-1), b.view(-1)))
