"""The figures of an evaluation: what `eval`, `report`, model cards and saved models say about a model.

A new metric is a field here, computed in `Figures.of`; `to_json` then has it everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from prolip.core import InputError
from prolip.core.arguments import is_json_of
from prolip.core.arrays import Array
from prolip.evaluate import metrics

# What a model card prints.
_ON_CARDS = ["accuracy", "zero_shot_accuracy", "per_class", "calibration_error", "calibration_error_before"]


@dataclass(frozen=True)
class Figures:
    """Figures of predictions for labelled images; `None` where a saved model has no such figure.

    `rejected`, `classes`, `skipped` and `duplicates` say more about an evaluation on test images.
    """

    images: int = 0  # number of images; without any, there are no other figures
    accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None  # Wilson's, 95 %
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

    @classmethod
    def of(
        cls,
        probabilities: Array,
        y: Array,
        *,
        zero_shot: Array,
        uncalibrated: Array,
        rejected: Array | None = None,
        **about: Any,
    ) -> Figures:
        """Compute the figures of calibrated probabilities [n, K] and labels [n].

        `zero_shot` and `uncalibrated` [n, K] are logits or probabilities of the same images before the fit
        and before the calibration; `rejected` [n] marks those that seem out-of-distribution.
        """
        counts = metrics.confusion(probabilities, y)
        return cls(
            images=len(y),
            accuracy=metrics.accuracy(probabilities, y),
            accuracy_interval=metrics.wilson(float(counts.trace()), len(y)),
            balanced_accuracy=metrics.balanced_accuracy(probabilities, y),
            macro_f1=metrics.macro_f1(counts),
            zero_shot_accuracy=metrics.accuracy(zero_shot, y),
            per_class=tuple(metrics.per_class_accuracy(probabilities, y)),
            counts=tuple(counts.sum(axis=1).tolist()),
            calibration_error=metrics.calibration_error(probabilities, y),
            calibration_error_before=metrics.calibration_error(uncalibrated, y),
            calibration_error_floor=metrics.calibration_floor(probabilities),
            rejected=None if rejected is None else float(rejected.mean()),
            **about,
        )

    @property
    def too_few(self) -> bool:
        """Whether the images are too few to say how accurate the model is."""
        return bool(self.images) and metrics.too_few(self.images, self.accuracy_interval or (0.0, 1.0))

    def select(self, classes: Sequence[int | None]) -> Figures:
        """Return the figures of these classes, by their old index; None is a new class without images."""

        def chosen(values: tuple[Any, ...] | None, empty: Any) -> tuple[Any, ...] | None:
            return values and tuple(empty if k is None else values[k] for k in classes)

        return replace(self, per_class=chosen(self.per_class, None), counts=chosen(self.counts, 0))

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
