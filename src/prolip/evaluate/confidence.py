"""What a fitted model may claim: its temperature, its outsiders, and how it did on held-out images."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from prolip.core import Fitted, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, softmax
from prolip.evaluate import metrics
from prolip.evaluate.calibration import ONE_SHOT, fit_factor, fit_temperature
from prolip.evaluate.out_of_distribution import OutOfDistribution


@dataclass(frozen=True, eq=False)
class Confidence:
    """Learned from the support set alone."""

    temperature: float = 1.0  # what logits are divided by
    # How pictures of no class are recognised; None where the method changes the image tower.
    out_of_distribution: OutOfDistribution | None = None
    # Figures on held-out support images: accuracy, zero-shot accuracy, per class, calibration.
    report: dict[str, Any] = field(default_factory=dict)
    held_out: HeldOutPredictions | None = None  # the answers about held-out images that all this comes from

    @classmethod
    def of(cls, fitted: Fitted, task: Task, held_out: HeldOutPredictions) -> Confidence:
        """Calibrate on the answers about held-out images that a fit made."""
        out_of_distribution = OutOfDistribution.of(task)
        if not len(held_out):
            trained = isinstance(fitted, Projected) and (fitted.tuned or fitted.adapter is not None)
            temperature = ONE_SHOT if trained and not fitted.settings.options.get("fit_scale") else 1.0
            return cls(temperature, out_of_distribution, {"images": 0, "temperature": temperature}, held_out)
        as_fitted = held_out.logits * fit_factor(fitted)
        temperature = fit_temperature(as_fitted, held_out.y) / fit_factor(fitted)
        before = softmax(as_fitted)
        after = softmax(held_out.logits / temperature)
        zero_shot = Projected(task.linear, task.text, task.scale).logits(task.x[0, held_out.images])
        report = {
            "images": len(held_out),
            "accuracy": metrics.accuracy(after, held_out.y),
            "zero_shot_accuracy": metrics.accuracy(zero_shot, held_out.y),
            "per_class": metrics.per_class_accuracy(after, held_out.y),
            "temperature": temperature,
            "calibration_error_before": metrics.calibration_error(before, held_out.y),
            "calibration_error": metrics.calibration_error(after, held_out.y),
            "calibration_error_floor": metrics.calibration_floor(after),
        }
        return cls(temperature, out_of_distribution, report, held_out)

    def tensors(self) -> dict[str, Array]:
        """What is saved beside the weights."""
        if self.out_of_distribution is None:
            return {}
        return {f"outsiders.{name}": tensor for name, tensor in vars(self.out_of_distribution).items()}

    @classmethod
    def restore(cls, tensors: dict[str, Array], temperature: float, report: dict[str, Any]) -> Confidence:
        """The inverse of `tensors()`; takes what it reads out of `tensors`."""
        names = [field.name for field in fields(OutOfDistribution)]
        found = {name: tensors.pop(f"outsiders.{name}", None) for name in names}
        kept = {name: tensor for name, tensor in found.items() if tensor is not None}
        return cls(temperature, OutOfDistribution(**kept) if len(kept) == len(names) else None, report)
