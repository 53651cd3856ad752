"""How good a model is on labelled images: accuracy, calibration, and what it would refuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from prolip.api.answer import features
from prolip.api.model import AdaptedModel
from prolip.api.reading import Labelled, Progress, Reading, require_known
from prolip.core.arrays import softmax
from prolip.evaluate import metrics
from prolip.evaluate.calibration import fit_factor
from prolip.features import duplicates


def evaluate(
    model: AdaptedModel, labelled: Labelled, reading: Reading, progress: Progress | None = None
) -> dict[str, Any]:
    """The figures that `FewShotClassifier.evaluate` tells of."""
    require_known(labelled, model.classes)
    found = features(model, labelled.images, reading, progress)
    x, y = found.features[0], np.array([labelled.y[i] for i in found.kept])
    before = x
    if model.fitted.encoder_for(model.encoder) is not model.encoder:  # the fit changed the tower
        before = reading.features(model.encoder, labelled.images, progress=progress).features[0]
    probabilities = model.probabilities(x)
    as_fitted = softmax(model.fitted.logits(x) * fit_factor(model.fitted))
    rejected = None
    if model.confidence.outsiders is not None:
        rejected = float(model.rejects(x, probabilities.argmax(axis=1)).mean())
    return {
        "accuracy": metrics.accuracy(probabilities, y),
        "per_class": metrics.per_class_accuracy(probabilities, y),
        "calibration_error": metrics.calibration_error(probabilities, y),
        "calibration_error_before": metrics.calibration_error(as_fitted, y),
        "calibration_error_floor": metrics.calibration_floor(probabilities),
        "rejected": rejected,
        "zero_shot_accuracy": metrics.accuracy(model.zero_shot().logits(before), y),
        "classes": list(model.classes),
        "counts": np.bincount(y, minlength=len(model.classes)).tolist(),
        "images": len(y),
        "skipped": len(found.bad),
        "duplicates": len(duplicates(model.support.hashes, found.hashes)),
    }
