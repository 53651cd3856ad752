"""The optimizer: L-BFGS or Newton inside span(T), closed-form solves outside it, for B problems at once.

The problems share features, labels and text, and differ in the weights of the rows (folds), in lam, or in
both. In the coordinates of `reduce`, the Hessian is close to the Kronecker product

    diag( e_i mu_j + 2 lam )        e: spectrum of the weighted X'X,  mu: softmax curvature

and its inverse is where L-BFGS starts from. The curvature is known at W0 only, and falls by an order of
magnitude on the way, as samples come to be classified with confidence. Too low a guess is mended by
the first few pairs; too high a guess slows the whole way down: so it enters with the factor SHRINK. (It
falls less where classes are as many as dimensions, and nothing is split off: SHRINK_WHOLE.) Once the way is
known, `refresh` takes the diagonal of the Hessian itself, with every row's own curvature; the pairs stay.
A single problem so small that operations count, and not their size, takes the steps of `newton` instead.

Arrays of n rows are as large as the features, and to the processor a fresh one costs as much as ten sums
over it: so there are six of them, made once. Two hold where the problems stand (v and its products with T),
two how both change along a step (F P, F P T'), and two are for logits and what comes of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from prolip.solvers.arithmetic import bfloat16_is_quick, product, single_thread, total
from prolip.solvers.lbfgs import History
from prolip.solvers.line_search import LineSearch, Numbers, numbers
from prolip.solvers.newton import Hessian, newton_step
from prolip.solvers.objective import TINY, loss_gradient, softmax_losses
from prolip.solvers.reduced import Reduced

SHRINK = 0.05
SHRINK_WHOLE = 0.3
AGAIN = 0.2
MEMORY, LONG = 20, 40  # pairs of history; of up to FEW unknowns
FEW = 1 << 13
TRIALS = 12
LITTLE = 1 << 22  # multiplications in F Z: up to here Newton's steps are quicker
PRODUCT = 0.25  # of the work of a step: a product with the Hessian
ROUGHLY = 0.5  # what a Newton step may leave of the gradient, to first order; less as the minimum nears
LARGE = 1 << 28  # multiplications in F Z: a product takes milliseconds
COARSE = 0.015  # tolerance of steps in bfloat16
ALONE = 1 << 23  # multiplications in F Z that one thread does in half a millisecond
IDLE = 4


@dataclass(eq=False)
class Point:
    """Where B problems stand. The batch has their embeddings."""

    z: Tensor  # [B, r, k]
    zz: Numbers  # |z|^2
    squared: Tensor  # |v|^2 [n, B], with what lies outside span(T)
    value: Numbers  # without the penalty of the rest
    c: Tensor  # w c [n, B]
    gradient: Tensor  # [B, r, k]


class Batch:
    """B weighted problems on one reduction."""

    def __init__(
        self,
        reduced: Reduced,
        lam: Tensor,
        weights: Tensor,
        scale: float,
        restrained: bool = False,
    ) -> None:
        """`lam` [B]; `weights` [n, B], each column summing to one; `restrained`: see `selection`."""
        self.reduced, self.lam, self.weights, self.scale = reduced, lam, weights, scale
        self.at_work = reduced  # whose products the steps take
        self.restrained = restrained
        self.problems = len(lam)
        self.rest = reduced.initial_rest(self.problems)
        self.evaluations = 0
        shrink = SHRINK if self.rest is not None else SHRINK_WHOLE
        kron = shrink / len(reduced.y) * reduced.spectrum[:, None] * reduced.curvature
        self.inverse = (kron + 2 * lam[:, None, None].clamp_min(1e-6 * kron.max())).reciprocal()
        z = torch.zeros_like(self.inverse)
        self.z_room = torch.empty_like(z)
        self.v = reduced.base[:, None].repeat(1, self.problems, 1)  # [n, B, k]
        self.v_change = torch.empty_like(self.v)
        shape = (len(reduced.y), self.problems, len(reduced.text))  # [n, B, K]
        self.products, self.products_change, self.residual = (self.v.new_empty(shape) for _ in range(3))
        self.room = self.v.new_empty(max(self.v.numel(), self.products.numel()))
        self.logits = self.room[: self.products.numel()].view(shape)
        self.rounding = torch.finfo(z.dtype).eps
        self.anchor = self._anchor() if restrained else None
        self.point = self._enter(z)
        self.start_value, self.start_norm = self.point.value, self.gradient_norm()
        self.multiplications = z.numel() * len(reduced.y)  # in F Z
        self.large = self.v.dtype == torch.float32 and self.multiplications > LARGE
        self.newton = self.problems == 1 and self.multiplications <= LITTLE
        memory = 0 if self.newton else LONG if z.numel() <= FEW else MEMORY
        self.history = History(memory, z.flatten(1).to(reduced.x.dtype))

    def gradient_norm(self) -> Numbers:
        """Norm [B] of the gradient in all that may move."""
        norm = numbers(self.point.gradient.flatten(1).norm(dim=1))
        if self.rest is None or self.restrained:
            return norm
        return np.hypot(norm, numbers(self.reduced.rest_gradient(self.rest, self.point.c, self.lam)))

    def value(self) -> Numbers:
        """The objective [B]."""
        if self.rest is None:
            return self.point.value
        return self.point.value + numbers(self.lam * self.rest.penalty)

    def move(self, z: Tensor) -> None:
        """Go on from other unknowns, or from the same without what rounding has added up to."""
        self.reduced.forward(z, out=self.v).add_(self.reduced.base[:, None])
        self.point = self._enter(z)

    def change_lam(self, lam: Tensor) -> None:
        """Keep place and history, change the problem."""
        shift = 2 * (lam - self.lam)[:, None, None]
        self.inverse = (self.inverse.reciprocal() + shift).reciprocal()
        here = self.point
        value = here.value + numbers(lam - self.lam) * here.zz
        self.lam, self.point = lam, replace(here, value=value, gradient=here.gradient + shift * here.z)

    def refresh(self) -> None:
        """Guess the Hessian's diagonal again, from the curvature of every row where the problems stand."""
        text, factor = self.reduced.text, self._factor()[:, :, None]
        p = torch.softmax(torch.mul(self.products, factor, out=self.logits), dim=2, out=self.residual)
        spread = torch.matmul(p, text.square(), out=self.v_change)
        mean = torch.matmul(p, text, out=self.room[: spread.numel()].view_as(spread))
        spread.sub_(mean.square_()).mul_(factor.square_().mul_(self.weights[:, :, None]))
        curvature = self.reduced.squared_adjoint(spread).mul_(AGAIN)
        lam = self.lam[:, None, None].clamp_min(1e-6 * float(curvature.max()))  # lam may be 0
        self.inverse = curvature.add_(2 * lam).reciprocal_()

    def hessian(self) -> Hessian:
        """Of the first problem, where it stands."""
        here = self.point
        return Hessian(
            self.reduced,
            self.v[:, 0],
            self.products[:, 0],
            here.squared,
            self._factor(),
            0.5 if self.restrained else 1.0,
            self.weights,
            here.c,
            float(self.lam),
        )

    def update_rest(self) -> bool:
        """Solve for the part outside span(T) at the present w c; keep it where no objective grows by it."""
        rest, point, value = self.rest, self.point, self.value()
        self.rest = self.reduced.solve_rest(point.c, self.lam)
        self.point = self._enter(point.z)
        better = bool((self.value() <= value * (1 + 1e-6)).all())
        if not better:
            self.rest, self.point = rest, point
        return better

    def goal(self, tol: float) -> Numbers:
        """Gradient norms [B] to stop at: tol of the start's, and lower as the objective falls.

        Where the support is fitted well the loss and all its gradients are small, far from the minimum too:
        so what counts is the gradient as a share of the start's against the objective as a share of it.
        """
        share = np.minimum(self.value() / np.maximum(self.start_value, TINY), 1.0)
        return self.start_norm * np.maximum(tol * share, 64 * self.rounding) + TINY

    def go_roughly(self) -> bool:
        """From now on take products in bfloat16, where it is quick and the problem large; whether that is so.

        They then err by three thousandths: that costs no step on the way, but does near the minimum.
        """
        rough = self.large and bfloat16_is_quick(self.v)
        if rough:
            self.at_work = self.reduced.rounded()
        return rough

    def approach(self, tol: float, steps: int) -> None:
        """As `descend`; but no further than COARSE where it can go roughly."""
        if self.go_roughly():
            self.descend(max(tol, COARSE), steps)
            self.at_work = self.reduced
            self.move(self.point.z)
        else:
            self.descend(tol, steps)

    def descend(self, tol: float, steps: int) -> None:
        """Step by step until every gradient norm inside span(T) has reached its goal."""
        with single_thread(alone=self.multiplications <= ALONE):
            if self.newton:
                self._newton(tol, steps)
            else:
                self._lbfgs(tol, steps)

    def _lbfgs(self, tol: float, steps: int) -> None:
        inverse = self.inverse.flatten(1)
        fit = torch.ones_like(self.lam)
        idle = np.zeros(self.problems)  # steps in a row that gained no more than rounding
        for _ in range(steps):
            gradient = self.point.gradient.flatten(1)
            active = (numbers(gradient.norm(dim=1)) > self.goal(tol)) & (idle < IDLE)
            if not active.any():
                break
            direction = self.history.direction(gradient, inverse, fit)
            slope = numbers(self._dot(direction, gradient))
            if (slope >= 0).any():
                uphill = torch.from_numpy(slope >= 0).to(fit.device)[:, None]
                direction = torch.where(uphill, -fit[:, None] * inverse * gradient, direction)
                slope = numbers(self._dot(direction, gradient))
            before = self.point
            self.point = self._search(direction.view_as(before.z), slope, active)
            idle = np.where(self._gained(before), 0.0, idle + 1)
            fit = self.history.add(
                (before.z.flatten(1), self.point.z.flatten(1)),
                (gradient, self.point.gradient.flatten(1)),
                inverse,
            )

    def _newton(self, tol: float, steps: int) -> None:
        work, idle = 0.0, 0
        while work < steps and idle < IDLE:
            before, goal = self.point, float(self.goal(tol)[0])
            norm = float(before.gradient.norm())
            if norm <= goal:
                break
            share = min(ROUGHLY, math.sqrt(norm / max(self.start_norm[0], TINY)))
            step, products = newton_step(
                self.hessian(), before.gradient, self.inverse, max(share * norm, 0.5 * goal)
            )
            self.evaluations += products
            work += 1 + PRODUCT * products
            self.point = self._search(step, numbers(self._dot(step, before.gradient)), np.ones(1, dtype=bool))
            idle = 0 if self._gained(before)[0] else idle + 1

    def _gained(self, before: Point) -> np.ndarray:
        """Where a step lowered the value [B] by more than rounding."""
        return before.value - self.point.value > self.rounding * before.value

    def _search(self, p: Tensor, slope: Numbers, active: np.ndarray) -> Point:
        """A step along p [B, r, k], in which the value has this slope [B]: neither too far nor too short.

        Embeddings, and their products with the text, are linear in the step, and squared lengths quadratic:
        once F P and F P T' are known, a trial costs no matrix product.
        """
        here, lam = self.point, numbers(self.lam)
        v, fp, change = self.v, self.at_work.forward(p, out=self.v_change), self.products_change
        product(fp.flatten(0, 1), self.at_work.text.T, change.flatten(0, 1))
        zz, zp, pp = here.zz, numbers(self._dot(here.z, p)), numbers(self._dot(p, p))
        vv, vf, ff = here.squared, self._rows_dot(v, fp), self._rows_dot(fp, fp)
        t = active.astype(np.float64)
        if not self.history.used:  # nothing is known yet, or a parabola: change no length more than twofold
            longest = (vv.sum(dim=0) / ff.sum(dim=0).clamp_min(TINY)).sqrt()
            t = np.minimum(numbers(longest), 1.0) * t
        search = LineSearch(here.value, slope, 4 * self.rounding * np.abs(here.value))
        for trial in range(TRIALS + 1):
            step = torch.from_numpy(t).to(p)
            torch.addcmul(self.products, change, step[:, None], out=self.logits)
            there, apart = vv + step * (2 * vf + step * ff), zz + t * (2 * zp + t * pp)
            losses, c = self._losses(there)
            value = losses + lam * apart
            if trial == TRIALS:
                break
            other = search.next(t, value, last=trial == TRIALS - 1)
            if other is None:
                break
            t = other
        v.addcmul_(fp, step[:, None])
        self.products.addcmul_(change, step[:, None])
        z = torch.addcmul(here.z, p, step[:, None, None])
        return Point(z, apart, there, value, c, self._gradient(z, c))

    def _enter(self, z: Tensor) -> Point:
        """The point of unknowns whose embeddings are in `v`."""
        torch.matmul(self.v, self.reduced.text.T, out=self.products)
        squared, zz = self._squared(), numbers(self._dot(z, z))
        self.logits.copy_(self.products)
        losses, c = self._losses(squared)
        return Point(z, zz, squared, losses + numbers(self.lam) * zz, c, self._gradient(z, c))

    def _gradient(self, z: Tensor, c: Tensor) -> Tensor:
        """From what `_losses` left in `residual`."""
        self.evaluations += 1
        slope = loss_gradient(self.v, self.residual, c, self.at_work.text, out=self.v_change)
        return self.at_work.adjoint(slope).addcmul_(z, 2 * self.lam[:, None, None])

    def _losses(self, squared: Tensor) -> tuple[Numbers, Tensor]:
        """Weighted loss [B] of the products in `logits`, and w c [n, B]; the gradient goes to `residual`."""
        y = self.reduced.y[:, None].expand(-1, self.problems)
        weights = self.weights
        share = None if self.anchor is None else (self.anchor / squared.clamp_min(TINY)).sqrt_()
        if share is not None:  # |v| a in the place of |v|^2, with half the slope in the length
            squared = squared * share
        losses, _, c = softmax_losses(self.logits, squared, y, self.scale, weights, out=self.residual)
        if share is not None:
            c.mul_(0.5 * share)
        return numbers((losses * self.weights).sum(dim=0, dtype=torch.float64)), c

    def _factor(self) -> Tensor:
        """What products with the text are multiplied by to be logits, [n, B]."""
        squared = self.point.squared.clamp_min(TINY)
        if self.anchor is not None:
            squared = (squared * self.anchor).sqrt_()
        return self.scale * squared.rsqrt()

    def _squared(self) -> Tensor:
        """|v|^2 [n, B], with what lies outside span(T)."""
        inside = self._rows_dot(self.v, self.v)
        return inside if self.rest is None else inside + self.rest.squared

    def _anchor(self) -> Tensor:
        """a^2 [n, B]: as long as the inputs are, and on average as the embeddings are at W0."""
        inputs = self.reduced.x.to(self.weights).square().sum(dim=1, keepdim=True)  # [n, 1]
        means = [(self.weights * squared).sum(dim=0) for squared in (self._squared(), inputs)]
        return (inputs * (means[0] / means[1].clamp_min(TINY))).clamp_min(1e-6 * means[0])

    def _rows_dot(self, a: Tensor, b: Tensor) -> Tensor:
        """Inner products [n, B] of rows [n, B, ..]; overwrites `logits`."""
        return torch.mul(a, b, out=self.room[: a.numel()].view_as(a)).sum(dim=2)

    def _dot(self, a: Tensor, b: Tensor) -> Tensor:
        """Inner products [B] of unknowns. (The products of BLAS round a hundred times worse.)"""
        return total(torch.mul(a, b, out=self.z_room.view_as(a)).flatten(1))
