"""What the held-out answers and the features tell about the labels: pure functions on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.core.held_out import HeldOut
from prolip.evaluate.confidence import Confidence

# Cosine of features, less their mean, from which two pictures count as near-duplicates. Offline encoder, 8
# photos each of 10 classes of pets, birds and clothes: two different photos reach 0.77 at most. Of copies,
# 99 % of those cropped by 3 % or brightened by 15 % lie above, and half of those saved at JPEG quality 30.
ALIKE = 0.85
MOST = 4000  # pictures that are compared in pairs


def held_out_answers(confidence: Confidence) -> tuple[HeldOut, Array]:
    """Held-out answers of a fit and their calibrated probabilities [m, K]; empty where there are none."""
    held_out = confidence.held_out
    if held_out is None or not len(held_out):
        empty = np.zeros(0, np.int64)
        return HeldOut(np.zeros((0, 1)), empty, empty), np.zeros((0, 1))
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


def near_duplicates(x: Array) -> list[list[int]]:
    """Groups of pictures that are nearly the same, of features [n, width]."""
    if len(x) < 3:  # less their mean, two pictures are opposites
        return []
    x = x[:MOST].astype(np.float32)
    rows = unit_rows(x - x.mean(axis=0))
    parent = list(range(len(rows)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in zip(*np.nonzero(np.triu(rows @ rows.T > ALIKE, 1)), strict=True):
        a, b = root(int(i)), root(int(j))
        parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for i in range(len(rows)):
        groups.setdefault(root(i), []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def flips(before: dict[str, Any], now: dict[str, Any], labels: dict[str, str | None]) -> dict[str, int]:
    """Of pictures answered before and now (id: class), how many became right, and how many wrong."""
    common = [key for key in now if key in before]
    right = sum(now[key] == labels.get(key) != before[key] for key in common)
    wrong = sum(before[key] == labels.get(key) != now[key] for key in common)
    return {"right": right, "wrong": wrong}
