"""Metrics of predictions, and `Figures`: what `eval`, `report`, model cards and saved models say of a model.

A new metric is a function, and a field that `Figures.of` computes; `Figures.to_json` has it everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any, get_type_hints

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, is_json_of

MIN_IMAGES, MAX_INTERVAL = 10, 0.4  # for an accuracy that says something about new images
LEARNING_POWER, POWER_DEVIATION = 1 / 3, 0.25


def accuracy(logits: Array, y: Array, weights: Array | None = None) -> float:
    """Return the fraction of rows [m, K] whose largest entry is the label; `weights` [m] of the rows."""
    return float(np.average(logits.argmax(axis=1) == y, weights=weights))


def per_class_accuracy(counts: Array) -> list[float | None]:
    """Return the accuracy of each class from confusion counts [K, K]; None for a class without images."""
    return [float(row[k] / row.sum()) if row.any() else None for k, row in enumerate(counts)]


def confusion(logits: Array, y: Array, weights: Array | None = None) -> Array:
    """Count pairs of classes [K, K]: rows are labels, columns predictions."""
    k = logits.shape[1]
    return np.bincount(y * k + logits.argmax(axis=1), weights, minlength=k * k).reshape(k, k)


def macro_f1(counts: Array) -> float:
    """Return the mean F1 over the classes that have images, of confusion counts [K, K].

    F1 = 2 TP / (2 TP + FP + FN) is the harmonic mean of precision and recall.
    """
    hits, labels, predictions = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    present = labels > 0
    return float((2 * hits[present] / (labels + predictions)[present]).mean())


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


# What a model card prints.
_ON_CARDS = ["accuracy", "zero_shot_accuracy", "per_class", "calibration_error", "calibration_error_before"]


@dataclass(frozen=True)
class Figures:
    """Figures of predictions for labelled images; `None` where a saved model has no such figure.

    Those from `rejected` on say more about an evaluation on test images.
    """

    images: int = 0  # number of images; without any, there are no other figures
    independent: int | None = None  # the same, with each group of near-copies counted as one
    accuracy: float | None = None  # for held-out images, what is to be expected of the fit on all
    accuracy_interval: tuple[float, float] | None = None  # 95 %
    held_out_accuracy: float | None = None  # that of fits on parts of the images; None for test images
    balanced_accuracy: float | None = None
    macro_f1: float | None = None
    zero_shot_accuracy: float | None = None
    per_class: tuple[float | None, ...] | None = None  # accuracy; None for a class without images
    counts: tuple[int, ...] | None = None  # images per class
    calibration_error: float | None = None
    calibration_error_before: float | None = None  # at temperature 1
    calibration_error_floor: float | None = None  # what chance alone gives
    rejected: float | None = None  # fraction that seems out-of-distribution
    classes: tuple[Any, ...] | None = None
    skipped: int | None = None  # images that could not be read
    duplicates: int | None = None  # images that the model was fitted on
    negatives: int | None = None  # images of none of the classes
    negatives_rejected: float | None = None  # fraction of them

    @classmethod
    def of(
        cls,
        probabilities: Array,
        y: Array,
        *,
        zero_shot: Array,
        uncalibrated: Array,
        rejected: Array | None = None,
        weights: Array | None = None,
        share: float | None = None,
        **about: Any,
    ) -> Figures:
        """Compute the figures of calibrated probabilities [n, K] and labels [n].

        `zero_shot` and `uncalibrated` [n, K] are logits or probabilities of the same images before the fit
        and before the calibration; `rejected` [n] marks those that seem out-of-distribution. `weights` [n] is
        what each image counts (`Task.weights`). For held-out images, `share` is the fraction of all training
        images that each was predicted from.
        """
        weights = np.ones(len(y)) if weights is None else weights
        counts = confusion(probabilities, y, weights)
        per_class, independent = per_class_accuracy(counts), float(weights.sum())
        expected = measured = accuracy(probabilities, y, weights)
        interval = wilson(measured * independent, independent)
        if share is not None:
            expected, interval = expected_accuracy(measured, independent, share)
        return cls(
            images=len(y),
            independent=round(independent),
            accuracy=expected,
            accuracy_interval=interval,
            held_out_accuracy=None if share is None else measured,
            balanced_accuracy=fmean(own for own in per_class if own is not None),
            macro_f1=macro_f1(counts),
            zero_shot_accuracy=accuracy(zero_shot, y, weights),
            per_class=tuple(per_class),
            counts=tuple(np.bincount(y, minlength=len(counts)).tolist()),
            calibration_error=calibration_error(probabilities, y, weights),
            calibration_error_before=calibration_error(uncalibrated, y, weights),
            calibration_error_floor=calibration_floor(probabilities, weights),
            rejected=None if rejected is None else float(rejected.mean()),
            **about,
        )

    @property
    def too_few(self) -> bool:
        """Whether the images are too few to say how accurate the model is."""
        count = self.images if self.independent is None else self.independent
        return bool(count) and too_few(count, self.accuracy_interval or (0.0, 1.0))

    @property
    def learned_little(self) -> bool:
        """Whether the accuracy may be that of always predicting the class with the most images."""
        if self.accuracy_interval is None or not self.counts:
            return False
        return self.accuracy_interval[0] <= max(self.counts) / sum(self.counts)

    def to_json(self) -> dict[str, Any]:
        """Return the figures under the keys of `eval --json` and of saved models."""
        if not self.images:
            return {"images": 0}
        evaluated = self.classes is not None  # on test images, where `rejected` is null if it is not known
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.items()
            if value is not None or (name == "rejected" and evaluated)
        }

    @classmethod
    def from_json(cls, value: Any) -> Figures:
        """Read what `to_json` wrote, which may come from an untrusted file."""
        if not isinstance(value, dict):
            raise InputError(f"figures must be an object, got {str(value)[:80]!r}")
        hints = get_type_hints(cls)
        found: dict[str, Any] = {"images": 0} | {name: each for name, each in value.items() if name in hints}
        wrong = [name for name in found if not is_json_of(found[name], hints[name])]
        wrong += [name for name in _ON_CARDS if found["images"] and found.get(name) is None]
        if wrong:
            raise InputError(f"{wrong[0]} of the figures is {str(found.get(wrong[0]))[:80]!r}")
        lists = {name: tuple(each) for name, each in found.items() if isinstance(each, list)}
        return cls(**{**found, **lists})
