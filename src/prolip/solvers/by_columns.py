"""Case (B) of `reduce`: more rows than features."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from prolip.solvers.reduced import Rest, initial_rest

COPY = 1 << 26  # numbers: up to here X U is kept, beyond it U multiplies each time


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
        fixed: Tensor | None,
    ) -> None:
        self.x, self.w0, self.fixed, self.y = x, w0, fixed, y
        self.basis, self.curvature = basis, curvature
        e, self.vectors = torch.linalg.eigh(x.T @ x)
        self.spectrum = e.clamp_min(0)
        self.factor = x @ self.vectors if x.numel() <= COPY else None
        self.base, self.text = v0 @ basis, text @ basis
        self.v0_squared = v0.square().sum(dim=1) if split else None

    def forward(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """F Z = X U Z for each problem, [n, B, k]."""
        problems, r, k = z.shape
        z = z.transpose(0, 1).reshape(r, -1)
        left, right = (self.x, self.vectors @ z) if self.factor is None else (self.factor, z)
        flat = None if out is None else out.view(len(out), -1)
        return torch.mm(left, right, out=flat).view(-1, problems, k)

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
        return None if self.v0_squared is None else initial_rest(self.v0_squared, self.base, problems)

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
