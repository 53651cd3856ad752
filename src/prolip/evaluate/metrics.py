"""Metrics of predictions: accuracy, F1, confusion matrix and calibration error."""

import math

import numpy as np

from prolip.core.arrays import Array

MIN_IMAGES, MAX_INTERVAL = 10, 0.4  # for an accuracy that says something about new images
LEARNING_POWER, POWER_DEVIATION = 1 / 3, 0.25


def accuracy(logits: Array, y: Array, weights: Array | None = None) -> float:
    """Return the fraction of rows [m, K] whose largest entry is the label; `weights` [m] of the rows."""
    return float(np.average(logits.argmax(axis=1) == y, weights=weights))


def per_class_accuracy(logits: Array, y: Array, weights: Array | None = None) -> list[float | None]:
    """Return the accuracy of each class; None for a class without images."""
    counts = confusion(logits, y, weights)
    return [float(row[k] / row.sum()) if row.any() else None for k, row in enumerate(counts)]


def confusion(logits: Array, y: Array, weights: Array | None = None) -> Array:
    """Count pairs of classes [K, K]: rows are labels, columns predictions."""
    k = logits.shape[1]
    return np.bincount(y * k + logits.argmax(axis=1), weights, minlength=k * k).reshape(k, k)


def balanced_accuracy(logits: Array, y: Array, weights: Array | None = None) -> float:
    """Return the mean of the accuracies of the classes."""
    found = [own for own in per_class_accuracy(logits, y, weights) if own is not None]
    return sum(found) / len(found)


def f1_scores(counts: Array) -> Array:
    """Compute F1 [K] of confusion counts [K, K]; NaN for a class without labels and predictions.

    2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall.
    """
    hits, labels, predictions = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        f1: Array = 2 * hits / (labels + predictions)
        return f1


def macro_f1(counts: Array) -> float:
    """Return the mean F1 over the classes that have images, of confusion counts [K, K]."""
    return float(f1_scores(counts)[counts.sum(axis=1) > 0].mean())


def wilson(hits: float, n: float, z: float = 1.959964) -> tuple[float, float]:
    """Compute the 95 % confidence interval of a fraction, `hits` of `n`.

    Wilson's (1927): unlike the normal one it stays within 0 .. 1, and has a width for 5 of 5.

    Examples
    --------
    >>> tuple(round(end, 3) for end in wilson(5, 5))
    (0.566, 1.0)
    """
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


def expected_accuracy(measured: float, images: float, share: float) -> tuple[float, tuple[float, float]]:
    """Estimate the accuracy of a fit from that of fits on a `share` of its images, with a 95 % interval.

    Fits of folds have fewer images, and are less accurate: with two images of each class, half of them, and
    4 to 15 points. Errors fall like a power of the number of images:

        error  =  held-out error  share^c,        c = LEARNING_POWER +- POWER_DEVIATION

    On nine sets (photos under `offline` and CLIP, aerial scenes under CLIP), the accuracy on other images was
    5.6, 1.8, 1.8 and 0.9 points above the held-out one with 2, 4, 8 and 16 images of each class, for which c
    is 0.38, 0.42, 0.64 and 0.42; on ten other draws of two photos of each class of four sets 6.5 points, for
    which it is 0.26. `images` is how many independent ones were held out; the interval is Wilson's, and that
    of c.
    """
    factor = share**LEARNING_POWER
    accuracy = 1 - (1 - measured) * factor
    below, above = (abs(end - measured) * factor for end in wilson(measured * images, images))
    spread = 1.96 * POWER_DEVIATION * abs(math.log(share)) * (1 - accuracy)
    low, high = accuracy - math.hypot(below, spread), accuracy + math.hypot(above, spread)
    return accuracy, (max(0.0, low), min(1.0, high))


def too_few(images: float, interval: tuple[float, float]) -> bool:
    """Whether an accuracy, measured on so many images, says too little: its interval is 40 points wide."""
    return images < MIN_IMAGES or interval[1] - interval[0] > MAX_INTERVAL


def calibration_error(probabilities: Array, y: Array, weights: Array | None = None) -> float:
    """Compute the expected calibration error: |confidence - accuracy|, weighted over bins of equal width.

    0 means that of the predictions with 80 % confidence, 80 % are correct.
    """
    return confidence_gap(probabilities.max(axis=1), probabilities.argmax(axis=1) == y, weights)


def calibration_floor(probabilities: Array, weights: Array | None = None, draws: int = 100) -> float:
    """Estimate the `calibration_error` of perfectly calibrated predictions, which is due to chance alone.

    With 200 images this is several per cent. It is the mean over draws in which a prediction is correct with
    its own probability.
    """
    confidence, rng = probabilities.max(axis=1), np.random.default_rng(0)
    chances = (rng.random(len(confidence)) < confidence for _ in range(draws))
    return sum(confidence_gap(confidence, hits, weights) for hits in chances) / draws


def confidence_gap(confidence: Array, hits: Array, weights: Array | None = None, bins: int = 15) -> float:
    """Return |confidence - accuracy| over bins of predictions [m]."""
    confidence = confidence.astype(np.float64)
    weights = np.ones(len(confidence)) if weights is None else weights
    bin_of = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(bin_of, weights * (hits - confidence))).sum() / weights.sum())
