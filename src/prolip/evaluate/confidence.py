"""What is known about the predictions of a fitted model: temperature, out-of-distribution scores, figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from prolip.core import Fitted, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, softmax
from prolip.evaluate.calibration import ONE_SHOT, fit_factor, fit_temperature, prior_width
from prolip.evaluate.figures import Figures
from prolip.evaluate.out_of_distribution import OutOfDistribution
from prolip.solvers.folds import fold_count

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
        as_fitted = held_out.logits * factor
        temperature = (
            fit_temperature(as_fitted, held_out.y, weights, prior_width(fitted), own=factor) / factor
        )
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

    def select(self, classes: Sequence[int | None]) -> Confidence:
        """Return the confidence of a model with these classes, by their old index; None is a new class.

        The predictions for held-out images stay only if no class is removed or added.
        """
        out, held_out = self.out_of_distribution, self.held_out
        if held_out is not None and list(classes) != list(range(held_out.logits.shape[1])):
            held_out = None
        return Confidence(
            self.temperature, out and out.select(classes), self.figures.select(classes), held_out
        )

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
