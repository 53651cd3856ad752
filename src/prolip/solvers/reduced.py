"""What a reduced problem offers to the optimizer. `reduce` tells the algebra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from prolip.solvers.arithmetic import product

SKETCH = 64  # columns


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

    x: Tensor  # inputs [n, Do]
    base: Tensor  # V0 Q [n, k]
    text: Tensor  # T Q [K, k]
    basis: Tensor  # Q [D, k]
    curvature: Tensor  # mu [k], of the softmax at W0, in the basis
    spectrum: Tensor  # e [r]
    y: Tensor  # [n]

    def forward(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """F Z for each problem, [n, B, k]; `out`: memory for it."""

    def adjoint(self, slope: Tensor) -> Tensor:
        """F' G for each problem, [B, r, k], of G [n, B, k]."""

    def squared_adjoint(self, slope: Tensor) -> Tensor:
        """(F * F)' G for each problem, [B, r, k], of G [n, B, k]."""

    def rounded(self) -> Reduced:
        """The same problem with its large products in bfloat16."""

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


def initial_rest(v0_squared: Tensor, base: Tensor, problems: int) -> Rest:
    """The rest at W0."""
    squared = (v0_squared.to(base) - base.square().sum(dim=1)).clamp_min(0)[:, None].expand(-1, problems)
    zero = base.new_zeros
    return Rest(squared, zero(problems), zero(len(base), problems), base.new_ones(problems), [])


def pull(a: Tensor, slope: Tensor) -> Tensor:
    """A' G for each problem, [B, r, k], of A [n, r] and G [n, B, k]."""
    n, problems, k = slope.shape
    return product(a.T, slope.reshape(n, -1)).view(-1, problems, k).transpose(0, 1).contiguous()


def sketch(a: Tensor) -> Tensor | None:
    """S [D, few] with |A S| close to |A|, whatever A [.., D] is: random signs, always the same.

    A norm that only tells when to stop need not be exact. None where D is small enough without.
    """
    if a.shape[1] <= 2 * SKETCH:
        return None
    g = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (a.shape[1], SKETCH), generator=g).to(a)
    return signs.mul_(2).sub_(1).div_(SKETCH**0.5)
