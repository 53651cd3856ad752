"""How good a classifier is on labelled images: accuracy, calibration, and what it would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.api.inputs import images_and_labels
from prolip.core import InputError
from prolip.core.arrays import Array, as_labels, softmax
from prolip.encoders.arrays import Arrays, read_arrays
from prolip.evaluate import metrics
from prolip.evaluate.calibration import fit_factor
from prolip.features import duplicates

if TYPE_CHECKING:
    from prolip.api.classifier import FewShotClassifier, Progress


def _by_name(arrays: Arrays, classes: list[Any]) -> Array:
    """Labels [n] as numbers of the model's classes, whatever order the file has them in."""
    assert arrays.y is not None
    if arrays.classes is None:
        return as_labels(arrays.y, len(classes))
    place = {str(name): k for k, name in enumerate(classes)}
    names = [arrays.classes[k] for k in arrays.y.tolist()]
    if unknown := [name for name in names if name not in place]:
        raise InputError(f"class {unknown[0]!r} is not among the {len(classes)} classes of this model")
    return np.array([place[name] for name in names])


def evaluate(clf: FewShotClassifier, images: Any, labels: Any, progress: Progress | None) -> dict[str, Any]:
    """The figures that `FewShotClassifier.evaluate` tells of."""
    skipped, repeated = 0, 0
    before: Array | None = None  # the base model's features, where the fit changed the tower
    if clf.model == "arrays":
        arrays = read_arrays(images, labels)
        if arrays.y is None:
            raise InputError("to evaluate, embeddings need labels")
        x, y = arrays.x, _by_name(arrays, clf.classes_)
    else:
        source, given, _ = images_and_labels(images, labels, "test", clf.classes_)
        found = clf.features(source, progress=progress)
        x, y = found.features[0], np.array([given[i] for i in found.kept])
        skipped, repeated = len(found.bad), len(duplicates(clf.support_, found.hashes))
        if clf.fitted_.encoder_for(clf.encoder) is not clf.encoder:
            before = clf._extract(source, (0,), progress).features[0]
    probabilities = softmax(clf.calibrated(x))
    as_fitted = softmax(clf.fitted_.logits(x) * fit_factor(clf.fitted_))
    zero_shot = clf.zero_shot().logits(x if before is None else before)
    rejected = None
    if clf.confidence_.outsiders is not None:
        rejected = float(clf.outsiders(x, probabilities.argmax(axis=1)).mean())
    return {
        "accuracy": metrics.accuracy(probabilities, y),
        "per_class": metrics.per_class_accuracy(probabilities, y),
        "calibration_error": metrics.calibration_error(probabilities, y),
        "calibration_error_before": metrics.calibration_error(as_fitted, y),
        "calibration_error_floor": metrics.calibration_floor(probabilities),
        "rejected": rejected,
        "zero_shot_accuracy": metrics.accuracy(zero_shot, y),
        "classes": clf.classes_,
        "counts": np.bincount(y, minlength=len(clf.classes_)).tolist(),
        "images": len(y),
        "skipped": skipped,
        "duplicates": repeated,
    }
