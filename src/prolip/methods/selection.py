"""Choosing hyperparameters on held-out images: those of a validation set, or folds of the support set.

Never on test images. Folds are those of `solvers.folds`, which calibration uses too. A class with one image
cannot spare it; it stays in every training part. With one image of every class there is nothing to hold out,
and a method falls back to its fixed default.

A search over very many classes is run on a sample of them: what is searched for is a strength, not a class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from prolip.core import Fitted, HeldOutPredictions, Task
from prolip.core.arrays import Array, cross_entropy
from prolip.io.environment import cores
from prolip.solvers.folds import assign_folds, some_classes

if TYPE_CHECKING:
    from prolip.methods.base import Method

MAX_CLASSES = 100

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Tuning:
    """A method with nothing left to choose, and what the search for it found."""

    method: Method
    report: dict[str, Any] = field(default_factory=dict)  # of the search, for people to read
    # Predictions for held-out support images under the choice, where the search has made them.
    held_out: HeldOutPredictions | None = None
    start: Any = None  # for `solve`


@dataclass(frozen=True, eq=False)
class Split:
    """A task to fit on, and images to judge by: features x [m, Do], labels y [m]."""

    task: Task
    x: Array
    y: Array


@dataclass(frozen=True, order=True)
class Score:
    """Accuracy on held-out images, and their mean log-likelihood, which settles ties."""

    accuracy: float
    likelihood: float


@dataclass(frozen=True, eq=False)
class Splits:
    """The images that a method may choose on: a validation set, or folds of the support set."""

    task: Task
    validation: Task | None = None
    seed: int = 0  # of the folds

    @cached_property
    def parts(self) -> list[Split]:
        """The training and held-out parts; none where nothing can be held out.

        A validation set is the one split, where there is any. Of more than MAX_CLASSES classes, the folds
        have a sample of so many.
        """
        if self.validation is not None:
            return [Split(self.task, self.validation.x[0], self.validation.y)]
        task = self.sampled()
        folds = fold_parts(task, self.seed)
        return [Split(task.subset(kept), task.x[0, held], task.y[held]) for kept, held in folds]

    def sampled(self) -> Task:
        """The task on at most MAX_CLASSES of its classes."""
        if self.task.classes <= MAX_CLASSES:
            return self.task
        return some_classes(self.task, MAX_CLASSES, self.seed)

    def score(self, logits: Sequence[Array]) -> Score:
        """Score the logits of each part's held-out images, all parts together."""
        scores, y = np.concatenate(list(logits)), np.concatenate([part.y for part in self.parts])
        return Score(float(np.mean(scores.argmax(axis=1) == y)), -float(cross_entropy(scores, y).mean()))

    def choose(
        self,
        method: Method,
        option: str,
        values: Sequence[Any],
        logits: Sequence[Sequence[Array]],
        names: Sequence[str] | None = None,
    ) -> Tuning:
        """Return the method with the value of an option that does best; of equals, the first.

        `logits` [value][part] are those of each part's held-out images; `names` stand for values in the
        report.
        """
        scores = [self.score(own) for own in logits]
        best = scores.index(max(scores))
        tuned = dataclasses.replace(method, **{option: values[best]})  # type: ignore[type-var]
        return Tuning(tuned, self.report(option, names or values, scores), self.held_out(logits[best]))

    def held_out(self, logits: Sequence[Array]) -> HeldOutPredictions | None:
        """Collect the logits of every fold; None where they are not of all classes and images."""
        if self.validation is not None or self.task.classes > MAX_CLASSES:
            return None
        images = np.concatenate([held for _, held in fold_parts(self.task, self.seed)])
        order = np.argsort(images)
        return HeldOutPredictions(
            np.concatenate(list(logits))[order], self.task.y[images[order]], images[order]
        )

    def report(self, option: str, values: Sequence[Any], scores: Sequence[Score]) -> dict[str, Any]:
        """Describe a search, for people to read."""
        search = {
            "option": option,
            "on": "support" if self.validation is None else "validation",
            "values": list(values),
            "accuracy": [round(score.accuracy, 4) for score in scores],
            "likelihood": [round(score.likelihood, 4) for score in scores],
        }
        return {"search": search}


def fallback(method: Method, option: str, value: Any, name: str | None = None) -> Tuning:
    """Return the method with a fixed value, where there is nothing to hold out."""
    report = {"search": {"option": option, "on": f"nothing to hold out: {name or value}"}}
    return Tuning(dataclasses.replace(method, **{option: value}), report)  # type: ignore[type-var]


def accuracy(fitted: Fitted, validation: Task) -> float:
    """Return the accuracy on the first view of a validation set."""
    return float((fitted.predict(validation.x[0]) == validation.y).mean())


def fold_parts(task: Task, seed: int) -> list[tuple[Array, Array]]:
    """Return the images to fit on and those held out, for every fold."""
    fold = assign_folds(task, seed)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]


def cross_validate(method: Method, task: Task, *, seed: int = 0) -> HeldOutPredictions:
    """Predict the first view of each fold's images by a fit on the other folds.

    The method has options that leave nothing to search (`methods.from_settings`).
    """
    parts = fold_parts(task, seed)
    logits = np.zeros((task.n, task.classes), np.float32)
    for (_, held), fitted in zip(parts, method.fit_parts(task, [kept for kept, _ in parts]), strict=True):
        logits[held] = fitted.logits(task.x[0, held])
    images = np.sort(np.concatenate([held for _, held in parts])) if parts else np.zeros(0, int)
    return HeldOutPredictions(logits[images], task.y[images], images)


def in_parallel(work: Callable[[In], Out], items: Sequence[In]) -> list[Out]:
    """Run `work` on each item, as many at a time as there are cores, for BLAS has one thread in a fit.

    On two cores a search over 1,632 images of 102 classes took two thirds of the time; small ones as long.
    """
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, items))
