"""Evaluate a model on labelled images: accuracy, calibration, and what it would reject."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.grow import held_out_predictions, support_of
from prolip.api.inputs import require_known
from prolip.api.model import AdaptedModel
from prolip.api.predict import Predictions, PredictOptions, predict
from prolip.api.support import ReadOptions, encode, image_name, require_all_classes
from prolip.core import UsageError
from prolip.core.arrays import Array, group_weights, softmax
from prolip.core.tabular import Tabular
from prolip.data import ImageSet
from prolip.evaluate import metrics
from prolip.evaluate.confidence import fold_share
from prolip.evaluate.figures import Figures
from prolip.evaluate.label_errors import LabelError, find_label_errors
from prolip.features import Extraction
from prolip.io.csv import write_csv
from prolip.io.progress import Progress

_NONE_HELD_OUT = "every class has a single image, and none can be held out: name a folder of others"


@dataclass(frozen=True, eq=False)
class LabelledPredictions:
    """Predictions for labelled images."""

    names: list[str]  # path of each image, or its number
    images: list[Any] | None  # the images, to be opened again; None if there are only features
    y: Array  # labels [n]
    x: Array  # features [n, width] of the base model
    logits: Array  # of the fitted model, [n, K], not divided by the temperature
    predictions: Predictions  # calibrated; `rejected` is None if the model cannot reject
    zero_shot: Array  # logits [n, K] before the fit
    in_support: Array  # which images the model was fitted on, [n]
    held_out: Array  # which of them were predicted by a fit that did not see them, [n]
    groups: Array  # of near-copies among the images that the model was fitted on; others are alone, [n]
    skipped: list[tuple[str, str]]  # (image, reason) of images that could not be read

    @property
    def probabilities(self) -> Array:
        """Calibrated probabilities [n, K]."""
        return self.predictions.probabilities

    def label_errors(self) -> list[LabelError]:
        """Return the images whose labels are suspicious, worst first; `index` counts in `names`."""
        return find_label_errors(self.probabilities, self.x, self.y, self.groups)


@dataclass(frozen=True, eq=False)
class Report(Tabular):
    """What a model predicts for labelled images: figures, confusion matrix and mistakes.

    The figures are attributes, too: `report.accuracy` is `report.figures.accuracy`.
    """

    classes: tuple[Any, ...]
    figures: Figures
    labelled: LabelledPredictions

    @classmethod
    def of(cls, model: AdaptedModel, labelled: LabelledPredictions) -> Report:
        """Compute the report of predictions."""
        return cls(model.classes, figures(model, labelled), labelled)

    def __getattr__(self, name: str) -> Any:
        """Return a figure, such as `accuracy`."""
        if name.startswith("_") or name == "figures":
            raise AttributeError(name)
        return getattr(self.figures, name)

    def __repr__(self) -> str:
        low, high = self.accuracy_interval or (0.0, 1.0)
        held_out = int(self.labelled.held_out.sum())
        return (
            f"Report(accuracy {self.accuracy:.3f}, 95 % interval {low:.3f} to {high:.3f}, on {self.images} "
            f"images, {held_out} of them held-out training images; zero-shot {self.zero_shot_accuracy:.3f})"
        )

    @property
    def confusion(self) -> Array:
        """The number of images by label and predicted class, [K, K]."""
        return metrics.confusion(self.labelled.probabilities, self.labelled.y)

    @property
    def mistakes(self) -> list[dict[str, Any]]:
        """The images that are predicted wrong, the most confident first."""
        predictions, y = self.labelled.predictions, self.labelled.y
        order = np.argsort(-predictions.confidence, kind="stable").tolist()
        wrong = [i for i in order if predictions.best[i] != y[i]]
        return [
            {
                "image": self.labelled.names[i],
                "label": self.classes[y[i]],
                "predicted": self.classes[predictions.best[i]],
                "probability": float(predictions.confidence[i]),
            }
            for i in wrong
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return images, accuracy and the most frequent wrong prediction of each class."""
        rows = []
        for name, counts, k in zip(self.classes, self.confusion, range(len(self.classes)), strict=True):
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
        if path.suffix.lower() != ".csv":
            raise UsageError(f"predictions go to a .csv file, not to {path.name}")
        predictions = self.labelled.predictions
        probabilities = [round(float(p), 6) for p in predictions.confidence]
        labels, best = ([self.classes[k] for k in indices] for indices in (self.labelled.y, predictions.best))
        rows = zip(self.labelled.names, labels, best, probabilities, strict=True)
        write_csv(path, [["path", "label", "class", "probability"], *rows])


def predict_labelled(
    model: AdaptedModel,
    images: ImageSet,
    reading: ReadOptions,
    progress: Progress | None = None,
    *,
    out_of_fold: bool = False,
) -> LabelledPredictions:
    """Predict labelled images.

    With `out_of_fold`, training images are predicted by fits that did not see them; those that cannot be held
    out, as the only one of their class, are left out.
    """
    require_known(images, model.classes)
    extraction = encode(model.encoder, images.images, reading, progress=progress)
    require_all_classes(images, extraction)
    return predict_labelled_features(model, images, extraction, out_of_fold=out_of_fold)


def predict_labelled_features(
    model: AdaptedModel, images: ImageSet, extraction: Extraction, *, out_of_fold: bool = False
) -> LabelledPredictions:
    """Predict images by their features."""
    kept, x = images.subset(extraction.kept), extraction.features[0]
    y, logits = np.array(kept.labels), model.fitted.logits(x)
    place = {key: i for i, key in enumerate(model.support.hashes)}
    in_support = np.array([key in place for key in extraction.hashes])
    groups = -1 - np.arange(len(y))
    if (task := model.support.task) is not None:
        groups = np.where(in_support, [task.groups[place.get(key, 0)] for key in extraction.hashes], groups)
    held_out, used = np.zeros(len(y), bool), np.ones(len(y), bool)
    if out_of_fold and in_support.any() and model.support.task is not None:
        out = held_out_predictions(model)
        row_of = {image: row for row, image in enumerate(out.images.tolist())}
        rows = [row_of.get(place.get(key, -1), -1) for key in extraction.hashes]
        held_out = np.array(rows) >= 0
        logits = np.where(held_out[:, None], out.logits[rows], logits) if len(out) else logits
        used = held_out | ~in_support
    if not used.any():
        raise UsageError(_NONE_HELD_OUT)
    chosen = np.flatnonzero(used)
    return LabelledPredictions(
        [image_name(kept.images[i], extraction.kept[i]) for i in chosen],
        [kept.images[i] for i in chosen],
        y[used], x[used], logits[used], _predictions(model, x[used], logits[used]),
        model.zero_shot().logits(x[used]), in_support[used], held_out[used], groups[used],
        extraction.bad,
    )  # fmt: skip


def predict_held_out(model: AdaptedModel) -> LabelledPredictions:
    """Return the predictions for training images by fits that did not see them; there are no image files."""
    task = support_of(model)
    out = held_out_predictions(model)
    if not len(out):
        raise UsageError(_NONE_HELD_OUT)
    x, every = task.x[0, out.images], np.ones(len(out), bool)
    names = [f"support image {i + 1}" for i in out.images]
    return LabelledPredictions(
        names, None, out.y, x, out.logits, _predictions(model, x, out.logits), model.zero_shot().logits(x),
        every, every, task.groups[out.images], [],
    )  # fmt: skip


def figures(model: AdaptedModel, labelled: LabelledPredictions) -> Figures:
    """Compute the figures of predictions."""
    task, share = model.support.task, None
    if task is not None and labelled.held_out.all():
        share = fold_share(model.fitted, task)
    return Figures.of(
        labelled.probabilities,
        labelled.y,
        zero_shot=labelled.zero_shot,
        uncalibrated=softmax(labelled.logits),
        rejected=labelled.predictions.rejected,
        classes=model.classes,
        skipped=len(labelled.skipped),
        weights=group_weights(labelled.groups, labelled.y),
        share=share,
        duplicates=int(labelled.in_support.sum()),
    )


def _predictions(model: AdaptedModel, x: Array, logits: Array) -> Predictions:
    """Return calibrated predictions of these logits, and what would be rejected where that is known."""
    return predict(model, x, PredictOptions(), logits)
