"""The exact reduction: the same problem in far fewer unknowns.

    minimise over W [Do, D]:   sum_i w_i CE( s normalize(x_i W + b) T', y_i )  +  lam |W - W0|^2

Nothing below approximates it.

Left. The gradient with respect to W is X' (something), so W - W0 = X' A at every minimiser.

    (A) rows <= Do   X X' = U diag(e) U',  F = U sqrt(e),  B = X' U / sqrt(e)
    (B) rows >  Do   X' X = U diag(e) U',  F = X U,        B = U

In both W - W0 = B Z, B has orthonormal columns, F'F = diag(e), and X (W - W0) = F Z. One decomposition serves
every lam.

Right. Let Q be an orthonormal basis of span(T). Logits need v Q and |v|; what v has in the orthogonal
complement of span(T) enters by its length alone (`exact`). So the unknowns are Z Q, [r, K]. Where K is
nearly D there is little to gain: then Q is a basis of everything and the complement is empty.

Q is turned so that the softmax curvature at W0, mean_i (s / |v_i|)^2 T' (diag p_i - p_i p_i') T, is diag(mu)
in it. With e that gives the preconditioner: the Hessian is close to the Kronecker product diag(e_i mu_j + 2
lam).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, softmax
from prolip.solvers.threads import parallel_matmul, precision_and_chunks

SPLIT = 0.75  # separate span(T) from its complement while K is below this share of D


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduced problem; n rows (images times views), rank r, k columns."""

    inputs: Array  # X [n, Do]
    start: Array  # W0 [Do, D]
    y: Array  # [n]
    scale: float
    factor: Array  # F [n, r]
    back: Array  # U / sqrt(e) [n, r] in case (A), U [Do, r] in case (B)
    spectrum: Array  # e [r]
    basis: Array  # Q [D, k]
    curvature: Array  # mu [k]
    text: Array  # T Q [K, k]
    base: Array  # V0 Q [n, k], of V0 = X W0 + b
    outside: Array | None  # V0 - V0 Q Q' [n, D]; None where the complement is empty
    squared: Array  # |V0|^2 [n]
    chunks: int  # that rows are split into, for threads

    @property
    def by_rows(self) -> bool:
        """Whether this is case (A): no more rows than columns."""
        return bool(len(self.inputs) <= self.inputs.shape[1])

    @cached_property
    def gram(self) -> Array:
        """Inner products of the rows, X X' = F F' [n, n]."""
        return parallel_matmul(self.factor, self.factor.T)

    def weight(self, z: Array, outside: Array | None = None) -> Array:
        """W [Do, D] of Z Q [r, k], and of the step of a `Complement`."""
        step = parallel_matmul(self.back @ z if self.by_rows else z, self.basis.T)
        if outside is not None:
            step += outside
        left = self.inputs.T if self.by_rows else self.back
        weight: Array = self.start + parallel_matmul(left, step.astype(left.dtype, copy=False))
        return weight


def reduce(task: Task) -> Reduction:
    """Reduce a task; every view is rows of its own."""
    rows, y = task.rows()
    x, fixed = task.linear.split(rows)
    x = np.ascontiguousarray(x)
    w0 = task.linear.weight.astype(x.dtype, copy=False)
    classes, dim = task.text.rows.shape
    split = classes < SPLIT * dim
    kind, chunks = precision_and_chunks(len(x), min(x.shape), classes if split else dim, x.dtype)
    v0 = (x if task.black_box else parallel_matmul(x, w0)).astype(kind, copy=False)
    if fixed is not None:
        v0 = v0 + fixed.astype(kind, copy=False)
    text = task.text.rows.astype(kind)
    squared = np.einsum("nd,nd->n", v0, v0)
    basis, curvature = _text_basis(v0, squared, text, task.scale, split)
    base = v0 @ basis
    outside = v0 - parallel_matmul(base, basis.T) if split else None
    factor, back, spectrum = factorise(x.astype(kind, copy=False))
    return Reduction(
        x, w0, y, task.scale, factor, back, spectrum, basis, curvature, text @ basis, base, outside, squared,
        chunks,
    )  # fmt: skip


def factorise(x: Array) -> tuple[Array, Array, Array]:
    """F, U / sqrt(e) or U, and e."""
    if len(x) <= x.shape[1]:
        e, u = _eigh(parallel_matmul(x, x.T))
        keep = e > e[-1] * 8 * np.finfo(x.dtype).eps
        e, u = e[keep], u[:, keep]
        root = np.sqrt(e)
        return u * root, u / root, e
    e, u = _eigh(parallel_matmul(x.T, x))
    return parallel_matmul(x, u), u, np.maximum(e, 0)


def _eigh(a: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a symmetric matrix, which is overwritten."""
    from scipy.linalg import eigh

    # SciPy 1.13 calls the driver "evd" with too little memory for a matrix of 1 x 1.
    e, u = eigh(a, driver="evd" if len(a) > 1 else "ev", overwrite_a=True, check_finite=False)
    return e, u


def _text_basis(v0: Array, squared: Array, text: Array, scale: float, split: bool) -> tuple[Array, Array]:
    """The basis Q [D, k] of span(T) (or of everything), and the curvature mu [k] in it."""
    q = np.linalg.qr(text.T)[0] if split else None
    inside, v = (text, v0) if q is None else (text @ q, v0 @ q)
    factor = scale / np.sqrt(np.maximum(squared, np.finfo(squared.dtype).tiny))[:, None]
    p = softmax((v @ inside.T) * factor) * factor
    middle = np.diag((p * factor).mean(axis=0)) - p.T @ p / len(p)
    mu, rotation = _eigh(inside.T @ middle @ inside)
    return rotation if q is None else q @ rotation, np.maximum(mu, 0)
