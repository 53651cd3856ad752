"""Evaluate a model on labelled images: accuracy, calibration, and what it would reject."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.inputs import ReadOptions, encode, image_name, require_every_class, require_known
from prolip.api.model import AdaptedModel
from prolip.api.predict import Predictions, predict
from prolip.core import UsageError
from prolip.core.arrays import Array, group_weights, softmax
from prolip.core.tabular import Tabular
from prolip.data import ImageSet
from prolip.evaluate.confidence import fold_share
from prolip.evaluate.label_errors import LabelError, find_label_errors
from prolip.evaluate.metrics import Figures, confusion
from prolip.features import Extraction
from prolip.io.progress import Progress
from prolip.io.writing import write_csv


@dataclass(frozen=True, eq=False)
class Report(Tabular):
    """What a model predicts for labelled images: figures, confusion matrix and mistakes.

    The figures are attributes, too: `report.accuracy` is `report.figures.accuracy`.
    """

    model: AdaptedModel
    names: list[str]  # path of each image, or its number
    images: list[Any] | None  # the images, to be opened again; None if there are only features
    places: list[int]  # index of each image among those that were given
    y: Array  # labels [n]
    x: Array  # features [n, width] of the base model
    logits: Array  # of the fitted model, [n, K], not divided by the temperature
    in_support: Array  # which images the model was fitted on, [n]
    held_out: Array  # which of them were predicted by a fit that did not see them, [n]
    groups: Array  # of near-copies among the images that the model was fitted on; others are alone, [n]
    skipped: list[tuple[str, str]]  # (image, reason) of images that could not be read
    negatives: Array | None = None  # whether each image of none of the classes is rejected, [j]

    def __post_init__(self) -> None:
        if not len(self.y):
            raise UsageError(
                "every class has a single image, and none can be held out: name a folder of others"
            )

    @cached_property
    def predictions(self) -> Predictions:
        """Calibrated predictions."""
        return predict(self.model, self.x, logits=self.logits)

    @cached_property
    def zero_shot(self) -> Array:
        """Logits [n, K] before the fit."""
        return self.model.zero_shot().logits(self.x)

    @cached_property
    def figures(self) -> Figures:
        """The figures of the predictions."""
        task, share = self.model.support.task, None
        if task is not None and self.held_out.all():
            share = fold_share(self.model.fitted, task)
        return Figures.of(
            self.probabilities,
            self.y,
            zero_shot=self.zero_shot,
            uncalibrated=softmax(self.logits),
            rejected=self.predictions.rejected,
            classes=self.classes,
            skipped=len(self.skipped),
            weights=group_weights(self.groups, self.y),
            share=share,
            duplicates=int(self.in_support.sum()),
            negatives=None if self.negatives is None else len(self.negatives),
            negatives_rejected=None if self.negatives is None else float(self.negatives.mean()),
        )

    def __getattr__(self, name: str) -> Any:
        """Return a figure, such as `accuracy`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.figures, name)

    def __repr__(self) -> str:
        low, high = self.accuracy_interval or (0.0, 1.0)
        return (
            f"Report(accuracy {self.accuracy:.3f}, 95 % interval {low:.3f} to {high:.3f}, on {len(self.y)} "
            f"images, {int(self.held_out.sum())} of them held-out training images; "
            f"zero-shot {self.zero_shot_accuracy:.3f})"
        )

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes of the model."""
        return self.model.classes

    @property
    def probabilities(self) -> Array:
        """Calibrated probabilities [n, K]."""
        return self.predictions.probabilities

    @property
    def confusion(self) -> Array:
        """The number of images by label and predicted class, [K, K]."""
        return confusion(self.probabilities, self.y)

    @property
    def mistakes(self) -> list[dict[str, Any]]:
        """The images that are predicted wrong, the most confident first."""
        best, confidence = self.predictions.best, self.predictions.confidence
        return [
            {
                "image": self.names[i],
                "label": self.classes[self.y[i]],
                "predicted": self.classes[best[i]],
                "probability": float(confidence[i]),
            }
            for i in np.argsort(-confidence, kind="stable").tolist()
            if best[i] != self.y[i]
        ]

    def label_errors(self) -> list[LabelError]:
        """Return the images whose labels are suspicious, worst first; `index` counts in `names`."""
        return find_label_errors(self.probabilities, self.x, self.y, self.groups)

    def rows(self) -> list[dict[str, Any]]:
        """Return images, accuracy and the most frequent wrong prediction of each class."""
        rows = []
        for k, (name, counts) in enumerate(zip(self.classes, self.confusion, strict=True)):
            wrong = np.where(np.arange(len(counts)) == k, 0, counts)
            total = int(counts.sum())
            rows.append(
                {
                    "class": name,
                    "images": total,
                    "accuracy": float(counts[k] / total) if total else None,
                    "confused_with": self.classes[int(wrong.argmax())] if wrong.any() else None,
                }
            )
        return rows

    def write_csv(self, path: Path) -> None:
        """Write a .csv with path, label, predicted class and probability of every image."""
        probabilities = [round(float(p), 6) for p in self.predictions.confidence]
        labels, best = ([self.classes[k] for k in indices] for indices in (self.y, self.predictions.best))
        rows = zip(self.names, labels, best, probabilities, strict=True)
        write_csv(path, [["path", "label", "class", "probability"], *rows])


def evaluate_images(
    model: AdaptedModel,
    images: ImageSet,
    reading: ReadOptions,
    progress: Progress | None = None,
    *,
    held_out: bool = False,
) -> Report:
    """Predict labelled images.

    With `held_out`, training images are predicted by fits that did not see them; those that cannot be held
    out, as the only one of their class, are left out.
    """
    require_known(images, model.classes)
    extraction = encode(model.encoder, images.images, reading, progress=progress)
    require_every_class(images, [images.labels[i] for i in extraction.kept])
    report = evaluate_features(model, images, extraction, held_out=held_out)
    if not images.negatives:
        return report
    negatives = encode(model.encoder, images.negatives, reading)
    rejected = np.array(predict(model, negatives.features[0]).is_rejected)
    return replace(report, negatives=rejected, skipped=[*report.skipped, *negatives.bad])


def evaluate_features(
    model: AdaptedModel, images: ImageSet, extraction: Extraction, *, held_out: bool = False
) -> Report:
    """Predict images by their features."""
    y, x = np.array(images.subset(extraction.kept).labels), extraction.features[0]
    logits, task = model.fitted.logits(x), model.support.task
    place = {key: i for i, key in enumerate(model.support.hashes)}
    support_image = np.array([place.get(key, -1) for key in extraction.hashes])
    in_support, is_held_out = support_image >= 0, np.zeros(len(y), bool)
    groups, chosen = -1 - np.arange(len(y)), np.ones(len(y), bool)
    if task is not None:
        groups = np.where(in_support, task.groups[support_image], groups)
    if held_out and task is not None and in_support.any():
        out = model.held_out()
        is_held_out = np.isin(support_image, out.images)
        logits[is_held_out] = out.logits[np.searchsorted(out.images, support_image[is_held_out])]
        chosen = is_held_out | ~in_support
    places = np.array(extraction.kept)[chosen].tolist()
    return Report(
        model, [image_name(images.images[i], i) for i in places], [images.images[i] for i in places], places,
        y[chosen], x[chosen], logits[chosen], in_support[chosen], is_held_out[chosen], groups[chosen],
        extraction.bad,
    )  # fmt: skip


def evaluate_support(model: AdaptedModel) -> Report:
    """Predict the training images by fits that did not see them; there are no image files."""
    task, out = model.task(), model.held_out()
    every = np.ones(len(out), bool)
    names = [f"support image {i + 1}" for i in out.images]
    return Report(
        model, names, None, out.images.tolist(), out.y, task.x[0, out.images], out.logits, every, every,
        task.groups[out.images], [],
    )  # fmt: skip
