"""The exact reductions: the same problem in far fewer unknowns.

    minimise over W:   sum_i w_i CE( s normalize(x_i W + b) T', y_i )  +  lam |W - W0|^2

Nothing below approximates it.

Left. The gradient with respect to W is X' (something), so W - W0 = X' A at every minimiser.

    (A) rows <= Do   K = X X' = U diag(e) U',  F = U sqrt(e);   W - W0 = X' U diag(e^-1/2) Z
    (B) rows >  Do   X'X = U diag(e) U',       F = X U;         W - W0 = U Z

In both F'F = diag(e), |W - W0| = |Z| and X (W - W0) = F Z. One decomposition serves every lam and every
fold of a cross-validation (a fold gives the rows that it holds out the weight 0).

Right. Let Q be an orthonormal basis of span(T). Logits need v Q and |v|; what v has outside span(T), v_,
enters by its length alone, and dCE_i/dv_ = c_i v_ with one number c_i per row. So the part of W outside
span(T) answers a linear system once the c_i are known,

    (A)  V_ = 2 lam (2 lam I + K diag(w c))^-1 V0_                     [rows, D]
    (B)  Z_ = -(2 lam I + X' diag(w c) X)^-1 X' diag(w c) V0_          [Do, D]

and the iterations run on [r, K] unknowns, between four or five such solves. Where K is nearly D there is
little outside span(T): then Q is [D, D] and that part is empty.

Precision. Neither the order of rows nor the number of threads should be seen in the result. What it takes is
float64 for the decomposition, for the softmax, and for the arrays [n, K] that the iterations add to step by
step. The products with F, which take the time, have it where they are small (in the last fit of lam = "auto",
whose small lam magnifies rounding, where they are not large).

With n K above half a million all is float32, and the minimum too far to reach it to the last digit. There the
result is the same because the way to it is: rows are put into an order of their own, and what would round
differently with another number of threads is kept to one (`arithmetic`; matrix products were not seen to). So
even rounding as coarse as bfloat16's does no harm, and where the processor multiplies it twice as fast, the
first steps use it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.arithmetic import eigh, orthonormal, product, single_thread
from prolip.solvers.by_columns import ByColumns
from prolip.solvers.by_rows import ByRows
from prolip.solvers.objective import TINY
from prolip.solvers.reduced import Reduced

SPLIT = 0.75  # separate span(T) from the rest while K is below this share of D
SMALL = 1 << 26  # multiplications
PRECISE = 1 << 20  # multiplications
MIXED = 1 << 19  # numbers


def reduce(task: Task, restrained: bool = False, precise: int = PRECISE) -> Reduced:
    """The reduction that suits the task's sizes; `restrained`: for a W - W0 within span(T)."""
    rows, y = task.rows()
    x, fixed = task.linear.split(rows)
    w0, y = task.linear.weight.to(x), y.to(x.device)
    v0 = x if task.black_box else x @ w0
    if fixed is not None:
        fixed = fixed.to(x)
        v0 = v0 + fixed
    split = task.classes < (1.0 if restrained else SPLIT) * task.text.rows.shape[1]
    sums, products, solves = precisions(task, x.dtype, precise)
    with single_thread(is_small(task)):
        v0, text = v0.to(solves), task.text.rows.to(x.device, sums)
        basis, curvature = _text_basis(v0, text, task.scale, split)
        if len(x) <= x.shape[1]:
            return ByRows(x, w0, v0, text, basis, curvature, y, split, products)
        return ByColumns(x.to(solves), w0, v0, text, basis, curvature, y, split, products, fixed)


def is_small(task: Task) -> bool:
    """Whether X X' is so little work that a single thread would not be noticed."""
    return (task.views * task.n) ** 2 * task.linear.weight.shape[0] <= SMALL


def is_large(task: Task) -> bool:
    """Whether float64 would take too long."""
    return task.views * task.n * task.classes > MIXED


def precisions(task: Task, given: torch.dtype, precise: int) -> tuple[torch.dtype, torch.dtype, torch.dtype]:
    """Of sums, softmax and decomposition; of products with F; of the solves outside span(T).

    float64 up to MIXED numbers in the first, up to `precise` and 16 PRECISE multiplications in the others.
    """
    rows = task.views * task.n
    square = rows * min(rows, task.linear.weight.shape[0])
    sums = given if is_large(task) else torch.float64
    products = sums if square * task.classes <= precise else given
    return sums, products, sums if square * task.text.rows.shape[1] <= 16 * PRECISE else given


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
    squared = v0.square().sum(dim=1, keepdim=True).to(text)
    if not split:
        mu, q = eigh(softmax_curvature(product(v0, text.T), squared, text, scale))
        return q, mu.clamp_min(0)
    q = orthonormal(text.T)
    inside = text @ q
    mu, rotation = eigh(softmax_curvature(product(v0, q) @ inside.T, squared, inside, scale))
    return q @ rotation, mu.clamp_min(0)
