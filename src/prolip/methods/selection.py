"""Choosing hyperparameters: on a validation set, or by cross-validation inside the support set.

Never on test images. Folds are those of `solvers.folds`, which lam="auto" and calibration use too. A class
with one image cannot spare it; it stays in every training part. With one image of every class there is
nothing to hold out, and a method falls back to its fixed default.

A search over very many classes is run on a sample of them: what is searched for is a strength, not a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core import HeldOutPredictions, Task, Text
from prolip.core.arrays import Array, cross_entropy
from prolip.solvers.folds import assign_folds, some_classes

if TYPE_CHECKING:
    from prolip.methods.base import Method

CLASSES = 100


@dataclass(frozen=True, eq=False)
class Split:
    """A task to fit on, and images to judge by: features x [m, Do], labels y [m]."""

    task: Task
    x: Array
    y: Array
    source: str = "support"


@dataclass(frozen=True, eq=False)
class Splits:
    """Where a method may choose: on a validation set, or on folds of the support set."""

    task: Task
    validation: Task | None = None
    seed: int = 0  # of the folds


@dataclass(frozen=True, order=True)
class Score:
    """Accuracy on held-out images, and their mean log-likelihood, which settles ties."""

    accuracy: float
    likelihood: float


def splits(
    task: Task, validation: Task | None = None, *, seed: int = 0, classes: int | None = CLASSES
) -> list[Split]:
    """The training and held-out parts that a search uses; none where nothing can be held out.

    A validation set is the one split, where there is any. Of more than `classes` classes a sample of so many
    is searched on; None never samples.
    """
    if validation is not None:
        return [Split(task, validation.x[0], validation.y, "validation")]
    if classes is not None and task.classes > classes:
        task = some_classes(task, classes, seed)
    return [Split(task.subset(kept), task.x[0, held], task.y[held]) for kept, held in fold_parts(task, seed)]


def fold_parts(task: Task, seed: int) -> list[tuple[Array, Array]]:
    """For every fold, the images to fit on and those to ask about."""
    fold = assign_folds(task, seed)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]


def cross_validate(
    method: Method, task: Task, *, text: Text | None = None, seed: int = 0
) -> HeldOutPredictions:
    """Fit on the rest of each fold and ask about the fold, by its first view.

    The method has options that leave nothing to search (`methods.from_settings`); `text` are class texts to
    ask with, where they are not those of the fit.
    """
    parts = fold_parts(task, seed)
    logits = np.zeros((task.n, task.classes if text is None else len(text)), np.float32)
    for kept, held in parts:
        fitted = method.fit(task.subset(kept))
        logits[held] = (fitted if text is None else fitted.with_text(text)).logits(task.x[0, held])
    images = np.sort(np.concatenate([held for _, held in parts])) if parts else np.zeros(0, int)
    return HeldOutPredictions(logits[images], task.y[images], images)


def score(logits: Sequence[Array], labels: Sequence[Array]) -> Score:
    """The score of out-of-fold logits, all folds together."""
    scores, y = np.concatenate(list(logits)), np.concatenate(list(labels))
    return Score(float(np.mean(scores.argmax(axis=1) == y)), -float(cross_entropy(scores, y).mean()))


def best(scores: Sequence[Score]) -> int:
    """The place of the best score; of equals, the first."""
    return max(range(len(scores)), key=scores.__getitem__)


def pick(
    option: str, values: Sequence[Any], columns: Sequence[Sequence[Array]], parts: Sequence[Split]
) -> tuple[int, dict[str, Any]]:
    """The place of the best value by the logits [value][split] of held-out images, and the search as told."""
    scores = [score(logits, [part.y for part in parts]) for logits in columns]
    return best(scores), report(option, values, scores, parts)


def held_out_logits(method: Method, parts: Sequence[Split]) -> list[Array]:
    """Logits of each split's held-out images by the method fitted on the rest."""
    return [method.fit(part.task).logits(part.x) for part in parts]


def report(
    option: str, values: Sequence[Any], scores: Sequence[Score], parts: Sequence[Split]
) -> dict[str, Any]:
    """A search as the fit tells of it."""
    told = {
        "option": option,
        "on": parts[0].source,
        "values": list(values),
        "accuracy": [round(s.accuracy, 4) for s in scores],
        "likelihood": [round(s.likelihood, 4) for s in scores],
    }
    return {"search": told}


def fallback(option: str, value: Any) -> dict[str, Any]:
    """The same where there is nothing to hold out."""
    return {"search": {"option": option, "on": f"nothing to hold out: {value}"}}
