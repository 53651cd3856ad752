"""Case (A) of `reduce`: no more rows than features."""

from __future__ import annotations

from copy import copy
from functools import cached_property

import torch
from torch import Tensor

from prolip.solvers.arithmetic import eigh, product, steady
from prolip.solvers.reduced import Rest, initial_rest, pull, sketch


class ByRows:
    """As many unknowns as rows, times K."""

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
    ) -> None:
        self.x, self.w0, self.v0, self.y, self.split = x, w0, v0, y, split
        self.basis, self.curvature = basis, curvature
        wide = x.to(basis.dtype)
        gram = wide @ wide.T
        e, u = eigh(gram)
        keep = e > e[-1] * 8 * torch.finfo(e.dtype).eps
        self.spectrum, u = e[keep], u[:, keep]
        roots = self.spectrum.sqrt()
        self.gram, self.back, self.factor = gram.to(v0), (u / roots).to(products), (u * roots).to(products)
        self.base, self.text = product(v0, basis), text @ basis

    @cached_property
    def outside(self) -> Tensor:
        """V0_ [n, D]."""
        return torch.addmm(self.v0, self.base.to(self.v0), self.basis.T.to(self.v0), alpha=-1)

    @cached_property
    def compact(self) -> Tensor:
        """V0_ in fewer columns: until the end only inner products of its rows count."""
        few = 2 * len(self.outside) <= self.outside.shape[1]
        return torch.linalg.qr(self.outside.T, mode="r")[1].T if few else self.outside

    def forward(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """F Z for each problem, [n, B, k]."""
        problems, r, k = z.shape
        flat = None if out is None else out.view(len(out), -1)
        return product(self.factor, z.transpose(0, 1).reshape(r, -1), flat).view(-1, problems, k)

    def adjoint(self, slope: Tensor) -> Tensor:
        """F' G for each problem, [B, r, k]."""
        return pull(self.factor, slope)

    def squared_adjoint(self, slope: Tensor) -> Tensor:
        """(F * F)' G for each problem, [B, r, k]."""
        return pull(self.factor.square(), slope)

    def rounded(self) -> ByRows:
        """With F and T in bfloat16."""
        rough = copy(self)
        rough.factor, rough.text = self.factor.bfloat16(), self.text.bfloat16()
        return rough

    def coordinates(self, weight: Tensor) -> Tensor:
        """Z = diag(e^-1/2) U' X (W - W0) Q."""
        step = product(self.x @ (weight.to(self.x) - self.w0), self.basis)
        return product(self.back.T, step)[None]

    def initial_rest(self, problems: int) -> Rest | None:
        """V_ = V0_."""
        return initial_rest(self.v0.square().sum(dim=1), self.base, problems) if self.split else None

    def solve_rest(self, weighted: Tensor, lam: Tensor) -> Rest:
        """V_ = 2 lam (2 lam I + K diag(w c))^-1 V0_, problem by problem."""
        parts = [self._outside(self.compact, weighted[:, b], float(lam[b])) for b in range(len(lam))]
        squared = torch.stack([part.square().sum(dim=1) for part in parts], dim=1)
        # W_ - W0_ = X' A_ with A_ = -diag(w c) V_ / 2 lam, and V_ - V0_ = K A_.
        turned = torch.stack([(part * (part - self.compact)).sum(dim=1) for part in parts], dim=1)
        penalty = -(weighted * turned.to(weighted)).sum(dim=0) / (2 * lam)
        return Rest(squared.to(weighted), penalty, weighted, lam, parts)

    def rest_gradient(self, rest: Rest, weighted: Tensor, lam: Tensor) -> Tensor:
        """|X' diag(imbalance) V_|; where V_ has many columns, from a sketch of it."""
        norms, left = [], rest.imbalance(weighted, lam)
        few = sketch(self.v0) if self.compact is self.outside else None
        for b, part in enumerate(rest.parts or [self.compact] * len(lam)):
            moved = left[:, b, None].to(part) * (part if few is None else part @ few)
            norms.append((moved * (self.gram @ moved)).sum().clamp_min(0).sqrt())
        return torch.stack(norms).to(weighted)

    def weight(self, z: Tensor, rest: Rest | None) -> Tensor:
        """W0 + X' (A Q' + A_)."""
        dual = product(self.back, z[0]) @ self.basis.T
        if rest is not None and rest.parts:
            weighted, lam = rest.weighted[:, 0], float(rest.lam[0])
            whole = self.compact is self.outside
            part = rest.parts[0] if whole else self._outside(self.outside, weighted, lam)
            dual -= weighted[:, None] * part / (2 * lam)
        return torch.addmm(self.w0, self.x.T, dual.to(self.x.dtype))

    def _outside(self, start: Tensor, weighted: Tensor, lam: float) -> Tensor:
        system = self.gram * weighted.to(self.gram)
        system.diagonal().add_(2 * lam)
        with steady(self.base):
            return torch.linalg.solve_ex(system, start * (2 * lam))[0]
