"""The learning curve: accuracy against images per class, and a forecast for more of them.

The curve ends in the accuracy that the fit reports. The points before it are measured with fewer images: for
each fold of the support set, the method is fitted on s images of each class from the rest of the fold, and
evaluated on the fold. Near-copies are drawn together, and count as one image. Errors fall like a power of the
number of images,

    e(s)  ~  s^-c,        c = LEARNING_POWER +- POWER_DEVIATION before any point is seen (`metrics`)

and the points say which c within that prior is likely, weighted by the number of images behind each
(binomial) and the variance between fits. The forecast is the error of today, made smaller by this law; its
95 % interval is that of today, widened by what is not known of c, and never narrower.

On average more images do not make a fit worse. Points are shown as they were measured; the line through them
is their trend, the nearest values that do not fall.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip.core import Fitted, Task, UsageError
from prolip.core.arrays import Array
from prolip.core.tabular import Tabular
from prolip.evaluate import metrics
from prolip.evaluate.metrics import LEARNING_POWER, POWER_DEVIATION, Figures
from prolip.methods import from_settings
from prolip.methods.selection import fold_parts

REPEATS = 10  # fits for each number of images
MORE = (1.25, 1.5, 2.0, 4.0)  # forecasts, in multiples of the images per class
MIN_SHOTS = 3
MIN_DEVIATION = 0.1  # of c: no set follows the law exactly


@dataclass(frozen=True)
class CurvePoint:
    """Measured accuracy with `shots` images per class; `spread` is its standard error."""

    shots: int
    accuracy: float
    spread: float


@dataclass(frozen=True)
class Forecast:
    """Expected accuracy with `shots` images per class, and its 95 % interval."""

    shots: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve(Tabular):
    """A learning curve of the support set, and its forecasts."""

    points: list[CurvePoint]  # the last one is `now`
    now: Forecast  # the accuracy that the fit reports
    forecasts: list[Forecast]

    def __repr__(self) -> str:
        ahead = "".join(f", {f.accuracy:.3f} with {f.shots}" for f in self.forecasts)
        return f"Curve(accuracy {self.now.accuracy:.3f} with {self.now.shots} images per class{ahead})"

    @property
    def trend(self) -> list[float]:
        """The values nearest to the points that do not fall; the last one is the accuracy of the fit."""
        from scipy.optimize import isotonic_regression

        weights = [1 / max(point.spread, 1e-3) ** 2 for point in self.points[:-1]]
        accuracies = [point.accuracy for point in self.points]
        fitted: list[float] = isotonic_regression(accuracies, weights=[*weights, 1e9]).x.tolist()
        return fitted

    def rows(self) -> list[dict[str, Any]]:
        """Return measured points and forecasts, with 95 % intervals."""
        measured = []
        for point in self.points[:-1]:
            low, high = (min(1.0, max(0.0, point.accuracy + z * point.spread)) for z in (-1.96, 1.96))
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
    figures: Figures,
    *,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Curve:
    """Measure the accuracy with fewer images, and extrapolate.

    `fitted` is the model of the whole support set, whose settings are used, with lam in proportion to one
    over the images; `figures` are those of its held-out images, by the folds of `seed`.
    """
    smallest = min(len(np.unique(task.groups[task.y == k])) for k in np.unique(task.y))
    if smallest < MIN_SHOTS or figures.accuracy is None or figures.accuracy_interval is None:
        raise UsageError(
            f"a learning curve needs at least {MIN_SHOTS} images of each class that are not near-copies, the "
            f"smallest has {smallest}: label a few more"
        )
    folds = fold_parts(task, seed)
    left = min(len(np.unique(task.groups[rest][task.y[rest] == k])) for rest, _ in folds for k in set(task.y))
    sizes = [s for s in (1, 2, 4, 8, 16, 32, 64, 128) if s < left]
    settled = from_settings(fitted.settings)
    points: list[CurvePoint] = []
    for step, shots in enumerate(sizes):
        values = []
        for repeat in range(repeats):
            rest, own = folds[repeat % len(folds)]
            chosen = _draw(task, rest, shots, random.Random(f"{seed} {shots} {repeat}"))
            part, method = task.subset(chosen), settled
            if isinstance(lam := getattr(settled, "lam", None), float):
                method = replace(settled, lam=lam * task.n / part.n)  # type: ignore[type-var]
            logits = method.fit(part).logits(task.x[0, own])
            values.append(metrics.accuracy(logits, task.y[own], task.weights[own]))
            if progress is not None:
                progress(step * repeats + repeat + 1, len(sizes) * repeats)
        points.append(_point(shots, values, task.independent * min(1.0, repeats / len(folds))))
    per_class = round(task.independent / len(np.unique(task.y)))
    now = Forecast(per_class, figures.accuracy, *figures.accuracy_interval)
    points.append(_point(per_class, [figures.accuracy], figures.independent or figures.images))
    more = [max(per_class + 1, round(factor * per_class)) for factor in MORE]
    return Curve(points, now, extrapolate(points, now, more))


def extrapolate(points: Sequence[CurvePoint], now: Forecast, shots: Sequence[int]) -> list[Forecast]:
    """Estimate the accuracy with more images per class than `now`.

    Examples
    --------
    >>> points = [CurvePoint(s, 1 - 0.4 * s**-0.5, 0.001) for s in (1, 2, 4, 8)]
    >>> forecast, = extrapolate(points, Forecast(8, points[-1].accuracy, 0.85, 0.87), [32])
    >>> abs(forecast.accuracy - (1 - 0.4 * 32**-0.5)) < 0.01
    True
    """
    power, deviation = _power(points)
    error, width = 1 - now.accuracy, now.high - now.low
    forecasts = []
    for count in shots:
        steps = math.log(count / now.shots)
        left = error * math.exp(-power * steps)
        spread = 1.96 * deviation * steps * left
        high = min(1.0, 1 - left + math.hypot(now.high - now.accuracy, spread))
        low = min(1 - left - math.hypot(now.accuracy - now.low, spread), high - width)
        forecasts.append(Forecast(count, 1 - left, max(0.0, low), high))
    return forecasts


def _power(points: Sequence[CurvePoint]) -> tuple[float, float]:
    """Return c of the law, and its standard deviation: a weighted line through logarithms, with the prior."""
    error = np.array([max(1 - point.accuracy, point.spread, 1e-3) for point in points])
    weights = np.square(error / np.array([max(point.spread, 1e-3) for point in points]))
    x, y = np.log([point.shots for point in points]), np.log(error)
    x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
    precision = weights @ x**2 + POWER_DEVIATION**-2
    power = (LEARNING_POWER * POWER_DEVIATION**-2 - weights @ (x * y)) / precision
    return max(0.0, float(power)), max(MIN_DEVIATION, float(precision**-0.5))


def _draw(task: Task, images: Array, shots: int, rng: random.Random) -> Array:
    """Draw this many groups of each class, with all their images."""
    chosen: list[Array] = []
    for label in np.unique(task.y[images]):
        own = images[task.y[images] == label]
        groups = rng.sample(np.unique(task.groups[own]).tolist(), shots)
        chosen.append(own[np.isin(task.groups[own], groups)])
    return np.sort(np.concatenate(chosen))


def _point(shots: int, values: list[float], images: float) -> CurvePoint:
    """Return the mean of several fits, which are evaluated on this many different images."""
    mean = sum(values) / len(values)
    between = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    smoothed = (mean * images + 1) / (images + 2)
    return CurvePoint(shots, mean, float(np.sqrt(between + smoothed * (1 - smoothed) / images)))
