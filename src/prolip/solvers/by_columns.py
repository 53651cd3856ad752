"""Case (B) of `reduce`: more rows than features."""

from __future__ import annotations

from copy import copy
from functools import cached_property

import torch
from torch import Tensor

from prolip.solvers.arithmetic import eigh, product, steady
from prolip.solvers.reduced import Rest, initial_rest, pull, sketch

COPY = 1 << 26  # numbers: up to here X U is kept, beyond it U multiplies each time
ROWS = 1 << 14


class ByColumns:
    """As many unknowns as features, times K."""

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
        products: torch.dtype,
        fixed: Tensor | None,
    ) -> None:
        self.x, self.w0, self.fixed, self.y = x, w0, fixed, y
        self.basis, self.curvature = basis, curvature
        parts = (part.to(basis.dtype) for part in x.split(ROWS))
        e, u = eigh(sum((part.T @ part for part in parts), basis.new_zeros(())))
        self.spectrum, self.vectors = e.clamp_min(0), u.to(products)
        self.factor = self._factor(x) if x.numel() <= COPY else None
        self.base, self.text = product(v0, basis), text @ basis
        self.v0_squared = v0.square().sum(dim=1) if split else None

    def forward(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """F Z = X U Z for each problem, [n, B, k]."""
        problems, r, k = z.shape
        z = z.transpose(0, 1).reshape(r, -1)
        left, right = (self.x, product(self.vectors, z)) if self.factor is None else (self.factor, z)
        return product(left, right, None if out is None else out.view(len(out), -1)).view(-1, problems, k)

    def adjoint(self, slope: Tensor) -> Tensor:
        """F' G = U' X' G for each problem, [B, r, k]."""
        if self.factor is not None:
            return pull(self.factor, slope)
        z = pull(self.x, slope)
        return (self.vectors.T @ z.to(self.vectors)).to(z)

    def squared_adjoint(self, slope: Tensor) -> Tensor:
        """(F * F)' G for each problem, [B, r, k]."""
        if self.factor is not None:
            return pull(self.factor.square(), slope)
        parts = zip(self.x.split(ROWS), slope.split(ROWS), strict=True)
        return sum((pull(self._factor(x).square_(), part) for x, part in parts), slope.new_zeros(()))

    def rounded(self) -> ByColumns:
        """With F, or where it is not kept X, and T in bfloat16."""
        rough = copy(self)
        rough.text = self.text.bfloat16()
        if self.factor is None:
            rough.x = self.x.bfloat16()
        else:
            rough.factor = self.factor.bfloat16()
        return rough

    def coordinates(self, weight: Tensor) -> Tensor:
        """Z = U' (W - W0) Q."""
        return product(self.vectors.T, product(weight - self.w0, self.basis))[None]

    def initial_rest(self, problems: int) -> Rest | None:
        """Z_ = 0."""
        return None if self.v0_squared is None else initial_rest(self.v0_squared, self.base, problems)

    def solve_rest(self, weighted: Tensor, lam: Tensor) -> Rest:
        """Z_ = -(2 lam I + X' diag(w c) X)^-1 X' diag(w c) V0_, problem by problem."""
        parts = []
        start = self._outside(None)
        for b in range(len(lam)):
            scaled = self.x * weighted[:, b, None].to(self.x)
            system = scaled.T @ self.x
            system.diagonal().add_(2 * lam[b])
            right = scaled.T @ start
            with steady(self.base):
                parts.append(-torch.linalg.solve_ex(system, right)[0])
        squared = torch.stack([(start + self.x @ part).square().sum(dim=1) for part in parts], dim=1)
        penalty = torch.stack([part.square().sum() for part in parts])
        return Rest(squared.to(weighted), penalty.to(weighted), weighted, lam, parts)

    def rest_gradient(self, rest: Rest, weighted: Tensor, lam: Tensor) -> Tensor:
        """|X' diag(imbalance) V_|, from a sketch of V_."""
        left = rest.imbalance(weighted, lam).to(self.x)
        few = sketch(self._static[0])
        parts: list[Tensor | None] = [*rest.parts] or [None] * len(lam)
        norms = [
            (self.x.T @ (left[:, b, None] * self._outside(part, few))).norm() for b, part in enumerate(parts)
        ]
        return torch.stack(norms).to(weighted)

    def weight(self, z: Tensor, rest: Rest | None) -> Tensor:
        """W0 + U Z Q' + Z_."""
        step = product(self.vectors, z[0]) @ self.basis.T
        if rest is not None and rest.parts:
            step = step + rest.parts[0]
        return self.w0 + step.to(self.w0)

    def _factor(self, x: Tensor) -> Tensor:
        return x.to(self.vectors) @ self.vectors

    def _outside(self, step: Tensor | None, few: Tensor | None = None) -> Tensor:
        """V_ [n, D] after a step Z_; with `few`, V_ times it."""
        w0, fixed = self._static
        w = w0 if step is None else w0 + step
        v = self.x @ (w if few is None else w @ few)
        if fixed is None:
            return v
        return v + (fixed if few is None else fixed @ few)

    @cached_property
    def _static(self) -> tuple[Tensor, Tensor | None]:
        """What W0 and the fixed addend have outside span(T)."""
        q = self.basis.to(self.x)
        w0 = self.w0.to(q)
        fixed = None if self.fixed is None else self.fixed.to(q)
        return w0 - (w0 @ q) @ q.T, None if fixed is None else fixed - (fixed @ q) @ q.T
