"""How good predictions are: accuracy, per class too, and whether probabilities mean what they say."""

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


def balanced_accuracy(logits: Array, y: Array) -> float:
    """The mean of the classes' accuracies: each class counts the same, however many images it has."""
    found = [own for own in per_class_accuracy(logits, y) if own is not None]
    return sum(found) / len(found)


def f1_scores(counts: Array) -> Array:
    """F1 [K] of confusion counts [K, K]; NaN for a class that is neither there nor answered.

    2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall.
    """
    hits, truths, answers = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return 2 * hits / (truths + answers)


def macro_f1(counts: Array) -> float:
    """The mean F1 over the classes that have images, of confusion counts [K, K]."""
    return float(f1_scores(counts)[counts.sum(axis=1) > 0].mean())


def wilson(hits: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The interval of a fraction, `hits` of `n`, that holds the true one in 95 % of cases.

    Wilson's (1927): unlike the normal one it stays within 0 .. 1, and says something of 5 in 5.

    Examples
    --------
    >>> tuple(round(end, 3) for end in wilson(5, 5))
    (0.566, 1.0)
    """
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


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
