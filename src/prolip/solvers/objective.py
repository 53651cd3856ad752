"""ProLIP's objective and its gradient, in closed form; every optimizer takes them from here.

For embeddings v_i = x_i W + b, unit text rows t_k and scale s, with z_i = v_i / |v_i|:

    CE_i         = -log softmax(s z_i T')[y_i]
    dCE_i / dv_i = s (p_i - onehot(y_i)) T / |v_i|  +  c_i v_i
    c_i          = -(p_i - onehot(y_i)) . logits_i / |v_i|^2          one number per sample

Two products with T, and no graph to keep. c_i is the slope in half the squared length of v_i: positive where
the sample is classified well and wants to be shorter, so that its cosines grow.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, softmax_loss
from prolip.solvers.reduction import Reduction
from prolip.solvers.threads import parallel_for, split_range

TINY = 1e-30


def cosine_loss(
    products: Array, squared: Array, y: Array, scale: float, weights: Array | float = 1.0
) -> tuple[Array, Array, Array]:
    """Losses from inner products v T' [n, K] (overwritten) and squared lengths |v|^2 [n].

    Returns losses [n]; the gradient by the products, w s (p - onehot(y)) / |v|, [n, K]; and w c [n].
    """
    squared = np.maximum(squared, TINY)
    slope = scale / np.sqrt(squared)
    logits = np.multiply(products, slope[:, None], out=products)
    losses, gradient = softmax_loss(logits, y, slope * weights)
    c = -np.einsum("nk,nk->n", gradient, logits) / (scale * np.sqrt(squared))
    return losses, gradient, c


def value(task: Task, weight: Array, lam: float) -> float:
    """The objective over every view."""
    head, delta = task.linear.with_weight(weight), weight - task.linear.weight
    losses = []
    for view in task.x:
        v = head(view.astype(weight.dtype, copy=False))
        squared = np.einsum("nd,nd->n", v, v)
        losses.append(cosine_loss(v @ task.text.rows.T, squared, task.y, task.scale)[0])
    squares = np.einsum("ij,ij->i", delta, delta)
    return lam * float(squares.sum(dtype=np.float64)) + float(np.mean(losses, dtype=np.float64))


def value_and_gradient(task: Task, weight: Array, lam: float) -> tuple[float, Array]:
    """The objective over every view, and its gradient [Do, D]. One view at a time: memory stays flat."""
    head = task.linear
    text = task.text.rows.astype(weight.dtype, copy=False)
    delta = weight - head.weight.astype(weight.dtype, copy=False)
    gradient = 2 * lam * delta
    value = lam * float(np.sum(np.square(delta), dtype=np.float64))
    count = task.views * task.n
    for view in task.x:
        inputs, fixed = head.split(view.astype(weight.dtype, copy=False))
        v = inputs @ weight
        v = v if fixed is None else v + fixed
        squared = np.einsum("nd,nd->n", v, v)
        losses, residual, c = cosine_loss(v @ text.T, squared, task.y, task.scale)
        value += float(losses.sum(dtype=np.float64)) / count
        slope = residual @ text + c[:, None] * v
        gradient += inputs.T @ (slope / count).astype(weight.dtype, copy=False)
    return value, gradient


class ReducedObjective:
    """The objective on a reduction, as a function of Z Q [r, k].

    `outside` [n] is the |v_|^2 that embeddings have outside span(T); `weights` w [n] are those of the rows,
    1 / n at first; `c` is w c [n] of the last evaluation.
    """

    def __init__(self, reduction: Reduction, lam: float) -> None:
        kind, rows = reduction.factor.dtype, len(reduction.y)
        self.reduction, self.lam = reduction, lam
        self.shape = len(reduction.spectrum), len(reduction.curvature)
        inside = np.einsum("nk,nk->n", reduction.base, reduction.base)
        self.outside = (
            np.maximum(reduction.squared - inside, 0) if reduction.outside is not None else 0 * inside
        )
        self.weights = np.full(rows, 1 / rows, kind)
        self.c, self._losses = np.zeros(rows, kind), np.zeros(rows)
        self._slope = np.empty((rows, self.shape[1]), kind)

    def at(self, lam: float, outside: Array | None = None, weights: Array | None = None) -> ReducedObjective:
        """The same with another lam, and |v_|^2 or weights where given; the two share other arrays."""
        other = copy(self)
        other.lam, other.outside = lam, self.outside if outside is None else outside
        other.weights = self.weights if weights is None else weights.astype(self.weights.dtype)
        return other

    def __call__(self, z: Array) -> tuple[float, Array]:
        """The value at Z Q [r, k], and the gradient in the same shape."""
        reduction, gradient = self.reduction, np.empty_like(z)

        def losses(part: slice) -> None:
            v = reduction.factor[part] @ z  # V Q [m, k]
            v += reduction.base[part]
            squared = np.einsum("nk,nk->n", v, v) + self.outside[part]
            products, y = v @ reduction.text.T, reduction.y[part]
            self._losses[part], slope, c = cosine_loss(
                products, squared, y, reduction.scale, self.weights[part]
            )
            v *= c[:, None]
            v += slope @ reduction.text
            self.c[part], self._slope[part] = c, v

        def adjoint(part: slice) -> None:
            np.matmul(reduction.factor[:, part].T, self._slope, out=gradient[part])

        parallel_for(losses, split_range(len(reduction.y), reduction.chunks))
        parallel_for(adjoint, split_range(len(gradient), reduction.chunks))
        value = float(np.vdot(self._losses, self.weights)) + self.lam * float(np.vdot(z, z))
        gradient += 2 * self.lam * z
        return value, gradient

    def preconditioner(self) -> Array:
        """A guess of the inverse Hessian's diagonal [r, k].

        The curvature is known at W0 and falls by an order of magnitude on the way, as samples come to be
        classified with confidence; less where classes are as many as dimensions. Of 0.02, 0.05, 0.1 and 0.2
        the second took the fewest evaluations on tasks of 76 to 752 images (0.3 of 0.05 to 1 on 1,000 x 4).
        """
        reduction = self.reduction
        share = (0.3 if reduction.outside is None else 0.05) / len(reduction.y)
        kronecker = share * reduction.spectrum[:, None] * reduction.curvature
        inverse = 1 / (kronecker + max(2 * self.lam, 1e-6 * float(kronecker.max())))
        return inverse.astype(reduction.factor.dtype)
