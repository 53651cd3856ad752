"""What is known about the predictions of a fitted model: temperature, out-of-distribution scores, figures.

Temperature scaling: one number that calibrates probabilities, and changes no prediction.

    p = softmax(logits / T)

T is the most likely one on held-out support images, with a prior on log T around the scale of the fit, so
that twenty images cannot drive it to an extreme. The prior is Cauchy's: it decides where the images say
little, and gives way where they contradict it. (A normal one outweighs hundreds of images with random labels:
the calibration error on other images is then 12.5 %, where it is 5.8 at temperature 1 and 4.3 with this one.)
The temperature stays 1 where held-out images are likelier at 1 beyond chance.

The width of the prior is PRIOR_WIDTH, and OWN_SCALE_WIDTH for `anchored`, whose own scale is nearly right:
with 1 to 16 images a class the best T for other images was 0.7 to 1.5 on ten of eleven sets, under CLIP and
under `offline`. Calibration error on other images in per cent, mean over nine sets with 2, 4, 8 and 16 images
of each class: 3.3, 2.5, 2.6, 3.5; with a normal prior of that width 3.3, 2.3, 2.9, 3.6; at temperature 1 3.5,
2.2, 2.9, 3.8.

With one image per class nothing can be held out. For `anchored` T is 1. Otherwise T is ONE_SHOT: fits at the
model's own scale were slightly underconfident on each of five sets that are not reported (the best T was 0.6
to 0.95: digits, textures, clothing, WHU-RS19 with two CLIP models). Neither the zero-shot model's temperature
nor holding out whole classes predicted which: both did worse than T = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from prolip.core import Fitted, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, cross_entropy, softmax
from prolip.evaluate.metrics import Figures
from prolip.evaluate.out_of_distribution import OutOfDistribution
from prolip.solvers.folds import fold_count

PRIOR_WIDTH = 0.7  # of log T
OWN_SCALE_WIDTH = 0.2  # the same for fits that state their own scale
CHANCE = 2.0  # of a log-likelihood: half of the 95 % quantile of chi-squared with one degree of freedom
TEMPERATURE_RANGE = (0.05, 20.0)
ONE_SHOT = 0.85
GRID = 61
_SAVED = "out_of_distribution."  # before the names of its arrays in saved models
_ARRAYS = [each.name for each in fields(OutOfDistribution)]


@dataclass(frozen=True, eq=False)
class Confidence:
    """Calibration of a model, learned from the support set alone."""

    temperature: float = 1.0  # what logits are divided by
    out_of_distribution: OutOfDistribution | None = None  # None if the method changes the image tower
    figures: Figures = field(default_factory=Figures)  # on held-out images of the support set
    held_out: HeldOutPredictions | None = None  # the predictions behind the figures

    def __repr__(self) -> str:
        found = self.figures
        accuracy = "unknown" if found.accuracy is None else f"{found.accuracy:.3f} on {found.images} images"
        return f"Confidence(temperature {self.temperature:.3g}, held-out accuracy {accuracy})"

    @classmethod
    def of(
        cls, fitted: Fitted, task: Task, held_out: HeldOutPredictions, negatives: Array | None = None
    ) -> Confidence:
        """Calibrate on the predictions of a fit for held-out images.

        `negatives` are those of `OutOfDistribution`.
        """
        out_of_distribution = OutOfDistribution.of(task, negatives)
        if not len(held_out):
            temperature = 1.0
            if isinstance(fitted, Projected) and fitted.fit_scale is None:
                temperature = ONE_SHOT if fitted.tuned or fitted.adapter is not None else 1.0
            return cls(temperature, out_of_distribution, held_out=held_out)
        factor, weights = fit_factor(fitted), task.weights[held_out.images]
        states_scale = isinstance(fitted, Projected) and fitted.fit_scale is not None
        width = OWN_SCALE_WIDTH if states_scale else PRIOR_WIDTH
        as_fitted = held_out.logits * factor
        temperature = fit_temperature(as_fitted, held_out.y, weights, width, own=factor) / factor
        zero_shot = Projected(task.linear, task.text, task.scale).logits(task.x[0, held_out.images])
        figures = Figures.of(
            softmax(held_out.logits / temperature),
            held_out.y,
            zero_shot=zero_shot,
            uncalibrated=softmax(held_out.logits),
            weights=weights,
            share=fold_share(fitted, task),
        )
        return cls(temperature, out_of_distribution, figures, held_out)

    @property
    def report(self) -> dict[str, Any]:
        """Return the figures as a saved model has them."""
        return {**self.figures.to_json(), "temperature": self.temperature}

    def tensors(self) -> dict[str, Array]:
        """Return the arrays to save."""
        out = self.out_of_distribution
        return {} if out is None else {_SAVED + name: getattr(out, name) for name in _ARRAYS}

    @classmethod
    def restore(cls, tensors: dict[str, Array], temperature: float, figures: Figures) -> Confidence:
        """Invert `tensors()`, and remove what was read from `tensors`."""
        found = {name: tensors.pop(_SAVED + name, None) for name in _ARRAYS}
        complete = {name: tensor for name, tensor in found.items() if tensor is not None}
        out = OutOfDistribution(**complete) if len(complete) == len(found) else None
        return cls(temperature, out, figures)


def fold_share(fitted: Fitted, task: Task) -> float:
    """Return the fraction of the images that a fit without a fold has; 1 for a model that learns nothing."""
    return 1.0 if fitted.method == "zero_shot" else 1 - 1 / fold_count(task)


def fit_temperature(
    logits: Array, y: Array, weights: Array | None = None, width: float = PRIOR_WIDTH, own: float = 1.0
) -> float:
    """Return the most likely T of held-out logits [m, K] and labels [m], with optional weights [m].

    `width` is that of the prior of log T around 0. Where T = `own` is likelier beyond chance, it is that.

    Examples
    --------
    >>> y = np.tile([0, 0, 1], 100)                 # two of three are correct, with overconfident logits
    >>> logits = np.tile([4.0, 0.0], (300, 1))
    >>> 5.0 < fit_temperature(logits, y) < 4 / math.log(2)       # the prior keeps it a little lower
    True
    """
    from scipy.optimize import minimize_scalar

    z, counts = logits.astype(np.float64), np.ones(len(y)) if weights is None else weights

    def loss(log_t: float) -> float:
        return float(counts @ cross_entropy(z / math.exp(log_t), y))

    def cost(log_t: float) -> float:
        return loss(log_t) + math.log1p((log_t / width) ** 2)

    low, high = map(math.log, TEMPERATURE_RANGE)
    grid = np.linspace(low, high, GRID)  # there may be two minima: that of the prior, and that of the images
    near = grid[int(np.argmin([cost(log_t) for log_t in grid]))]
    step = (high - low) / (GRID - 1)
    bounds = max(low, near - step), min(high, near + step)
    best = float(minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-8}).x)
    return own if loss(best) > loss(math.log(own)) + CHANCE else math.exp(best)


def fit_factor(fitted: Fitted) -> float:
    """Return the factor from logits to those at the scale of the fit, before calibration."""
    if isinstance(fitted, Projected) and fitted.fit_scale is not None:
        return fitted.fit_scale / fitted.scale
    return 1.0
