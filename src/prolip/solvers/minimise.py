"""The optimizer: L-BFGS inside span(T), closed-form solves outside it, for B problems at once.

The problems share features, labels and text, and differ in the weights of the rows (folds), in lam, or in
both. In the coordinates of `reduce`, the Hessian is close to the Kronecker product

    diag( e_i mu_j + 2 lam )        e: spectrum of the weighted X'X,  mu: softmax curvature

and its inverse is where L-BFGS starts from. The curvature is known at W0 only, and falls by an order of
magnitude on the way, as samples come to be classified with confidence. Too low a guess is mended by
the first few pairs; too high a guess slows the whole way down: so it enters with the factor SHRINK.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.solvers.lbfgs import History
from prolip.solvers.objective import TINY, cross_entropy
from prolip.solvers.reduce import Reduced, softmax_curvature

SHRINK = 0.05
MEMORY = 12
TRIALS = 12
IDLE = 4
CHUNK = 1 << 23  # numbers in one [rows, K] array of an evaluation


@dataclass(eq=False)
class Point:
    """Where B problems stand."""

    z: Tensor  # [B, r, k]
    v: Tensor  # [n, B, k]
    value: Tensor  # [B] float64, without the penalty of the rest
    slope: Tensor  # dvalue/dv [n, B, k]
    c: Tensor  # w c [n, B]
    gradient: Tensor  # [B, r, k]


class Batch:
    """B weighted problems on one reduction."""

    def __init__(
        self, reduced: Reduced, lam: Tensor, weights: Tensor, scale: float, inside: bool = False
    ) -> None:
        """`lam` [B]; `weights` [n, B], each column summing to one; `inside`: W - W0 within span(T)."""
        self.reduced, self.lam, self.weights, self.scale = reduced, lam, weights, scale
        self.inside = inside
        self.problems = len(lam)
        self.rest = reduced.initial_rest(self.problems)
        self.evaluations = 0
        squared = 0.0 if self.rest is None else self.rest.squared[:, :1]
        curvature = softmax_curvature(reduced.base, squared, reduced.text, scale).diagonal().clamp_min(0)
        kron = SHRINK / len(reduced.y) * reduced.spectrum[:, None] * curvature
        self.inverse = (kron + 2 * lam[:, None, None].clamp_min(1e-6 * kron.max())).reciprocal()
        z = torch.zeros_like(self.inverse)
        self.point = self._enter(z, reduced.base[:, None].expand(-1, self.problems, -1))
        self.start_value, self.start_norm = self.point.value, self.gradient_norm()
        self.history = History(MEMORY, self.problems, z[0].numel(), z)

    def gradient_norm(self) -> Tensor:
        """Norm [B] of the gradient in all that may move."""
        norm = self.point.gradient.flatten(1).norm(dim=1)
        if self.rest is None or self.inside:
            return norm
        return torch.hypot(norm, self.reduced.rest_gradient(self.rest, self.point.c))

    def value(self) -> Tensor:
        """The objective [B]."""
        if self.rest is None:
            return self.point.value
        return self.point.value + (self.lam * self.rest.penalty).double()

    def move(self, z: Tensor) -> None:
        """Go on from other unknowns."""
        self.point = self._enter(z, self.reduced.base[:, None] + self.reduced.forward(z))

    def change_lam(self, lam: Tensor) -> None:
        """Keep place and history, change the problem."""
        shift = 2 * (lam - self.lam)[:, None, None]
        self.inverse = (self.inverse.reciprocal() + shift).reciprocal()
        self.lam = lam
        self.move(self.point.z)

    def update_rest(self) -> bool:
        """Solve for the part outside span(T) at the present w c; keep it where no objective grows by it."""
        rest, point, value = self.rest, self.point, self.value()
        self.rest = self.reduced.solve_rest(point.c, self.lam)
        self.point = self._enter(point.z, point.v)
        better = bool((self.value() <= value * (1 + 1e-6)).all())
        if not better:
            self.rest, self.point = rest, point
        return better

    def goal(self, tol: float) -> Tensor:
        """Gradient norms [B] to stop at: tol of the start's, and lower as the objective falls.

        Where the support is fitted well the loss and all its gradients are small, far from the minimum too:
        so what counts is the gradient as a share of the start's against the objective as a share of it.
        """
        share = (self.value() / self.start_value.clamp_min(TINY)).clamp_max(1.0).to(self.start_norm)
        rounding = 64 * torch.finfo(share.dtype).eps
        return self.start_norm * (tol * share).clamp_min(rounding) + TINY

    def descend(self, tol: float, steps: int) -> None:
        """L-BFGS until every gradient norm inside span(T) has reached its goal."""
        inverse = self.inverse.flatten(1)
        fit = torch.ones_like(self.lam)
        idle = torch.zeros_like(self.lam)  # steps in a row that gained no more than rounding
        for _ in range(steps):
            gradient = self.point.gradient.flatten(1)
            done = gradient.norm(dim=1) <= self.goal(tol)
            active = ~done & (idle < IDLE)
            if not bool(active.any()):
                break
            scaled = inverse * fit[:, None]
            direction = self.history.direction(gradient, scaled)
            uphill = (direction * gradient).sum(dim=1) >= 0
            if bool(uphill.any()):
                direction = torch.where(uphill[:, None], -scaled * gradient, direction)
            before = self.point
            self.point = self._search(direction.view_as(before.z), active)
            gained = before.value - self.point.value > torch.finfo(fit.dtype).eps * before.value
            idle = torch.where(gained, torch.zeros_like(idle), idle + 1)
            step = (self.point.z - before.z).flatten(1)
            fit = self.history.add(step, (self.point.gradient - before.gradient).flatten(1), inverse)

    def _search(self, p: Tensor, active: Tensor) -> Point:
        """A step along p [B, r, k] that lowers the value and leaves the slope less steep.

        Embeddings are linear in the step, v(t) = v + t F P, so that a trial costs no product with F.
        """
        here = self.point
        fp = self.reduced.forward(p)
        zz, zp, pp = ((a * b).sum(dim=(1, 2)) for a, b in ((here.z, here.z), (here.z, p), (p, p)))
        slope0 = (here.gradient * p).sum(dim=(1, 2))
        noise = 4 * torch.finfo(p.dtype).eps * here.value.abs()
        t = active.to(p.dtype)
        if not self.history.order:  # nothing is known yet: change no embedding's length more than twofold
            length = here.v.square().sum(dim=(0, 2))
            if self.rest is not None:
                length = length + self.rest.squared.sum(dim=0)
            t = t * (length / fp.square().sum(dim=(0, 2)).clamp_min(TINY)).sqrt().clamp_max(1.0)
        low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
        low_value = here.value
        for trial in range(TRIALS):
            v = torch.addcmul(here.v, fp, t[None, :, None])
            outcome = self._losses(v)
            value = outcome[0] + (self.lam * (zz + 2 * t * zp + t * t * pp)).double()
            slope = (outcome[1] * fp).sum(dim=(0, 2)) + 2 * self.lam * (zp + t * pp)
            far = ~(value <= here.value + 1e-4 * (t * slope0).double() + noise) | ~(
                value <= low_value + noise
            )
            short = ~far & (slope < 0.6 * slope0) & (t > 0)
            if not bool((far | short).any()) or trial == TRIALS - 1:
                break
            low_value = torch.where(short, value, low_value)
            low, high = torch.where(short, t, low), torch.where(far, t, high)
            excess = (value - here.value).to(t) - slope0 * t
            parabola = torch.nan_to_num(-slope0 * t * t / (2 * excess), nan=0.0)
            inner = torch.minimum(
                torch.maximum(parabola, low + 0.05 * (high - low)), low + 0.5 * (high - low)
            )
            outer = torch.where(torch.isinf(high), 2.5 * t, 0.5 * (low + high))
            t = torch.where(far, inner, torch.where(short, outer, t))
        if bool(far.any()):  # out of trials: stay at the best step known
            t = torch.where(far, low, t)
            v = torch.addcmul(here.v, fp, t[None, :, None])
            outcome = self._losses(v)
        z = torch.addcmul(here.z, p, t[:, None, None])
        return self._enter(z, v, outcome)

    def _enter(self, z: Tensor, v: Tensor, outcome: tuple[Tensor, Tensor, Tensor] | None = None) -> Point:
        losses, slope, c = self._losses(v) if outcome is None else outcome
        self.evaluations += 1
        value = losses + (self.lam * z.square().sum(dim=(1, 2))).double()
        gradient = self.reduced.adjoint(slope) + 2 * self.lam[:, None, None] * z
        return Point(z, v, value, slope, c, gradient)

    def _losses(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted loss [B], its gradient in v [n, B, k], and w c [n, B], in chunks of rows."""
        rows = max(1, CHUNK // (self.problems * len(self.reduced.text)))
        total = torch.zeros(self.problems, dtype=torch.float64, device=v.device)
        slopes, numbers = [], []
        for i in range(0, len(v), rows):
            part = slice(i, i + rows)
            w = self.weights[part]
            y = self.reduced.y[part, None].expand(-1, self.problems)
            rest = None if self.rest is None else self.rest.squared[part]
            losses, slope, c = cross_entropy(v[part], self.reduced.text, y, self.scale, rest)
            total += (losses * w).sum(dim=0, dtype=torch.float64)
            slopes.append(slope.mul_(w[..., None]))
            numbers.append(c * w)
        if len(slopes) == 1:
            return total, slopes[0], numbers[0]
        return total, torch.cat(slopes), torch.cat(numbers)
