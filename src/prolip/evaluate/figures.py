"""The figures of an evaluation: what `eval`, `report`, model cards and saved models say about a model.

A new metric is a field here, computed in `Figures.of`; `to_json` then has it everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import numpy as np

from prolip.core import InputError
from prolip.core.arguments import is_json_of
from prolip.core.arrays import Array
from prolip.evaluate import metrics

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
        counts = metrics.confusion(probabilities, y, weights)
        independent = float(weights.sum())
        accuracy = measured = metrics.accuracy(probabilities, y, weights)
        interval = metrics.wilson(measured * independent, independent)
        if share is not None:
            accuracy, interval = metrics.expected_accuracy(measured, independent, share)
        return cls(
            images=len(y),
            independent=round(independent),
            accuracy=accuracy,
            accuracy_interval=interval,
            held_out_accuracy=None if share is None else measured,
            balanced_accuracy=metrics.balanced_accuracy(probabilities, y, weights),
            macro_f1=metrics.macro_f1(counts),
            zero_shot_accuracy=metrics.accuracy(zero_shot, y, weights),
            per_class=tuple(metrics.per_class_accuracy(probabilities, y, weights)),
            counts=tuple(np.bincount(y, minlength=len(counts)).tolist()),
            calibration_error=metrics.calibration_error(probabilities, y, weights),
            calibration_error_before=metrics.calibration_error(uncalibrated, y, weights),
            calibration_error_floor=metrics.calibration_floor(probabilities, weights),
            rejected=None if rejected is None else float(rejected.mean()),
            **about,
        )

    @property
    def too_few(self) -> bool:
        """Whether the images are too few to say how accurate the model is."""
        count = self.images if self.independent is None else self.independent
        return bool(count) and metrics.too_few(count, self.accuracy_interval or (0.0, 1.0))

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
