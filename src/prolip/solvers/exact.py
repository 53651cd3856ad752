"""The exact minimum of ProLIP's objective.

`reduction` rewrites the problem without approximation, `minimise` is L-BFGS. Steps inside span(T) and
the solve for its orthogonal complement alternate, each to a finer tolerance than the one before.

What embeddings have outside span(T), V_ [n, D], changes logits by its length alone, and dCE_i / dv_i_ = c_i
v_i_ with one number c_i per row. So at a minimum the part of W outside span(T) solves a linear system: with
C = diag(w c) and F of the reduction, W_ - W0_ = B Z_ and

    (2 lam I + F' C F) Z_ = -F' C V0_         V_ = V0_ + F Z_        [r, D]

by the push-through identity the same as V_ = 2 lam (2 lam I + F F' C)^-1 V0_, Z_ = -F' C V_ / 2 lam, which
costs less where there are no more rows than features. Steps inside span(T) and this solve take turns; as the
two meet only in the lengths of the embeddings, every turn divides the error by ten or more.

Not every problem has a minimum to go to. Where lam is small for the encoder, and an image far from its text,
the cheapest way to please it is an embedding that shrinks to nothing and leaves in the right direction: the
objective falls for ever, its slope grows, and what is left to say is when to stop. (With `offline` this
happens from lam = 1/N down; `anchored` is convex.)
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array
from prolip.solvers.folds import canonical_order
from prolip.solvers.minimise import MEMORY, History, Minimum, minimise
from prolip.solvers.objective import ReducedObjective, value
from prolip.solvers.reduction import Reduction, reduce
from prolip.solvers.solution import Solution
from prolip.solvers.threads import parallel_matmul, single_thread

# Tolerances of the turns; then the last again until it gains nothing. On tasks of 19 to 752 images two to
# four solves end within 1e-6 of the minimum; finer first turns take a third more evaluations for nothing.
TURNS = (1e-2, 1e-4, 1e-6, 1e-7, 1e-8)
COARSE = 3e-5  # of a problem so large that float32 has no finer differences to show
REMAINING = 1e-6  # share of the objective that may be left when the turns end
COARSE_REMAINING = 3e-4  # the same in float32: of 12 turns the last six gained a ten-thousandth together
FINE = 1e-9  # the same for float64 features, which are for comparisons with other programs
MAX_TURNS, MAX_EVALUATIONS = 40, 300  # with `offline` and few images some thirty turns are needed


@dataclass(frozen=True, eq=False)
class Complement:
    """A solution outside span(T)."""

    squared: Array  # |v_|^2 [n]
    penalty: float  # |W_ - W0_|^2
    step: Array  # for `Reduction.weight`: -C V_ / 2 lam [n, D], with W_ - W0_ = X' step, or Z_ [r, D]


def exact(task: Task, lam: float) -> Solution:
    """Minimise the objective over W [Do, D], with the weight lam of |W - W0|^2.

    Examples
    --------
    >>> task = Task(np.eye(4), [0, 0, 1, 1], np.eye(4)[:2] + 0.5)
    >>> solution = exact(task, 0.1)
    >>> solution.converged, solution.objective < solution.start_objective
    (True, True)
    """
    return path(task, [lam])[0]


def path(task: Task, lams: Sequence[float]) -> list[Solution]:
    """Solutions for several lam, with one decomposition and warm starts: large to small is the quick order.

    Every view counts as rows of its own. Objectives are those of the weights that are returned, in their
    precision: where embeddings shrink to nothing, float32 may lose the direction that the solver found. The
    solution is the pretrained matrix where no lower one can be written down.
    """
    solutions = []
    if min(lams) == 0:
        warnings.warn(
            "lam = 0 has no penalty: the fit memorises the support set and forgets the pretrained model; "
            "use a small positive number",
            stacklevel=3,
        )
    with single_thread():
        reduction = reduce(task.subset(canonical_order(task)))
        objective = ReducedObjective(reduction, lams[0])
        z = np.zeros(objective.shape, reduction.factor.dtype)
        start_value, _ = objective(z)
        for lam in lams:
            minimum, complement = alternate(objective.at(lam), z)
            z = minimum.x
            weight = reduction.weight(z, None if complement is None else complement.step)
            reached = value(task, weight, lam)
            converged = minimum.converged and math.isclose(reached, minimum.value, rel_tol=1e-3, abs_tol=1e-6)
            if not reached <= start_value:
                weight, reached, converged = reduction.start, start_value, False
            figures = reached, start_value, minimum.evaluations, "exact", converged
            solutions.append(Solution(weight, lam, *figures))
    return solutions


def fit_parts(task: Task, lam: float, parts: Sequence[Array]) -> Iterator[Array]:
    """Yield the W of each part of the images, given by their indices.

    One decomposition serves all of them, as images that are left out have the weight 0; and each starts where
    the one before ended, near which it is.
    """
    with single_thread():
        order = canonical_order(task)
        place = order.argsort()
        reduction = reduce(task.subset(order))
        whole = ReducedObjective(reduction, lam)
        z, complement = np.zeros(whole.shape, reduction.factor.dtype), None
        for part in parts:
            weights = np.zeros(task.n)
            weights[place[part]] = 1 / (task.views * len(part))
            objective = whole.at(lam, weights=np.tile(weights, task.views))
            minimum, complement = alternate(objective, z, complement)
            z = minimum.x
            yield reduction.weight(z, None if complement is None else complement.step)


def alternate(
    objective: ReducedObjective, z: Array, start: Complement | None = None
) -> tuple[Minimum, Complement | None]:
    """Minimise inside span(T) and outside it in turns; converged where what is left to gain is small.

    `start` is the complement of a problem that is nearly the same, with the solution z.
    """
    reduction, lam = objective.reduction, objective.lam
    coarse, scale = reduction.factor.dtype == np.float32, objective.preconditioner()
    remaining = FINE if reduction.inputs.dtype == np.float64 else COARSE_REMAINING if coarse else REMAINING
    if reduction.outside is None or lam == 0:
        tol = COARSE if coarse else TURNS[-1]
        return minimise(objective, z, tol=tol, evaluations=MAX_EVALUATIONS, scale=scale), None
    complement, upcoming, history = None, start, History(maxlen=MEMORY)
    penalty, value, gain, converged, evaluations = 0.0, np.inf, np.inf, False, 0
    if start is not None:
        objective, penalty = objective.at(lam, start.squared), lam * start.penalty
    for turn in range(MAX_TURNS):
        tol = max(TURNS[min(turn, len(TURNS) - 1)], COARSE if coarse else 0.0)
        found = minimise(objective, z, tol=tol, evaluations=MAX_EVALUATIONS, scale=scale, history=history)
        reached, evaluations = found.value + penalty, evaluations + found.evaluations
        if not reached < value:  # the last solve led upwards: there is no minimum near, or rounding is all
            converged = converged or reached < 1e-30
            break
        z, complement, before, gain, value = found.x, upcoming, gain, value - reached, reached
        # The gains of the turns fall like a geometric series.
        converged = found.converged and gain * gain <= remaining * value * max(before - gain, 0.0)
        if converged and turn >= 2:
            break
        upcoming = solve_complement(reduction, objective.c, lam)
        objective, penalty = objective.at(lam, upcoming.squared), lam * upcoming.penalty
    return Minimum(z, value, evaluations, converged), complement


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
    inverse: Array = getri(lu, pivots, lwork=64 * len(a), overwrite_lu=True)[0].T
    return inverse
