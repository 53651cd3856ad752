"""Choosing hyperparameters: on a validation set, or by cross-validation inside the support set.

Never on test images. Folds are those that lam="auto" uses: the images of each class are dealt out one by
one. A class with one image cannot spare it; it stays in every training part. With one image of every class
there is nothing to hold out, and a method falls back to its fixed default.

A search over very many classes is run on a sample of them: what is searched for is a strength, not a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prolip.core import InputError, Task, Text
from prolip.methods.base import Method
from prolip.solvers.selection import assign_folds

FOLDS = 5
CLASSES = 100


@dataclass(frozen=True, eq=False)
class Split:
    """A task to fit on, and images to judge by: features x [m, Do], labels y [m]."""

    task: Task
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Score:
    """Accuracy on held-out images, and their mean log-likelihood, which settles ties."""

    accuracy: float
    likelihood: float

    def beats(self, other: Score) -> bool:
        """Whether this is strictly better."""
        return (self.accuracy, self.likelihood) > (other.accuracy, other.likelihood)


def splits(
    task: Task,
    validation: Task | None = None,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    classes: int | None = CLASSES,
) -> list[Split]:
    """The training and held-out parts that a search uses; none where nothing can be held out.

    Parameters
    ----------
    task
        The support set.
    validation
        Held-out images, if there are any: then they are the one split.
    folds
        How many.
    seed
        Of the shuffles.
    classes
        Search on a sample of this many classes where there are more; None never samples.
    """
    if validation is not None:
        if validation.classes != task.classes:
            raise InputError(
                f"the validation set has {validation.classes} classes, the support set {task.classes}"
            )
        return [Split(task, validation.x[0], validation.y)]
    if classes is not None and task.classes > classes:
        task = some_classes(task, classes, seed)
    fold = assign_folds(task, folds, seed).to(task.y.device)
    parts = []
    for k in range(folds):
        held, kept = (fold == k).nonzero()[:, 0], (fold != k).nonzero()[:, 0]
        if len(held):
            parts.append(Split(task.subset(kept), task.x[0, held], task.y[held]))
    return parts


def some_classes(task: Task, count: int, seed: int) -> Task:
    """The task on a sample of its classes, those with the most images first."""
    images = torch.bincount(task.y, minlength=task.classes)
    order = torch.randperm(task.classes, generator=torch.Generator().manual_seed(seed)).to(images.device)
    chosen = order[images[order].argsort(descending=True, stable=True)][:count].sort().values
    position = torch.full((task.classes,), -1, device=chosen.device).scatter_(
        0, chosen, torch.arange(count, device=chosen.device)
    )
    kept = (position[task.y] >= 0).nonzero()[:, 0]
    text = task.text
    rows = Text(
        text.rows[chosen],
        None if text.classes is None else tuple(text.classes[k] for k in chosen.tolist()),
        None if text.features is None else text.features[:, chosen],
        text.projection,
    )
    return Task(task.x[:, kept], position[task.y[kept]], rows, task.head, task.scale)


def score(logits: Sequence[Tensor], labels: Sequence[Tensor]) -> Score:
    """The score of out-of-fold logits, all folds together."""
    scores, y = torch.cat(list(logits)), torch.cat(list(labels))
    likelihood = scores.log_softmax(dim=1).gather(1, y[:, None]).mean()
    return Score(float((scores.argmax(dim=1) == y).float().mean()), float(likelihood))


def best(scores: Sequence[Score]) -> int:
    """The place of the best score; of equals, the first."""
    place = 0
    for i, candidate in enumerate(scores):
        if candidate.beats(scores[place]):
            place = i
    return place


def held_out_logits(method: Method, parts: Sequence[Split]) -> list[Tensor]:
    """Logits of each split's held-out images by the method fitted on the rest."""
    return [method.fit(part.task).logits(part.x) for part in parts]


def choose(candidates: Sequence[Method], parts: Sequence[Split]) -> tuple[int, list[Score]]:
    """The place of the candidate that does best on the held-out images, and every score."""
    labels = [part.y for part in parts]
    scores = [score(held_out_logits(method, parts), labels) for method in candidates]
    return best(scores), scores


def report(option: str, values: Sequence[Any], scores: Sequence[Score], source: str) -> dict[str, Any]:
    """A search as `info` tells it."""
    return {
        "option": option,
        "on": source,
        "values": list(values),
        "accuracy": [round(s.accuracy, 4) for s in scores],
        "likelihood": [round(s.likelihood, 4) for s in scores],
    }
