"""What of a project can be learned now, and the figures that a fit of it gives to the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app.findings import flips, held_out_predictions, suspects, zero_shot_right
from prolip.app.state import State
from prolip.core.arrays import Array

GUESSES = 2000  # unlabelled pictures whose answers are sent to the page


@dataclass(frozen=True, eq=False)
class Lesson:
    """Encoded pictures with labels."""

    images: tuple[str, ...]  # their ids, [n]
    classes: tuple[str, ...]  # the ids of classes that have such a picture, [K]
    x: Array  # features [n, width]
    y: Array  # labels [n], places in `classes`

    @classmethod
    def of(cls, state: State, features: Mapping[str, Array]) -> Lesson:
        """All that is labelled and encoded."""
        images = [key for key, row in state.images.items() if row.label is not None and key in features]
        present = {state.images[key].label for key in images}
        classes = [key for key in state.ordered_classes() if key in present]
        place = {key: k for k, key in enumerate(classes)}
        y = np.array([place[state.images[key].label or ""] for key in images], np.int64)
        x = np.stack([features[key] for key in images]) if images else np.zeros((0, 1), np.float32)
        return cls(tuple(images), tuple(classes), x, y)

    @property
    def ready(self) -> bool:
        """Whether there is something to tell apart."""
        return len(self.classes) > 1


def figures_of(
    lesson: Lesson,
    model: AdaptedModel | None,
    state: State,
    features: Mapping[str, Array],
    before: dict[str, Any],
) -> dict[str, Any]:
    """What the page shows after a fit, as JSON has it; `before` are the figures that it shows now."""
    counts = Counter(row.label for row in state.images.values() if row.label is not None)
    classes: dict[str, dict[str, Any]] = {key: {"images": counts[key]} for key in state.classes}
    figures: dict[str, Any] = {"type": "figures", "ready": model is not None, "classes": classes}
    if model is None:
        return figures
    held_out, probabilities = held_out_predictions(model.confidence)
    report, old = model.confidence.report, before.get("classes", {})
    text_right = zero_shot_right(model.support.require_task())
    for k, key in enumerate(lesson.classes):
        classes[key] |= {
            "accuracy": (report.get("per_class") or [None] * len(lesson.classes))[k],
            "before": old.get(key, {}).get("accuracy"),
            "text_accuracy": float(text_right[lesson.y == k].mean()),
        }
    answers = {
        lesson.images[i]: [
            lesson.classes[int(row.argmax())],
            round(float(row.max()), 4),
            round(float(row[y]), 4),
        ]
        for i, y, row in zip(held_out.images, held_out.y, probabilities, strict=True)
    }
    called = {key: answer[0] for key, answer in answers.items()}
    called_before = {key: answer[0] for key, answer in before.get("answers", {}).items()}
    labels = {key: row.label for key, row in state.images.items()}
    suspected = [lesson.images[held_out.images[i]] for i in suspects(probabilities, held_out.y)]
    return figures | {
        "accuracy": report.get("accuracy"),
        "before": before.get("accuracy"),
        "text_accuracy": report.get("zero_shot_accuracy"),
        "judged": len(held_out),
        "flips": flips(called_before, called, labels),
        "answers": answers,
        "suspects": [key for key in suspected if not state.images[key].checked],
        "guesses": _guesses(lesson, model, state, features),
    }


def _guesses(
    lesson: Lesson, model: AdaptedModel, state: State, features: Mapping[str, Array]
) -> dict[str, list[Any]]:
    """What the model says about pictures without a label: class, probability, and whether it is none."""
    open_ = [key for key in state.members(None) if key in features][:GUESSES]
    if not open_:
        return {}
    x = np.stack([features[key] for key in open_])
    found = predict(model, x, PredictOptions(reject=True))
    rows = zip(open_, found.best, found.confidence, found.is_rejected, strict=True)
    return {key: [lesson.classes[k], round(float(p), 4), no] for key, k, p, no in rows}
