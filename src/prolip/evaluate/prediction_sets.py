"""Prediction sets: the classes that contain the right one with a given frequency.

With p_i the probability of the label of a held-out image i, which the fits of the folds give, a set holds
every class whose probability is at least the threshold

    q = the k-th smallest p_i,     k = floor((1 - coverage) (n + 1))

(conformal prediction; with folds: Vovk, 2015, cross-conformal predictors). A new image that is like the
training images is as likely as any of them to have one of the k smallest: so its label is in the set with the
frequency `coverage`, whatever the model. Where n is too small for k = 1 the set has all classes. As folds fit
on fewer images than the model, sets are rather too large than too small (docs/measurements/confidence.md).
"""

import numpy as np

from prolip.core import UsageError
from prolip.core.arrays import Array


def set_threshold(probabilities: Array, weights: Array, coverage: float) -> float:
    """Return the least probability of a class in a set, from those of held-out labels [n].

    `weights` [n] are what each image counts: near-copies count as one together.

    Examples
    --------
    >>> set_threshold(np.linspace(0.01, 1, 100), np.ones(100), 0.95)
    0.05
    """
    if not (isinstance(coverage, (int, float)) and 0 < coverage < 1):
        raise UsageError(f"the coverage of a set must be a fraction between 0 and 1, got {coverage!r}")
    order = probabilities.argsort(kind="stable")
    reached = np.flatnonzero(weights[order].cumsum() <= (1 - coverage) * (weights.sum() + 1) + 1e-9)
    return float(probabilities[order[reached[-1]]]) if len(reached) else 0.0


def prediction_sets(probabilities: Array, threshold: float) -> list[list[int]]:
    """Return the classes of each set, the most probable first, from probabilities [m, K].

    The most probable class is always one of them.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sizes = np.maximum((probabilities >= threshold).sum(axis=1), 1)
    return [classes[:size].tolist() for classes, size in zip(order, sizes, strict=True)]
