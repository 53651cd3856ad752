"""How good predictions are: accuracy, per class too, and whether probabilities mean what they say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def accuracy(logits: Tensor, y: Tensor) -> float:
    """The fraction of rows [m, K] whose largest entry is the label."""
    return float((logits.argmax(dim=1) == y).double().mean())


def per_class_accuracy(logits: Tensor, y: Tensor) -> list[float | None]:
    """Accuracy among the images of each class; None for a class without images."""
    hits = logits.argmax(dim=1) == y
    values: list[float | None] = []
    for k in range(logits.shape[1]):
        mine = hits[y == k]
        values.append(float(mine.double().mean()) if len(mine) else None)
    return values


def confusion(logits: Tensor, y: Tensor) -> Tensor:
    """Counts [K, K]: row is the truth, column the answer."""
    k = logits.shape[1]
    return torch.bincount(y * k + logits.argmax(dim=1), minlength=k * k).reshape(k, k)


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: |confidence - accuracy|, weighted over bins of equal width.

    0 means that of the answers given with 80 % confidence, 80 % are right.
    """
    confidence, answer = probabilities.max(dim=1)
    hits = (answer == y).double()
    index = (confidence.double() * bins).long().clamp(max=bins - 1)
    count = torch.bincount(index, minlength=bins).double()
    gap = torch.zeros(bins, dtype=torch.float64).index_add(0, index, hits - confidence.double()).abs()
    return float(gap.sum() / count.sum())


def calibration_floor(probabilities: Tensor, bins: int = 15, draws: int = 100) -> float:
    """What `calibration_error` shows by chance alone, for answers that mean exactly what they say.

    A bin of few images is never hit exactly: with 200 images this is several per cent. It is the mean over
    labels that are drawn from the probabilities themselves.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(probabilities.float(), draws, replacement=True, generator=generator)
    return sum(calibration_error(probabilities, y, bins) for y in drawn.T) / draws


def summary(logits: Tensor, y: Tensor) -> dict[str, Any]:
    """The figures of one evaluation."""
    return {
        "accuracy": accuracy(logits, y),
        "calibration_error": calibration_error(logits.softmax(dim=1), y),
        "per_class": per_class_accuracy(logits, y),
    }
