"""The exact reductions: the same problem in far fewer unknowns.

    minimise over W:   sum_i w_i CE( s normalize(x_i W + b) T', y_i )  +  lam |W - W0|^2

Nothing below approximates it.

Left. The gradient with respect to W is X' (something), so W - W0 = X' A at every minimiser.

    (A) rows <= Do   K = X X' = U diag(e) U',  F = U sqrt(e);   W - W0 = X' U diag(e^-1/2) Z
    (B) rows >  Do   X'X = U diag(e) U',       F = X U;         W - W0 = U Z

In both F'F = diag(e), |W - W0| = |Z| and X (W - W0) = F Z. Small problems run in float64: their time goes
into calls, not into numbers, and then neither the order of rows nor the number of threads can be seen. One decomposition serves every lam, every scale
and every fold of a cross-validation (a fold gives the rows that it holds out the weight 0).

Right. Let Q be an orthonormal basis of span(T). Logits need v Q and |v|; what v has outside span(T), v_,
enters by its length alone, and dCE_i/dv_ = c_i v_ with one number c_i per row. So the part of W outside
span(T) answers a linear system once the c_i are known,

    (A)  V_ = 2 lam (2 lam I + K diag(w c))^-1 V0_                     [rows, D]
    (B)  Z_ = -(2 lam I + X' diag(w c) X)^-1 X' diag(w c) V0_          [Do, D]

and the iterations run on [r, K] unknowns, between two or three such solves. Where K is nearly D there is
little outside span(T): then Q is [D, D] and that part is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.objective import TINY

SPLIT = 0.75  # separate span(T) from the rest while K is below this share of D
SMALL = 1 << 26  # operations for X X': up to here float64 costs nothing that one would notice
COPY = 1 << 26  # numbers: up to here case (B) keeps X U, beyond it multiplies by U each time


@dataclass(eq=False)
class Rest:
    """What embeddings have outside span(T), for B problems at once.

    Attributes
    ----------
    squared
        |v_|^2 [n, B].
    penalty
        |W_ - W0_|^2 [B].
    weighted, lam
        w c [n, B] and lam [B], the numbers that it was solved for.
    parts
        Per problem, what the reduction needs to go on from here; none where it is still W0's.
    """

    squared: Tensor
    penalty: Tensor
    weighted: Tensor
    lam: Tensor
    parts: list[Tensor]

    def imbalance(self, weighted: Tensor, lam: Tensor) -> Tensor:
        """Zero where 2 lam (W_ - W0_) = -X' diag(w c) V_, as a minimum has it."""
        return weighted - self.weighted * (lam / self.lam)


class Reduced(Protocol):
    """A reduced problem. Unknowns Z [B, r, k] of B problems; embeddings [n, B, k]."""

    base: Tensor  # V0 Q [n, k]
    text: Tensor  # T Q [K, k]
    basis: Tensor  # Q [D, k]
    curvature: Tensor  # mu [k], of the softmax at W0, in the basis
    spectrum: Tensor  # e [r]
    y: Tensor  # [n]

    def forward(self, z: Tensor) -> Tensor:
        """F Z for each problem, [n, B, k]."""

    def adjoint(self, slope: Tensor) -> Tensor:
        """F' G for each problem, [B, r, k], of G [n, B, k]."""

    def coordinates(self, weight: Tensor) -> Tensor:
        """Z [1, r, k] of a matrix W, as far as Z can tell."""

    def initial_rest(self, problems: int) -> Rest | None:
        """The rest at W0; None where there is none."""

    def solve_rest(self, weighted: Tensor, lam: Tensor) -> Rest:
        """The rest that belongs to w c [n, B]."""

    def rest_gradient(self, rest: Rest, weighted: Tensor, lam: Tensor) -> Tensor:
        """Norms [B] of the gradient outside span(T) at the present w c and lam."""

    def weight(self, z: Tensor, rest: Rest | None) -> Tensor:
        """W [Do, D] of the first problem."""


def reduce(task: Task, inside: bool = False) -> Reduced:
    """The reduction that suits the task's sizes; `inside` keeps W - W0 within span(T)."""
    rows, y = task.rows()
    x, fixed = task.linear.split(rows)
    w0, text = task.linear.weight.to(x), task.text.rows.to(x)
    v0 = x if task.black_box else x @ w0
    if fixed is not None:
        fixed = fixed.to(x)
        v0 = v0 + fixed
    split = len(text) < (1.0 if inside else SPLIT) * text.shape[1]
    if len(x) ** 2 * x.shape[1] <= SMALL:
        v0, text = v0.double(), text.double()
    basis, curvature = _text_basis(v0, text, task.scale, split)
    if len(x) <= x.shape[1]:
        return ByRows(x, w0, v0, text, basis, curvature, y.to(x.device), split)
    return ByColumns(x.to(v0.dtype), w0, v0, text, basis, curvature, y.to(x.device), split, fixed)


def softmax_curvature(products: Tensor, squared: Tensor, text: Tensor, scale: float) -> Tensor:
    """The Hessian of the loss in v, on average: mean_i (s / |v_i|)^2 T' (diag p_i - p_i p_i') T, [k, k].

    From v T' [n, K], |v|^2 [n, 1] and T [K, k].
    """
    factor = scale * squared.clamp_min(TINY).rsqrt()
    p = (products * factor).softmax(dim=1).mul_(factor)
    middle = (p.T @ p).div_(-len(p))
    middle.diagonal().add_((p * factor).mean(dim=0))
    return text.T @ middle @ text


def _text_basis(v0: Tensor, text: Tensor, scale: float, split: bool) -> tuple[Tensor, Tensor]:
    """Q [D, k], a basis of span(T), or of everything, in which the softmax curvature at W0 is diag(mu)."""
    squared = v0.square().sum(dim=1, keepdim=True)
    if not split:
        mu, q = torch.linalg.eigh(softmax_curvature(v0 @ text.T, squared, text, scale))
        return q, mu.clamp_min(0)
    q = torch.linalg.qr(text.T)[0]
    inside = text @ q
    mu, rotation = torch.linalg.eigh(softmax_curvature((v0 @ q) @ inside.T, squared, inside, scale))
    return q @ rotation, mu.clamp_min(0)


class ByRows:
    """Case (A): as many unknowns as rows, times K."""

    def __init__(
        self,
        x: Tensor,
        w0: Tensor,
        v0: Tensor,
        text: Tensor,
        basis: Tensor,
        curvature: Tensor,
        y: Tensor,
        split: bool,
    ) -> None:
        self.x, self.w0, self.v0, self.y, self.split = x, w0, v0, y, split
        self.basis, self.curvature = basis, curvature
        wide = x.to(v0.dtype)
        self.gram = wide @ wide.T
        e, u = torch.linalg.eigh(self.gram)
        keep = e > e[-1] * 8 * torch.finfo(e.dtype).eps
        self.spectrum, self.vectors = e[keep], u[:, keep]
        self.roots = self.spectrum.sqrt()
        self.factor = self.vectors * self.roots
        self.base, self.text = v0 @ basis, text @ basis

    @cached_property
    def outside(self) -> Tensor:
        """V0_ [n, D]."""
        return self.v0 - self.base @ self.basis.T

    @cached_property
    def compact(self) -> Tensor:
        """V0_ in fewer columns: until the end only inner products of its rows count."""
        few = 2 * len(self.outside) <= self.outside.shape[1]
        return torch.linalg.qr(self.outside.T, mode="r")[1].T if few else self.outside

    def forward(self, z: Tensor) -> Tensor:
        """F Z for each problem, [n, B, k]."""
        problems, r, k = z.shape
        return (self.factor @ z.transpose(0, 1).reshape(r, -1)).view(-1, problems, k)

    def adjoint(self, slope: Tensor) -> Tensor:
        """F' G for each problem, [B, r, k]."""
        n, problems, k = slope.shape
        return (self.factor.T @ slope.reshape(n, -1)).view(-1, problems, k).transpose(0, 1).contiguous()

    def coordinates(self, weight: Tensor) -> Tensor:
        """Z = diag(e^-1/2) U' X (W - W0) Q."""
        step = (self.x @ (weight.to(self.x) - self.w0)).to(self.basis) @ self.basis
        return ((self.vectors.T @ step) / self.roots[:, None])[None]

    def initial_rest(self, problems: int) -> Rest | None:
        """V_ = V0_."""
        return _initial_rest(self.v0.square().sum(dim=1), self.base, problems) if self.split else None

    def solve_rest(self, weighted: Tensor, lam: Tensor) -> Rest:
        """V_ = 2 lam (2 lam I + K diag(w c))^-1 V0_, problem by problem."""
        parts = [self._outside(self.compact, weighted[:, b], float(lam[b])) for b in range(len(lam))]
        squared = torch.stack([part.square().sum(dim=1) for part in parts], dim=1)
        # W_ - W0_ = X' A_ with A_ = -diag(w c) V_ / 2 lam, and V_ - V0_ = K A_.
        penalty = torch.stack(
            [
                -(weighted[:, b, None] * part * (part - self.compact)).sum() / (2 * lam[b])
                for b, part in enumerate(parts)
            ]
        )
        return Rest(squared, penalty, weighted, lam, parts)

    def rest_gradient(self, rest: Rest, weighted: Tensor, lam: Tensor) -> Tensor:
        """|X' diag(imbalance) V_|."""
        norms, left = [], rest.imbalance(weighted, lam)
        for b, part in enumerate(rest.parts or [self.compact] * len(lam)):
            moved = left[:, b, None] * part
            norms.append((moved * (self.gram @ moved)).sum().clamp_min(0).sqrt())
        return torch.stack(norms)

    def weight(self, z: Tensor, rest: Rest | None) -> Tensor:
        """W0 + X' (A Q' + A_)."""
        dual = (self.vectors @ (z[0] / self.roots[:, None])) @ self.basis.T
        if rest is not None and rest.parts:
            weighted, lam = rest.weighted[:, 0], float(rest.lam[0])
            dual -= weighted[:, None] * self._outside(self.outside, weighted, lam) / (2 * lam)
        return torch.addmm(self.w0, self.x.T, dual.to(self.x.dtype))

    def _outside(self, start: Tensor, weighted: Tensor, lam: float) -> Tensor:
        system = self.gram * weighted
        system.diagonal().add_(2 * lam)
        return torch.linalg.solve_ex(system, start * (2 * lam))[0]


class ByColumns:
    """Case (B): as many unknowns as features, times K."""

    def __init__(
        self,
        x: Tensor,
        w0: Tensor,
        v0: Tensor,
        text: Tensor,
        basis: Tensor,
        curvature: Tensor,
        y: Tensor,
        split: bool,
        fixed: Tensor | None,
    ) -> None:
        self.x, self.w0, self.fixed, self.y = x, w0, fixed, y
        self.basis, self.curvature = basis, curvature
        e, self.vectors = torch.linalg.eigh(x.T @ x)
        self.spectrum = e.clamp_min(0)
        self.factor = x @ self.vectors if x.numel() <= COPY else None
        self.base, self.text = v0 @ basis, text @ basis
        self.v0_squared = v0.square().sum(dim=1) if split else None

    def forward(self, z: Tensor) -> Tensor:
        """F Z = X U Z for each problem, [n, B, k]."""
        problems, r, k = z.shape
        z = z.transpose(0, 1).reshape(r, -1)
        v = self.factor @ z if self.factor is not None else self.x @ (self.vectors @ z)
        return v.view(-1, problems, k)

    def adjoint(self, slope: Tensor) -> Tensor:
        """F' G = U' X' G for each problem, [B, r, k]."""
        n, problems, k = slope.shape
        slope = slope.reshape(n, -1)
        z = self.factor.T @ slope if self.factor is not None else self.vectors.T @ (self.x.T @ slope)
        return z.view(-1, problems, k).transpose(0, 1).contiguous()

    def coordinates(self, weight: Tensor) -> Tensor:
        """Z = U' (W - W0) Q."""
        return (self.vectors.T @ ((weight - self.w0).to(self.basis) @ self.basis))[None]

    def initial_rest(self, problems: int) -> Rest | None:
        """Z_ = 0."""
        return None if self.v0_squared is None else _initial_rest(self.v0_squared, self.base, problems)

    def solve_rest(self, weighted: Tensor, lam: Tensor) -> Rest:
        """Z_ = -(2 lam I + X' diag(w c) X)^-1 X' diag(w c) V0_, problem by problem."""
        parts = []
        start = self._outside(None)
        for b in range(len(lam)):
            scaled = self.x * weighted[:, b, None]
            system = scaled.T @ self.x
            system.diagonal().add_(2 * lam[b])
            parts.append(-torch.linalg.solve_ex(system, scaled.T @ start)[0])
        squared = torch.stack([(start + self.x @ part).square().sum(dim=1) for part in parts], dim=1)
        penalty = torch.stack([part.square().sum() for part in parts])
        return Rest(squared, penalty, weighted, lam, parts)

    def rest_gradient(self, rest: Rest, weighted: Tensor, lam: Tensor) -> Tensor:
        """|X' diag(imbalance) V_|."""
        left = rest.imbalance(weighted, lam)
        parts: list[Tensor | None] = [*rest.parts] or [None] * len(lam)
        return torch.stack(
            [(self.x.T @ (left[:, b, None] * self._outside(part))).norm() for b, part in enumerate(parts)]
        )

    def weight(self, z: Tensor, rest: Rest | None) -> Tensor:
        """W0 + U Z Q' + Z_."""
        step = (self.vectors @ z[0]) @ self.basis.T
        if rest is not None and rest.parts:
            step = step + rest.parts[0]
        return self.w0 + step.to(self.w0)

    def _outside(self, step: Tensor | None) -> Tensor:
        """V_ [n, D] after a step Z_."""
        w0, fixed = self._static
        v = self.x @ (w0 if step is None else w0 + step)
        return v if fixed is None else v + fixed

    @cached_property
    def _static(self) -> tuple[Tensor, Tensor | None]:
        """What W0 and the fixed addend have outside span(T)."""
        q = self.basis
        w0 = self.w0.to(q)
        fixed = None if self.fixed is None else self.fixed.to(q)
        return w0 - (w0 @ q) @ q.T, None if fixed is None else fixed - (fixed @ q) @ q.T


def _initial_rest(v0_squared: Tensor, base: Tensor, problems: int) -> Rest:
    squared = (v0_squared - base.square().sum(dim=1)).clamp_min(0)[:, None].expand(-1, problems)
    zero = base.new_zeros
    return Rest(squared, zero(problems), zero(len(base), problems), base.new_ones(problems), [])
