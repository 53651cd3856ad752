"""Minimise a smooth function by L-BFGS: SciPy's, in unknowns that a preconditioner has scaled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.core.arrays import Array

MEMORY = 5  # pairs: 10 or 20 took as many evaluations, and longer
Function = Callable[[Array], tuple[float, Array]]  # value and gradient, which has the point's shape


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a minimisation ended.

    Attributes
    ----------
    x
        The unknowns, float64.
    value
        The function there.
    gradient
        The gradient's norm there, relative to its norm at the start.
    evaluations
        How often the function was computed.
    converged
        Whether it stopped because nothing more was to be gained, not because it ran out of evaluations.
    """

    x: Array
    value: float
    gradient: float
    evaluations: int
    converged: bool


def minimise(
    function: Function,
    start: Array,
    *,
    tol: float = 1e-6,
    evaluations: int = 500,
    scale: Array | None = None,
) -> Minimum:
    """Go to a minimum of `function`, from `start`.

    Parameters
    ----------
    function
        Value and gradient at a point of the shape of `start`.
    tol
        Stop when a step lowers the value by less than this share of it.
    evaluations
        Stop after this many.
    scale
        A guess of the inverse Hessian's diagonal, in the shape of `start`. The unknowns are divided by its
        root, so that the Hessian in them is near the identity.

    Examples
    --------
    >>> minimise(lambda x: (float(np.square(x - 1).sum()), 2 * (x - 1)), np.zeros(3)).x.round(6).tolist()
    [1.0, 1.0, 1.0]
    """
    from scipy.optimize import minimize

    root = np.ones(start.shape) if scale is None else np.sqrt(scale).astype(np.float64)
    first = function(start)
    unit, norm = abs(first[0]), float(np.linalg.norm(first[1]))
    if unit < 1e-30 or norm == 0:
        return Minimum(start.astype(np.float64), first[0], 1.0, 1, True)
    seen, before = [first], 1.0

    def scaled(u: Array) -> tuple[float, Array]:
        value, gradient = seen.pop() if seen else function(u.reshape(start.shape) * root)
        return value / unit, (gradient * root).ravel().astype(np.float64) / unit

    def stop_where_little_is_gained(intermediate_result: Any) -> None:
        nonlocal before
        before, gain = intermediate_result.fun, before - intermediate_result.fun
        if gain <= tol * abs(before):
            raise StopIteration

    found = minimize(
        scaled,
        (start / root).ravel().astype(np.float64),
        jac=True,
        method="L-BFGS-B",
        callback=stop_where_little_is_gained,
        options={"ftol": 0.0, "gtol": 0.0, "maxfun": evaluations, "maxcor": MEMORY},
    )
    slope = float(np.linalg.norm(found.jac * unit / root.ravel()))
    # A line search that finds nothing lower is rounding, if the gradient is small.
    done = found.nfev < evaluations and (found.status != 2 or slope <= 1e-3 * norm)
    x = found.x.reshape(start.shape) * root
    return Minimum(x, float(found.fun) * unit, slope / norm, int(found.nfev), bool(done))
