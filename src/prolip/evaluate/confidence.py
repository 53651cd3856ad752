"""What a fitted model may claim: its temperature, its outsiders, and how it did on held-out images."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from prolip.core import Fitted, Projected, Task
from prolip.evaluate import metrics
from prolip.evaluate.calibration import ONE_SHOT, fit_factor, fit_temperature
from prolip.evaluate.held_out import HeldOut, held_out
from prolip.evaluate.reject import Outsiders
from prolip.methods.base import Method
from prolip.methods.towers import TowerMethod


@dataclass(frozen=True, eq=False)
class Confidence:
    """Learned from the support set alone.

    Attributes
    ----------
    temperature
        What logits are divided by.
    outsiders
        How pictures of no class are told; None where the method changes the image tower.
    report
        Figures on held-out support images: accuracy, zero-shot accuracy, per class, calibration.
    out
        The answers about held-out images that all this comes from; not saved.
    """

    temperature: float = 1.0
    outsiders: Outsiders | None = None
    report: dict[str, Any] = field(default_factory=dict)
    out: HeldOut | None = None

    @classmethod
    def of(cls, method: Method, fitted: Fitted, task: Task, seed: int = 0) -> Confidence:
        """Cross-validate, and calibrate on the outcome.

        Methods that train through a tower take minutes to fit, not moments: they are not fitted again, and
        keep temperature 1.
        """
        if isinstance(method, TowerMethod):
            return cls(outsiders=None if method.reads_pictures else Outsiders.of(task))
        out = held_out(method, fitted, task, seed=seed)
        if not len(out):
            temperature = ONE_SHOT if isinstance(fitted, Projected) and fitted.info.get("parameters") else 1.0
            return cls(temperature, Outsiders.of(task), {"images": 0, "temperature": temperature})
        as_fitted = out.logits * fit_factor(fitted)
        temperature = fit_temperature(as_fitted, out.y) / fit_factor(fitted)
        before = as_fitted.softmax(dim=1)
        after = (out.logits / temperature).softmax(dim=1)
        zero_shot = Projected(task.linear, task.text, task.scale).logits(task.x[0, out.images])
        report = {
            "images": len(out),
            "accuracy": metrics.accuracy(after, out.y),
            "zero_shot_accuracy": metrics.accuracy(zero_shot, out.y),
            "per_class": metrics.per_class_accuracy(after, out.y),
            "temperature": temperature,
            "calibration_error_before": metrics.calibration_error(before, out.y),
            "calibration_error": metrics.calibration_error(after, out.y),
            "calibration_error_floor": metrics.calibration_floor(after),
        }
        return cls(temperature, Outsiders.of(task), report, out)

    def tensors(self) -> dict[str, Tensor]:
        """What is saved beside the weights."""
        if self.outsiders is None:
            return {}
        return {f"outsiders.{name}": tensor for name, tensor in vars(self.outsiders).items()}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], temperature: float, report: dict[str, Any]) -> Confidence:
        """The inverse; takes its tensors out of `tensors`."""
        names = [field.name for field in fields(Outsiders)]
        found = {name: tensors.pop(f"outsiders.{name}", None) for name in names}
        kept = {name: tensor for name, tensor in found.items() if tensor is not None}
        return cls(temperature, Outsiders(**kept) if len(kept) == len(names) else None, report)
