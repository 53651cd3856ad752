"""The exact reductions: the same problem in far fewer unknowns.

    minimise over W:   sum_i w_i CE( s normalize(x_i W + b) T', y_i )  +  lam |W - W0|^2

Nothing below approximates it.

Left. The gradient with respect to W is X' (something), so W - W0 = X' A at every minimiser.

    (A) rows <= Do   K = X X' = U diag(e) U',  F = U sqrt(e);   W - W0 = X' U diag(e^-1/2) Z
    (B) rows >  Do   X'X = U diag(e) U',       F = X U;         W - W0 = U Z

In both F'F = diag(e), |W - W0| = |Z| and X (W - W0) = F Z. One decomposition serves every lam and every
fold of a cross-validation (a fold gives the rows that it holds out the weight 0). Up to some 700 rows (some
1,600 in the last fit of lam = "auto") everything runs in float64: it is quick enough, and then neither the
order of rows nor the number of threads can be seen in the result.

Right. Let Q be an orthonormal basis of span(T). Logits need v Q and |v|; what v has outside span(T), v_,
enters by its length alone, and dCE_i/dv_ = c_i v_ with one number c_i per row. So the part of W outside
span(T) answers a linear system once the c_i are known,

    (A)  V_ = 2 lam (2 lam I + K diag(w c))^-1 V0_                     [rows, D]
    (B)  Z_ = -(2 lam I + X' diag(w c) X)^-1 X' diag(w c) V0_          [Do, D]

and the iterations run on [r, K] unknowns, between two or three such solves. Where K is nearly D there is
little outside span(T): then Q is [D, D] and that part is empty.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.by_columns import ByColumns
from prolip.solvers.by_rows import ByRows
from prolip.solvers.objective import TINY
from prolip.solvers.reduced import Reduced

SPLIT = 0.75  # separate span(T) from the rest while K is below this share of D
SMALL = 1 << 26  # multiplications
PRECISE = 1 << 31  # a second
COLUMNS = 64


def reduce(task: Task, restrained: bool = False, precise: int = PRECISE) -> Reduced:
    """The reduction that suits the task's sizes; `restrained`: for a W - W0 within span(T)."""
    rows, y = task.rows()
    x, fixed = task.linear.split(rows)
    split = task.classes < (1.0 if restrained else SPLIT) * task.text.rows.shape[1]
    w0, wide = task.linear.weight.to(x), x.double() if is_precise(task, precise) else x
    text = task.text.rows.to(wide)
    v0 = wide if task.black_box else _product(wide, w0)
    if fixed is not None:
        fixed = fixed.to(x)
        v0 = v0 + fixed
    basis, curvature = _text_basis(v0, text, task.scale, split)
    if len(x) <= x.shape[1]:
        return ByRows(x, w0, v0, text, basis, curvature, y.to(x.device), split)
    return ByColumns(wide, w0, v0, text, basis, curvature, y.to(x.device), split, fixed)


def _product(x: Tensor, w0: Tensor) -> Tensor:
    """X W0 in the precision of X; a wider copy of W0 as a whole would cost more than the product."""
    if x.dtype == w0.dtype:
        return x @ w0
    return torch.cat([x @ part.to(x) for part in w0.split(COLUMNS, dim=1)], dim=1)


def is_small(task: Task) -> bool:
    """Whether X X' is so little work that a single thread would not be noticed."""
    return (task.views * task.n) ** 2 * task.linear.weight.shape[0] <= SMALL


def is_precise(task: Task, limit: int) -> bool:
    """Whether to run in float64: while a decomposition and thirty evaluations are no more work than this."""
    rows, width = task.views * task.n, task.linear.weight.shape[0]
    return rows * min(rows, width) * (width + 30 * task.classes) <= limit


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
