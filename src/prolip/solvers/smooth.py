"""Minimise a smooth function: L-BFGS with a strong Wolfe line search.

For the methods whose objective is not ProLIP's own. The function gives its value and gradient; unknowns are
a tensor of any shape. There is no step size: the line search looks for t along the direction d with

    f(x + t d) <= f(x) + 1e-4 t f'        enough is gained
    |f'(x + t d)| <= 0.9 |f'|             and most of the slope is used up

where f' is the slope along d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.solvers.lbfgs import History

ValueAndGradient = Callable[[Tensor], tuple[float, Tensor]]

GAIN, SLOPE = 1e-4, 0.9


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a minimisation ended.

    Attributes
    ----------
    x
        The unknowns.
    value
        The function there.
    gradient
        The gradient's norm there, relative to its norm at the start.
    evaluations
        How often the function was computed.
    converged
        Whether the gradient fell below the tolerance, or nothing more can be gained in this precision.
    """

    x: Tensor
    value: float
    gradient: float
    evaluations: int
    converged: bool


def minimise(
    function: ValueAndGradient,
    start: Tensor,
    *,
    tol: float = 1e-4,
    evaluations: int = 500,
    memory: int = 10,
    preconditioner: Tensor | None = None,
    modulus: float | None = None,
) -> Minimum:
    """Go to a minimum of `function`, from `start`.

    Parameters
    ----------
    function
        Value and gradient at a point; the gradient has the point's shape.
    start
        Where to begin.
    tol
        Stop when the gradient's norm has shrunk to this fraction of its norm at the start.
    evaluations
        Stop after this many.
    memory
        Steps that the curvature is estimated from.
    preconditioner
        A guess of the inverse Hessian's diagonal, in the shape of `start`.
    modulus
        Where the function is known to be convex with curvature of at least m: then no minimum lies more
        than |gradient|^2 / 2m below, and `tol` is that gap, relative to the value (the gradient must have
        shrunk to sqrt(tol) as well). A gradient alone says little where a penalty is faint.

    Examples
    --------
    >>> import torch
    >>> found = minimise(lambda x: (float((x - 1).square().sum()), 2 * (x - 1)), torch.zeros(3))
    >>> found.x.tolist()
    [1.0, 1.0, 1.0]
    """
    shape, x = start.shape, start.reshape(-1)
    flat = torch.ones_like(x) if preconditioner is None else preconditioner.reshape(-1).to(x)

    def at(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = function(point.view(shape))
        return float(value), gradient.reshape(-1)

    value, gradient = at(x)
    count, first = 1, float(gradient.norm())
    noise = 4 * torch.finfo(x.dtype).eps
    history = History(memory, x[None])
    inverse, fit = flat[None], flat.new_ones(1)
    if preconditioner is None and first > 0:
        fit = fit / first

    def done(norm: float) -> bool:
        if modulus is None:
            return norm <= tol * first
        return norm <= math.sqrt(tol) * first and norm**2 <= 2 * modulus * tol * abs(value)

    while not done(norm := float(gradient.norm())) and count < evaluations:
        direction = history.direction(gradient[None], inverse, fit)[0]
        slope = float(direction @ gradient)
        if not slope < 0:
            break
        step = _search(at, x, direction, value, slope, noise * max(1.0, abs(value)))
        count += step.evaluations
        if step.gradient is None:  # no step gains anything that this precision can see
            return Minimum(x.view(shape), value, norm / first, count, True)
        # The newest pair sets the length of the next step.
        fit = history.add((x[None], step.x[None]), (gradient[None], step.gradient[None]), inverse)
        x, value, gradient = step.x, step.value, step.gradient
    norm = float(gradient.norm())
    return Minimum(x.view(shape), value, norm / first if first > 0 else 0.0, count, done(norm))


def autograd(function: Callable[..., Tensor], shapes: Sequence[torch.Size]) -> ValueAndGradient:
    """Value and gradient of a function of several tensors, as one of their concatenation."""

    def value_and_gradient(flat: Tensor) -> tuple[float, Tensor]:
        point = flat.detach().requires_grad_(True)
        with torch.enable_grad():
            value = function(*split(point, shapes))
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient

    return value_and_gradient


def join(tensors: Sequence[Tensor]) -> Tensor:
    """Several tensors as one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def split(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The inverse of `join`."""
    parts = flat.split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(frozen=True, eq=False)
class _Step:
    x: Tensor
    value: float
    gradient: Tensor | None
    evaluations: int


def _search(
    at: Callable[[Tensor], tuple[float, Tensor]],
    x: Tensor,
    direction: Tensor,
    value: float,
    slope: float,
    noise: float,
    limit: int = 20,
) -> _Step:
    """A step that satisfies the Wolfe conditions: widen until it is bracketed, then narrow by cubics."""
    low, high = (0.0, value, slope), None
    best = _Step(x, value, None, limit)
    t = 1.0
    for count in range(1, limit + 1):
        point = x + t * direction
        new, gradient = at(point)
        rise = float(gradient @ direction) if math.isfinite(new) else math.nan
        enough = new <= value + GAIN * t * slope + noise
        if enough and abs(rise) <= -SLOPE * slope:
            return _Step(point, new, gradient, count)
        if enough and new < best.value:
            best = _Step(point, new, gradient, limit)
        if enough and rise < 0:
            low = (t, new, rise)
        else:
            high = (t, new, rise)
        t = 2 * t if high is None else _between(low, high)
        if high is not None and abs(high[0] - low[0]) <= 1e-9 * high[0]:
            break
    return _Step(best.x, best.value, best.gradient, count)


def _between(low: tuple[float, float, float], high: tuple[float, float, float]) -> float:
    """The minimum of the cubic through two points with slopes, kept inside the middle of the bracket."""
    (a, fa, da), (b, fb, db) = low, high
    width = b - a
    t = a + 0.5 * width
    if math.isfinite(fb) and math.isfinite(db):
        d1 = da + db - 3 * (fa - fb) / (a - b)
        under = d1 * d1 - da * db
        if under >= 0:
            d2 = math.sqrt(under)
            below = db - da + 2 * d2
            if below != 0:
                t = b - width * (db + d2 - d1) / below
    return min(max(t, a + 0.1 * width), b - 0.1 * width)
