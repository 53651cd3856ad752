"""What the page shows about a project: figures of a fit, and slow figures that are computed afterwards.

Everything here is a function from one snapshot of a project to JSON. Images and classes are named by id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.grow import brief_curve
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app.encoding import EncodedProject
from prolip.app.state import State
from prolip.core import Projected, UsageError
from prolip.core.arrays import Array, unit_rows
from prolip.evaluate.label_errors import find_label_errors
from prolip.evaluate.metrics import wilson
from prolip.evaluate.near_copies import connected, near_copies, open_signature
from prolip.evaluate.suggestions import suggest

MAX_PREDICTIONS = 2000  # unlabelled images whose predictions are sent to the page
SUGGESTED = 12  # images at the head of the queue that are chosen; the others keep their order
SEARCH_PROMPTS = ("{}", "a photo of {}.", "a picture of {}.")
COMPARED = 4000  # images among which near-copies are searched, pair by pair


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The encoded images that a person has labelled.

    Labels that predictions gave are left out until a person confirms them. Trained on, they would bring what
    the model has seen into its held-out figures, and they do not help reliably
    (docs/measurements/unlabelled.md).
    """

    images: tuple[str, ...]  # ids, [n]
    classes: tuple[str, ...]  # ids of classes: those that have such an image, then those by name alone, [K]
    x: Array  # features [n, width]
    y: Array  # labels [n], indices into `classes`
    negatives: Array  # features [j, width] of the images in classes that are named as in NEGATIVES

    @classmethod
    def of(cls, state: State, features: Mapping[str, Array]) -> TrainingSet:
        """Collect all images that are labelled and encoded."""
        labels = {
            key: row.label
            for key, row in state.images.items()
            if row.label is not None and not (row.test or row.machine) and key in features
        }
        nothing = set(state.negative_classes())
        images = [key for key, label in labels.items() if label not in nothing]
        present = {labels[key] for key in images}
        classes = [key for key in state.ordered_classes() if key not in nothing]
        classes.sort(key=lambda key: key not in present)
        y = np.array([classes.index(labels[key]) for key in images], np.int64)
        x, negatives = (
            np.stack([features[key] for key in keys]) if keys else np.zeros((0, 1), np.float32)
            for keys in (images, sorted(labels.keys() - images))
        )
        return cls(tuple(images), tuple(classes), x, y, negatives)


@dataclass(frozen=True, eq=False)
class TrainedSnapshot:
    """A project at one revision, and the model that was trained on it."""

    revision: int
    state: State
    features: Mapping[str, Array]  # [width] by image, of those that are encoded
    training: TrainingSet
    model: AdaptedModel | None  # None until two classes have an image each

    def require_model(self) -> AdaptedModel:
        """Return the model, or raise an error that says why there is none."""
        if self.model is None:
            raise UsageError("there is no model yet: add images to two classes first")
        return self.model

    def unlabelled(self) -> list[str]:
        """The encoded images without a label."""
        return [key for key in self.state.members(None) if key in self.features]


def training_figures(snapshot: TrainedSnapshot) -> dict[str, Any]:
    """Return the figures of a fit. What changed since the fit before, the page itself compares, by image."""
    model, training, state = snapshot.model, snapshot.training, snapshot.state
    if model is None:
        return {"type": "figures", "revision": snapshot.revision, "ready": False, "classes": {}}
    figures = model.confidence.figures
    held_out, label_errors = _held_out(snapshot, model)
    return {
        "type": "figures",
        "revision": snapshot.revision,
        "model": model.encoder.name,
        "ready": True,
        "classes": dict(zip(training.classes, figures.per_class or (), strict=False)),
        "accuracy": figures.accuracy,
        "interval": figures.accuracy_interval,
        "held_out_accuracy": figures.held_out_accuracy,  # of fits on parts of the images
        "too_few": figures.too_few,
        "learned_little": figures.learned_little,
        "near_copies": model.report["near_copies"],  # training images that have near-copies
        "images": model.report["images"],
        "independent": model.report["independent"],  # images, with near-copies counted as one
        "zero_shot_accuracy": figures.zero_shot_accuracy,  # of the same images
        "held_out": held_out,
        "label_errors": {key: found for key, found in label_errors.items() if not state.images[key].checked},
        "predictions": _predictions(snapshot, model, snapshot.unlabelled()[:MAX_PREDICTIONS]),
        "test": _test_figures(snapshot, model),
        "negatives": state.negative_classes(),
    }


def _test_figures(snapshot: TrainedSnapshot, model: AdaptedModel) -> dict[str, Any] | None:
    """Return the accuracy on test images, its interval, and their predictions; None without any."""
    rows = snapshot.state.images
    images = [key for key, row in rows.items() if row.test and key in snapshot.features]
    if not images:
        return None
    predictions = _predictions(snapshot, model, images)
    negatives = snapshot.state.negative_classes()
    right = sum(
        none if rows[key].label in negatives else best == rows[key].label
        for key, (best, _, none) in predictions.items()
    )
    interval = wilson(right, len(images))
    return {"accuracy": right / len(images), "interval": interval, "predictions": predictions}


def _held_out(snapshot: TrainedSnapshot, model: AdaptedModel) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return held-out predictions and label errors.

    A prediction is [class, its probability, the probability of the label], a label error the class that the
    image probably shows, the most doubtful label first.
    """
    training, held_out = snapshot.training, model.confidence.held_out
    if held_out is None or not len(held_out):
        return {}, {}
    images = [training.images[i] for i in held_out.images]
    x, groups = training.x[held_out.images], model.support.require_task().groups[held_out.images]
    predicted = predict(model, x, logits=held_out.logits)
    predictions = {
        key: [training.classes[k], round(float(row[k]), 4), round(float(row[y]), 4)]
        for key, k, y, row in zip(images, predicted.best, held_out.y, predicted.probabilities, strict=True)
    }
    doubts = find_label_errors(predicted.probabilities, x, held_out.y, groups)
    return predictions, {images[doubt.index]: training.classes[doubt.suggestion] for doubt in doubts}


def _predictions(snapshot: TrainedSnapshot, model: AdaptedModel, images: list[str]) -> dict[str, list[Any]]:
    """Predict images: [class, probability, whether it is out of distribution] each."""
    if not images:
        return {}
    x = np.stack([snapshot.features[key] for key in images])
    predicted = predict(model, x, PredictOptions(reject=True))
    rows = zip(images, predicted.best, predicted.confidence, predicted.is_rejected, strict=True)
    return {key: [snapshot.training.classes[k], round(float(p), 4), no] for key, k, p, no in rows}


def search(
    encoded: EncodedProject,
    trained: TrainedSnapshot,
    images: Sequence[str],
    words: str = "",
    like: Sequence[str] = (),
) -> list[str]:
    """Rank those of the images that are encoded by words, or by examples, or by both; the nearest first.

    Texts, images and the mean of examples are compared by their cosine, in the adapted projection where there
    is one.
    """
    features, encoder, model = encoded.features, encoded.encoder, trained.model
    known = [key for key in images if key in features]
    examples = [key for key in like if key in features]
    if not words.strip() and not examples:
        raise UsageError("write what to search for, or choose an image that is encoded")
    if not known:
        return []
    fitted = model.fitted if model is not None and model.encoder is encoder else None
    project = fitted.embed if isinstance(fitted, Projected) else encoder.head

    def embed(keys: Sequence[str]) -> Array:
        return unit_rows(project(np.stack([features[key] for key in keys])))

    targets = [encoder.text([words.strip()], SEARCH_PROMPTS).rows[0]] if words.strip() else []
    if examples:
        targets.append(unit_rows(embed(examples).mean(axis=0, keepdims=True))[0])
    scores = embed(known) @ np.mean(targets, axis=0)
    return [known[i] for i in np.argsort(-scores, kind="stable")]


# Slow figures. Each takes seconds for a large project.


def duplicate_groups(snapshot: TrainedSnapshot, thumbnail: Callable[[str], Path]) -> list[list[str]]:
    """Group images that are nearly the same by their features and by their thumbnails' pixels."""
    known = [key for key in snapshot.state.images if key in snapshot.features][:COMPARED]
    if not known:
        return []
    x = np.stack([snapshot.features[key] for key in known])
    pairs = near_copies(x, lambda i: open_signature(thumbnail(known[i])))
    return [[known[i] for i in group] for group in connected(pairs)]


def label_queue(snapshot: TrainedSnapshot) -> list[str]:
    """Order unlabelled images, those most worth a label first."""
    model, unlabelled = snapshot.model, snapshot.unlabelled()
    if model is None or len(unlabelled) < 2:
        return unlabelled
    x, head = np.stack([snapshot.features[key] for key in unlabelled]), model.encoder.head
    (inputs, _), (labelled, _) = head.split(x), head.split(snapshot.training.x)
    chosen = suggest(inputs, model.probabilities(x), labelled, SUGGESTED)
    first = [unlabelled[suggestion.index] for suggestion in chosen]
    return first + [key for key in unlabelled if key not in set(first)]


def curve_report(model: AdaptedModel | None, progress: Callable[..., None]) -> dict[str, Any] | str:
    """Return the learning curve with its forecast, or why there is none."""
    curve = "" if model is None else brief_curve(model, progress)
    return curve if isinstance(curve, str) else curve.report()
