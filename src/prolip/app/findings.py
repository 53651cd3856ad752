"""What the held-out answers and the features tell about the labels: pure functions on arrays."""

from typing import Any

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.core.held_out import HeldOutPredictions
from prolip.evaluate.confidence import Confidence


def held_out_predictions(confidence: Confidence) -> tuple[HeldOutPredictions, Array]:
    """Held-out answers of a fit and their calibrated probabilities [m, K]; empty where there are none."""
    held_out = confidence.held_out
    if held_out is None or not len(held_out):
        empty = np.zeros(0, np.int64)
        return HeldOutPredictions(np.zeros((0, 1)), empty, empty), np.zeros((0, 1))
    return held_out, softmax(held_out.logits / confidence.temperature)


def suspects(probabilities: Array, y: Array) -> Array:
    """Which pictures are called something else than their label says: the surest first, [s]."""
    best = probabilities.argmax(axis=1)
    rows = np.arange(len(y))
    margin = probabilities[rows, best] - probabilities[rows, y]
    wrong = np.flatnonzero(best != y)
    return wrong[np.argsort(-margin[wrong], kind="stable")]


def zero_shot_right(task: Task) -> Array:
    """Which support pictures the class texts alone would get right, bool [n]."""
    embedded = unit_rows(task.embeddings()[0])
    return (embedded @ task.text.rows.T).argmax(axis=1) == task.y


def flips(before: dict[str, Any], now: dict[str, Any], labels: dict[str, str | None]) -> dict[str, int]:
    """Of pictures answered before and now (id: class), how many became right, and how many wrong."""
    common = [key for key in now if key in before]
    right = sum(now[key] == labels.get(key) != before[key] for key in common)
    wrong = sum(before[key] == labels.get(key) != now[key] for key in common)
    return {"right": right, "wrong": wrong}
