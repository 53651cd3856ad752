"""The learning curve: accuracy against images per class, and a forecast for more of them.

The curve ends in the held-out accuracy of the fit itself. The points before it are measured in the same way,
with fewer images: for each fold of the support set, the method is fitted on s images of each class from the
rest of the fold, and evaluated on the fold. The error is then modelled as

    e(s) = a + b s^-c,      0 <= a,  b >= 0,  0.1 <= c <= 2

the usual form of learning curves. A few noisy points do not determine three numbers, so none is picked: every
(a, c) of a grid is weighted by the likelihood of the points, b by its own likelihood. The forecast adds the
mean gain of this law to the held-out accuracy, with an interval that holds 90 % of the weight. The spread of
a point includes the number of images behind it (binomial) and the variance between fits.

On average more images do not make a fit worse. Points are shown as they were measured; the line through them
is their trend, the nearest values that do not fall.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip.core import Fitted, HeldOutPredictions, Task, UsageError
from prolip.core.arrays import Array
from prolip.core.tabular import Tabular
from prolip.evaluate import metrics
from prolip.methods import from_settings
from prolip.methods.selection import fold_parts

REPEATS = 10  # fits for each number of images
MORE = (1.25, 1.5, 2.0, 4.0)  # forecasts, in multiples of the images per class
MIN_SHOTS = 3


@dataclass(frozen=True)
class CurvePoint:
    """Measured accuracy with `shots` images per class; `spread` is its standard error."""

    shots: int
    accuracy: float
    spread: float


@dataclass(frozen=True)
class Forecast:
    """Expected accuracy with `shots` images per class, and its 90 % interval."""

    shots: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve(Tabular):
    """A learning curve of the support set, and its forecasts."""

    points: list[CurvePoint]  # the last one is `now`
    now: Forecast  # the held-out accuracy of the fit
    forecasts: list[Forecast]

    def __repr__(self) -> str:
        ahead = "".join(f", {f.accuracy:.3f} with {f.shots}" for f in self.forecasts)
        return f"Curve(accuracy {self.now.accuracy:.3f} with {self.now.shots} images per class{ahead})"

    @property
    def trend(self) -> list[float]:
        """The values nearest to the points that do not fall; the last one is the held-out accuracy."""
        from scipy.optimize import isotonic_regression

        weights = [1 / max(point.spread, 1e-3) ** 2 for point in self.points[:-1]]
        accuracies = [point.accuracy for point in self.points]
        fitted: list[float] = isotonic_regression(accuracies, weights=[*weights, 1e9]).x.tolist()
        return fitted

    def rows(self) -> list[dict[str, Any]]:
        """Return measured points and forecasts, with 90 % intervals."""
        measured = []
        for point in self.points[:-1]:
            low, high = (min(1.0, max(0.0, point.accuracy + z * point.spread)) for z in (-1.645, 1.645))
            measured.append(Forecast(point.shots, point.accuracy, low, high))
        kinds = ["measured"] * len(self.points) + ["forecast"] * len(self.forecasts)
        parts = [*measured, self.now, *self.forecasts]
        return [{"kind": kind, **vars(part)} for kind, part in zip(kinds, parts, strict=True)]

    def report(self) -> dict[str, Any]:
        """Return the curve as JSON; `gain` is relative to `now`."""
        return {
            "points": [
                {**vars(point), "trend": value} for point, value in zip(self.points, self.trend, strict=True)
            ],
            "now": vars(self.now),
            "forecasts": [{**vars(f), "gain": f.accuracy - self.now.accuracy} for f in self.forecasts],
        }


def learning_curve(
    fitted: Fitted,
    task: Task,
    held_out: HeldOutPredictions,
    *,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Curve:
    """Measure the accuracy with fewer images, and extrapolate.

    `fitted` is the model of the whole support set, whose settings are used, with lam in proportion to one
    over the images; `held_out` are its predictions for held-out images, by the folds of `seed`.
    """
    smallest = int(np.unique(task.y, return_counts=True)[1].min())
    if smallest < MIN_SHOTS:
        raise UsageError(
            f"a learning curve needs at least {MIN_SHOTS} images of each class, the smallest has {smallest}: "
            "label a few more"
        )
    folds = fold_parts(task, seed)
    left = min(int(np.unique(task.y[rest], return_counts=True)[1].min()) for rest, _ in folds)
    sizes = [s for s in (1, 2, 4, 8, 16, 32, 64, 128) if s < left]
    settled = from_settings(fitted.settings)
    points: list[CurvePoint] = []
    for step, shots in enumerate(sizes):
        values = []
        for repeat in range(repeats):
            rest, own = folds[repeat % len(folds)]
            chosen = _draw(task.y, rest, shots, random.Random(f"{seed} {shots} {repeat}"))
            part, method = task.subset(chosen), settled
            if isinstance(lam := getattr(settled, "lam", None), float):
                method = replace(settled, lam=lam * task.n / part.n)  # type: ignore[type-var]
            values.append(metrics.accuracy(method.fit(part).logits(task.x[0, own]), task.y[own]))
            if progress is not None:
                progress(step * repeats + repeat + 1, len(sizes) * repeats)
        points.append(_point(shots, values, min(task.n, repeats * len(own))))
    accuracy = metrics.accuracy(held_out.logits, held_out.y)
    points.append(_point(round(task.shots), [accuracy], len(held_out)))
    now, forecasts = _forecasts(points, len(held_out))
    return Curve(points, now, forecasts)


def _forecasts(points: Sequence[CurvePoint], images: int) -> tuple[Forecast, list[Forecast]]:
    """Return the last point with its interval, and forecasts that start from it."""
    last = points[-1]
    low, high = metrics.wilson(last.accuracy * images, images, z=1.645)
    now = Forecast(last.shots, last.accuracy, low, high)
    shots = [last.shots, *(max(last.shots + 1, round(factor * last.shots)) for factor in MORE)]
    law, *ahead = extrapolate(points, shots)
    shift = last.accuracy - law.accuracy
    return now, [
        Forecast(
            each.shots, *(min(1.0, max(0.0, value + shift)) for value in (each.accuracy, each.low, each.high))
        )
        for each in ahead
    ]


def extrapolate(points: Sequence[CurvePoint], shots: Sequence[int]) -> list[Forecast]:
    """Estimate the accuracy with other numbers of images per class.

    Examples
    --------
    >>> points = [CurvePoint(s, 1 - (0.1 + 0.4 * s**-0.5), 0.001) for s in (1, 2, 4, 8)]
    >>> forecast, = extrapolate(points, [16])
    >>> abs(forecast.accuracy - 0.8) < 0.01 and forecast.low < 0.8 < forecast.high
    True
    """
    s = np.array([point.shots for point in points], dtype=float)
    error = np.array([1 - point.accuracy for point in points])
    weight = np.array([1 / max(point.spread, 1e-3) ** 2 for point in points])
    floor, power = np.meshgrid(np.linspace(0, error.min(), 41), np.linspace(0.1, 2.0, 39), indexing="ij")
    shape = s ** -power[..., None]  # [a, c, points]
    residual = error - floor[..., None]
    scale = ((weight * shape * residual).sum(-1) / (weight * shape**2).sum(-1)).clip(min=0)
    cost = 0.5 * (weight * (residual - scale[..., None] * shape) ** 2).sum(-1)
    chance = np.exp(cost.min() - cost)
    chance /= chance.sum()
    # The uncertainty of b, given a and c: seven points of a normal distribution.
    deviation = (weight * shape**2).sum(-1) ** -0.5
    steps = np.linspace(-2, 2, 7)
    share = np.exp(-0.5 * steps**2) / np.exp(-0.5 * steps**2).sum()
    found = []
    for count in shots:
        b = (scale[..., None] + steps * deviation[..., None]).clip(min=0)
        accuracy = 1 - (floor[..., None] + b * (count**-power)[..., None])
        mass = chance[..., None] * share
        order = np.argsort(accuracy, axis=None)
        values, total = accuracy.ravel()[order], np.cumsum(mass.ravel()[order])
        low, high = values[np.searchsorted(total, [0.05, 0.95]).clip(max=len(values) - 1)].clip(0, 1)
        mean = float((accuracy.clip(0, 1) * mass).sum())
        found.append(Forecast(int(count), mean, float(low), float(high)))
    return found


def _draw(y: Array, images: Array, shots: int, rng: random.Random) -> Array:
    chosen: list[int] = []
    for label in np.unique(y[images]):
        chosen += rng.sample(images[y[images] == label].tolist(), shots)
    return np.array(sorted(chosen))


def _point(shots: int, values: list[float], images: int) -> CurvePoint:
    """Return the mean of several fits, which are evaluated on this many different images."""
    mean = sum(values) / len(values)
    between = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    smoothed = (mean * images + 1) / (images + 2)
    return CurvePoint(shots, mean, float(np.sqrt(between + smoothed * (1 - smoothed) / images)))
