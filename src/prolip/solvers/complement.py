"""The part of W in the orthogonal complement of span(T), in closed form.

What embeddings have outside span(T), V_ [n, D], changes logits by its length alone, and dCE_i / dv_i_ = c_i
v_i_ with one number c_i per row. So at a minimum the part of W outside span(T) solves a linear system: with
C = diag(w c) and F of the reduction, W_ - W0_ = B Z_ and

    (2 lam I + F' C F) Z_ = -F' C V0_         V_ = V0_ + F Z_        [r, D]

by the push-through identity the same as V_ = 2 lam (2 lam I + F F' C)^-1 V0_, Z_ = -F' C V_ / 2 lam, which
costs less where there are no more rows than features. Steps inside span(T) and this solve take turns; as the
two meet only in the lengths of the embeddings, every turn divides the error by ten or more.
"""

from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array
from prolip.solvers.reduction import Reduction
from prolip.solvers.threads import parallel_matmul


@dataclass(frozen=True, eq=False)
class Complement:
    """A solution outside span(T)."""

    squared: Array  # |v_|^2 [n]
    penalty: float  # |W_ - W0_|^2
    step: Array  # for `Reduction.weight`: -C V_ / 2 lam [n, D], with W_ - W0_ = X' step, or Z_ [r, D]


def solve_complement(reduction: Reduction, c: Array, lam: float) -> Complement:
    """The complement that belongs to w c [n]."""
    f, v0 = reduction.factor, reduction.outside
    assert v0 is not None
    c = c.astype(f.dtype)[:, None]
    if reduction.by_rows:
        system = reduction.gram * c.T
        np.fill_diagonal(system, system.diagonal() + 2 * lam)
        v = parallel_matmul(_inverse(system), (2 * lam) * v0)
        step = v * (c / (-2 * lam))
        penalty = float(np.vdot(step, v - v0))
    else:
        weighted = f * c
        system = parallel_matmul(f.T, weighted)
        np.fill_diagonal(system, system.diagonal() + 2 * lam)
        step = parallel_matmul(_inverse(system), parallel_matmul(-weighted.T, v0))
        v = v0 + parallel_matmul(f, step)
        penalty = float(np.vdot(step, step))
    return Complement(np.einsum("nd,nd->n", v, v), penalty, step)


def _inverse(a: Array) -> Array:
    """The inverse of a matrix, which is overwritten: the product that follows is shared among threads.

    By LAPACK's own routines; NumPy's `inv` takes three times as long, `solve` twice.
    """
    from scipy.linalg import get_lapack_funcs

    getrf, getri = get_lapack_funcs(("getrf", "getri"), (a,))
    lu, pivots, _ = getrf(a.T, overwrite_a=True)  # LAPACK reads columns: a transposed view needs no copy
    return getri(lu, pivots, lwork=64 * len(a), overwrite_lu=True)[0].T
