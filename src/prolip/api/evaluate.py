"""How good a model is on labelled images: accuracy, calibration, and what it would refuse."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.groups import Groups
from prolip.api.grow import held_out_predictions, support_of
from prolip.api.model import AdaptedModel
from prolip.api.predict import features
from prolip.api.reading import Labelled, Progress, Reading, require_known
from prolip.core import UsageError
from prolip.core.arrays import Array, softmax
from prolip.core.names import csv_row
from prolip.evaluate import metrics
from prolip.evaluate.calibration import fit_factor
from prolip.features import Extraction
from prolip.io.files import readable
from prolip.io.writing import write_bytes

_NOTHING_HELD_OUT = (
    "every class has a single image, and none can be held out: name a folder of other images to ask about"
)


@dataclass(frozen=True, eq=False)
class LabelledPredictions:
    """What a model says about labelled images."""

    names: list[str]  # what each image is called: its path, where it has one
    images: list[Any] | None  # the images as they came, to be opened again; None where they are not at hand
    y: Array  # labels [n]
    x: Array  # features [n, width] of the base model, before the fit
    logits: Array  # of the fitted model, [n, K], not divided by the temperature
    zero_shot: Array  # logits [n, K] before the fit
    in_support: Array  # which images the model was fitted on, [n]
    held_out: Array  # which of them were answered by a fit that did not see them, [n]
    refused: Array | None  # which images seem to belong to no class, [n]; None where that cannot be told
    skipped: list[tuple[str, str]]  # (image, reason) of images that could not be read

    def probabilities(self, model: AdaptedModel) -> Array:
        """Calibrated probabilities [n, K]."""
        return softmax(self.logits / model.confidence.temperature)


def predict_labelled(
    model: AdaptedModel,
    labelled: Labelled,
    reading: Reading,
    progress: Progress | None = None,
    *,
    out_of_fold: bool = False,
) -> LabelledPredictions:
    """Ask a model about labelled images.

    With `out_of_fold`, images that it was fitted on are predicted by fits that did not see them; those that
    cannot be held out, as the only one of their class, are left out.
    """
    require_known(labelled, model.classes)
    found = features(model, labelled.images, reading, progress)
    before = None
    if model.fitted.encoder_for(model.encoder) is not model.encoder:  # the fit changed the tower
        before = reading.features(model.encoder, labelled.images, progress=progress).features[0]
    return predict_labelled_features(model, labelled, found, before, out_of_fold=out_of_fold)


def predict_labelled_features(
    model: AdaptedModel,
    labelled: Labelled,
    found: Extraction,
    before: Array | None = None,
    *,
    out_of_fold: bool = False,
) -> LabelledPredictions:
    """The same for images whose features are there; `before` [n, width] are the base model's, if others."""
    y, x = np.array([labelled.y[i] for i in found.kept]), found.features[0]
    before, logits = x if before is None else before, model.fitted.logits(x)
    refused = None
    if model.confidence.out_of_distribution is not None:
        refused = model.rejects(x, logits.argmax(axis=1))
    place = {key: i for i, key in enumerate(model.support.hashes)}
    in_support = np.array([key in place for key in found.hashes])
    held_out, kept = np.zeros(len(y), bool), np.ones(len(y), bool)
    if out_of_fold and in_support.any() and _can_hold_out(model):
        answers = held_out_predictions(model)
        row_of = {place: row for row, place in enumerate(answers.images.tolist())}
        rows = [row_of.get(place.get(key, -1), -1) for key in found.hashes]
        held_out = np.array(rows) >= 0
        logits = np.where(held_out[:, None], answers.logits[rows], logits) if len(answers) else logits
        kept = held_out | ~in_support
    if not kept.any():
        raise UsageError(_NOTHING_HELD_OUT)
    sources, chosen = [labelled.images[i] for i in found.kept], np.flatnonzero(kept)
    return LabelledPredictions(
        [image_name(sources[i], found.kept[i]) for i in chosen],
        [sources[i] for i in chosen] if model.encoder.encodes_images else None,
        y[kept], before[kept], logits[kept], model.zero_shot().logits(before[kept]),
        in_support[kept], held_out[kept], None if refused is None else refused[kept], found.bad,
    )  # fmt: skip


def predict_held_out(model: AdaptedModel) -> LabelledPredictions:
    """Answers about support images by fits like this model's that did not see them; there are no pictures."""
    task = support_of(model)
    if not _can_hold_out(model):
        raise UsageError(
            f"{model.recipe.method} takes minutes to fit and is not cross-validated: name a folder of images"
        )
    answers = held_out_predictions(model)
    if not len(answers):
        raise UsageError(_NOTHING_HELD_OUT)
    x, n = task.x[0, answers.images], len(answers)
    out_of_distribution, refused = model.confidence.out_of_distribution, None
    if out_of_distribution is not None:
        refused = model.rejects(x, answers.logits.argmax(axis=1))
    names = [f"support image {i + 1}" for i in answers.images]
    seen = np.ones(n, bool)
    zero_shot = model.zero_shot().logits(x)
    return LabelledPredictions(names, None, answers.y, x, answers.logits, zero_shot, seen, seen, refused, [])


def figures(
    model: AdaptedModel, answers: LabelledPredictions, groups: Groups | None = None
) -> dict[str, Any]:
    """Accuracy, calibration and counts of answers, before and after the fit; by group too."""
    y, probabilities = answers.y, answers.probabilities(model)
    as_fitted = softmax(answers.logits * fit_factor(model.fitted))
    hits = float((probabilities.argmax(axis=1) == y).sum())
    found = {
        "accuracy": metrics.accuracy(probabilities, y),
        "accuracy_interval": list(metrics.wilson(hits, len(y))),
        "balanced_accuracy": metrics.balanced_accuracy(probabilities, y),
        "macro_f1": metrics.macro_f1(metrics.confusion(probabilities, y)),
        "per_class": metrics.per_class_accuracy(probabilities, y),
        "calibration_error": metrics.calibration_error(probabilities, y),
        "calibration_error_before": metrics.calibration_error(as_fitted, y),
        "calibration_error_floor": metrics.calibration_floor(probabilities),
        "rejected": None if answers.refused is None else float(answers.refused.mean()),
        "zero_shot_accuracy": metrics.accuracy(answers.zero_shot, y),
        "classes": list(model.classes),
        "counts": np.bincount(y, minlength=len(model.classes)).tolist(),
        "images": len(y),
        "skipped": len(answers.skipped),
        "duplicates": int(answers.in_support.sum()),
    }
    if groups is not None:
        by_group, group = groups.sum(probabilities), groups.labels(y)
        found["groups"] = {
            "names": list(groups.names),
            "accuracy": metrics.accuracy(by_group, group),
            "per_group": metrics.per_class_accuracy(by_group, group),
            "counts": np.bincount(group, minlength=len(groups.names)).tolist(),
        }
    return found


def write_predictions(
    path: Path, model: AdaptedModel, answers: LabelledPredictions, groups: Groups | None = None
) -> None:
    """A .csv with the path, the truth, the answer and its probability of every image; by group too."""
    if path.suffix.lower() != ".csv":
        raise UsageError(f"answers go to a .csv, not to {path.name}")
    probabilities = answers.probabilities(model)
    classes, tables = model.classes, [(probabilities, answers.y)]
    header = ["path", "truth", "answer", "probability"]
    names: list[Any] = [classes]
    if groups is not None:
        tables.append((groups.sum(probabilities), groups.labels(answers.y)))
        names.append(groups.names)
        header += ["truth_group", "answer_group", "probability_group"]
    rows = [csv_row(header)]
    for i, name in enumerate(answers.names):
        cells: list[Any] = [name]
        for own, (p, y) in zip(names, tables, strict=True):
            best = int(p[i].argmax())
            cells += [own[y[i]], own[best], round(float(p[i, best]), 6)]
        rows.append(csv_row(cells))
    write_bytes(path, "".join(rows).encode())


def _can_hold_out(model: AdaptedModel) -> bool:
    """Whether fits on parts of the support set can be made, and take moments."""
    return model.support.task is not None and not model.method().trains_tower


def image_name(source: Any, place: int) -> str:
    """What an image is called: its path, or its number from 1 on."""
    return readable(str(source)) if isinstance(source, (str, os.PathLike)) else f"image {place + 1}"
