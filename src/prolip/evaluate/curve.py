"""Have I labelled enough? Accuracy against images per class, and what the next ones would bring.

For each number of images s below what the support set has, the method is fitted on s images of each class
and asked about the others, several times over. The error then is taken to follow

    e(s) = a + b s^-c,      0 <= a,  b >= 0,  0.1 <= c <= 2

the form that learning curves of many models have. Three numbers from a few noisy points leave room, so none
is picked: every (a, c) of a grid is weighed by how likely it makes the points, b by its own likelihood, and
the forecast for more images is the mean over all of them and the interval that holds 90 % of their weight.
Each point's spread counts the images behind it (a binomial) and how the draws differ.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip.core import Fitted, Task, UsageError
from prolip.core.arrays import Array
from prolip.evaluate import metrics
from prolip.methods import from_settings

REPEATS = 8
MORE = (1.25, 1.5, 2.0, 4.0)  # times the images per class that there are


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy with this many images of each class, over draws; `spread` is its standard error."""

    shots: int
    accuracy: float
    spread: float


@dataclass(frozen=True)
class Forecast:
    """Accuracy to expect with this many images of each class: the mean, and a 90 % interval."""

    shots: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A learning curve of the support set, and where it leads."""

    points: list[CurvePoint]
    now: Forecast
    forecasts: list[Forecast]

    def report(self) -> dict[str, Any]:
        """As JSON has it; `gain` is over `now`."""
        return {
            "points": [vars(point) for point in self.points],
            "now": vars(self.now),
            "forecasts": [{**vars(f), "gain": f.accuracy - self.now.accuracy} for f in self.forecasts],
        }


def learning_curve(
    fitted: Fitted,
    task: Task,
    *,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Curve:
    """Measure, with so many draws for each number of images, and extrapolate.

    `fitted` is what a method made of the whole support set: its settings are kept, lam in proportion to one
    over the images. Classes of a single image are left out of the judgement.
    """
    counts = np.bincount(task.y)
    largest = int(counts[counts > 0].min())
    if largest < 3:
        raise UsageError(
            f"a learning curve needs at least 3 images of each class, the smallest has {largest}: "
            "label a few more"
        )
    sizes = _sizes(largest)
    settled = from_settings(fitted.settings)
    points: list[CurvePoint] = []
    for step, shots in enumerate(sizes):
        values = []
        for repeat in range(repeats):
            support, rest = _split(task.y, shots, random.Random(f"{seed} {shots} {repeat}"))
            part = task.subset(support)
            lam = getattr(settled, "lam", None)
            one = settled
            if isinstance(lam, float):
                one = replace(settled, lam=lam * task.n / part.n)  # type: ignore[type-var]
            logits = one.fit(part).logits(task.x[0, rest])
            values.append(metrics.accuracy(logits, task.y[rest]))
            if progress is not None:
                progress(step * repeats + repeat + 1, len(sizes) * repeats)
        points.append(_point(shots, values, len(rest)))
    now, *ahead = extrapolate(
        points, [largest, *(max(largest + 1, round(factor * largest)) for factor in MORE)]
    )
    return Curve(points, now, ahead)


def extrapolate(points: Sequence[CurvePoint], shots: Sequence[int]) -> list[Forecast]:
    """Accuracy to expect at other numbers of images per class.

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
    # b's own uncertainty, given a and c: normal, seven points of it.
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


def _sizes(largest: int) -> list[int]:
    """Numbers of images to try: doubling, and the most that leaves one to ask about."""
    sizes = [s for s in (1, 2, 4, 8, 16, 32, 64, 128) if s < 0.8 * largest]
    return sorted({*sizes, max(2, int(0.8 * largest))})


def _split(y: Array, shots: int, rng: random.Random) -> tuple[Array, Array]:
    """`shots` images of each class, and the others."""
    support: list[int] = []
    rest: list[int] = []
    for label in np.unique(y):
        images = np.flatnonzero(y == label).tolist()
        rng.shuffle(images)
        support += images[:shots]
        rest += images[shots:]
    return np.array(sorted(support)), np.array(sorted(rest))


def _point(shots: int, values: list[float], judged: int) -> CurvePoint:
    """Draws share images, so that more of them do not make the images more: the binomial part stays."""
    mean = sum(values) / len(values)
    between = float(np.std(values, ddof=1)) ** 2 / len(values) if len(values) > 1 else 0.0
    smoothed = (mean * judged + 1) / (judged + 2)
    return CurvePoint(shots, mean, float(np.sqrt(between + smoothed * (1 - smoothed) / judged)))
