"""How good predictions are: accuracy, per class too, and whether probabilities mean what they say."""

from __future__ import annotations

import numpy as np

from prolip.core.arrays import Array


def accuracy(logits: Array, y: Array) -> float:
    """The fraction of rows [m, K] whose largest entry is the label."""
    return float((logits.argmax(axis=1) == y).mean())


def per_class_accuracy(logits: Array, y: Array) -> list[float | None]:
    """Accuracy among the images of each class; None for a class without images."""
    hits = logits.argmax(axis=1) == y
    by_class = (hits[y == k] for k in range(logits.shape[1]))
    return [float(own.mean()) if len(own) else None for own in by_class]


def confusion(logits: Array, y: Array) -> Array:
    """Counts [K, K]: row is the truth, column the answer."""
    k = logits.shape[1]
    return np.bincount(y * k + logits.argmax(axis=1), minlength=k * k).reshape(k, k)


def calibration_error(probabilities: Array, y: Array, bins: int = 15) -> float:
    """Expected calibration error: |confidence - accuracy|, weighted over bins of equal width.

    0 means that of the answers given with 80 % confidence, 80 % are right.
    """
    return _gap(probabilities.max(axis=1), probabilities.argmax(axis=1) == y, bins)


def calibration_floor(probabilities: Array, bins: int = 15, draws: int = 100) -> float:
    """What `calibration_error` shows by chance alone, for answers that mean exactly what they say.

    A bin of few images is never hit exactly: with 200 images this is several per cent. It is the mean over
    draws in which an answer is right with the probability that it was given.
    """
    confidence, rng = probabilities.max(axis=1), np.random.default_rng(0)
    return sum(_gap(confidence, rng.random(len(confidence)) < confidence, bins) for _ in range(draws)) / draws


def _gap(confidence: Array, hits: Array, bins: int) -> float:
    """|confidence - accuracy| over bins of answers [m]."""
    confidence = confidence.astype(np.float64)
    bin_of = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(bin_of, hits - confidence)).sum() / len(confidence))
