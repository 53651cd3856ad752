"""AdaptedModel: one immutable value with everything that a fit computed."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip import methods
from prolip.api.recipe import Recipe
from prolip.core import Fitted, HeldOutPredictions, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.core.capabilities import Capability
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.evaluate.prediction_sets import prediction_sets, set_threshold
from prolip.methods.selection import cross_validate


@dataclass(frozen=True, eq=False)
class Support:
    """The training images of a model."""

    hashes: tuple[bytes, ...]  # SHA-256 of each image's content
    task: Task | None  # features, labels and class texts; None if a model has no images, or no features
    skipped: tuple[tuple[str, str], ...] = ()  # (image, reason) of images that could not be read
    negatives: Array | None = None  # directions [j, Do] of images of none of the classes (OutOfDistribution)

    def require_task(self) -> Task:
        """Return the task; refuse a model that was saved without it."""
        if self.task is None:
            raise UsageError(
                "this model was saved without the features of its support set: fit it again from the images"
                if self.hashes
                else "this model has no training images, only class names: add images first"
            )
        return self.task


def make_task(encoder: Encoder, x: Array, y: Any, text: Text, groups: Any = None) -> Task:
    """Build the task of features [V, n, width], labels [n] and groups [n]."""
    return Task(x, y, text, encoder.head, encoder.scale, groups)


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedModel:
    """A base model, and what a fit added to it."""

    encoder: Encoder  # the base model
    recipe: Recipe  # the options of the fit
    fitted: Fitted  # the fitted method, on features
    classes: tuple[Any, ...]  # the labels, in the order of the columns of `logits`
    text: Text  # their text rows, from the base model
    confidence: Confidence  # calibration, out-of-distribution scores and held-out figures
    support: Support  # the training images
    report: dict[str, Any]  # of the fit, for people to read

    def __repr__(self) -> str:
        size = f"{len(self.classes)} classes, {len(self.support.hashes)} images"
        return f"AdaptedModel({self.encoder.name}, {self.recipe.method}, {size})"

    @property
    def counts(self) -> list[int] | None:
        """The number of training images of each class; None for a model without their features."""
        task = self.support.task
        return None if task is None else np.bincount(task.y, minlength=task.classes).tolist()

    def method(self) -> methods.Method:
        """Create the method; refuse to import a module that only a saved file names."""
        methods.get(self.recipe.method, from_file=True)
        return self.recipe.create()

    def task(self) -> Task:
        """Return the support set, with text features if the method needs them."""
        task = self.support.require_task()
        needed = Capability.TEXT_FEATURES in self.method().needs
        if needed and task.text.features is None:  # a saved model has only the text rows
            text = self.recipe.class_text(self.encoder, self.classes)
            task = replace(task, text=text)
        return task

    def held_out(self) -> HeldOutPredictions:
        """Return predictions for held-out training images: those of the fit, or of fits with its settings."""
        if self.confidence.held_out is not None:
            return self.confidence.held_out
        method = methods.from_settings(self.fitted.settings)
        return cross_validate(method, self.task(), seed=self.recipe.seed)

    def logits(self, x: Array) -> Array:
        """Return calibrated logits [n, K] of features [n, width]."""
        return self.fitted.logits(x) / self.confidence.temperature

    def probabilities(self, x: Array) -> Array:
        """Return probabilities [n, K] of features [n, width]."""
        return softmax(self.logits(x))

    def embed(self, x: Array) -> Array:
        """Return unit embeddings [n, D] of features [n, width]; those of the base model if unchanged."""
        if isinstance(self.fitted, Projected):
            return self.fitted.embed(x)
        return unit_rows(self.encoder.head(x))

    def rejects(self, x: Array, best: Array, false_reject: float = FALSE_REJECT) -> Array:
        """Return which features [n, width] are out-of-distribution, [n]; `best` [n] are predicted classes."""
        out_of_distribution = self.confidence.out_of_distribution
        if out_of_distribution is None:
            raise UsageError(
                "this model cannot reject images: it was fitted without calibration, or by a method that "
                "trains the encoder"
            )
        threshold = out_of_distribution.threshold(false_reject)
        return out_of_distribution.reject(x, self.encoder.head, best, threshold)

    def prediction_sets(self, x: Array, coverage: float) -> list[list[int]]:
        """Return the prediction sets of features [n, width], as columns, from held-out training images."""
        task, held_out = self.task(), self.held_out()
        p = softmax(held_out.logits / self.confidence.temperature)[np.arange(len(held_out)), held_out.y]
        threshold = set_threshold(p, task.weights[held_out.images], coverage)
        return prediction_sets(self.probabilities(x), threshold)

    def zero_shot(self) -> Projected:
        """Return the model before the fit, with the same class texts."""
        return Projected(self.encoder.head, self.text, self.encoder.scale)
