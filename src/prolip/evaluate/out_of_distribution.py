"""None of these: telling pictures that belong to no class.

The score of a picture is its largest cosine to a class's mean support feature, before the projection:

    score(x) = max_k  x . c_k,      c_k = normalize(mean of the unit features of class k),  |x| = 1

A picture is rejected where its score is lower than that of all but the chosen fraction (5 %) of the support
images, each scored with its own class's mean taken without it. So nothing but the support set is needed, and
outsiders need not be known.

A chosen rate of false accepts needs outsiders to count: there each class in turn is one, scored by the means
of the others. Those are near outsiders, of the same kind as the classes; others are refused more often.

Why not the probabilities: they only say which class is nearest. Settled on the built-in sets, with five of
ten classes unknown, or all of the other set, as outsiders, at 5 % and 16 images per class: the largest
probability let 17 to 71 % of outsiders pass, the largest logit 0 to 78 %; a nearest neighbour after the
projection, which is tuned on these very images, refused 14 to 47 % of pictures that belong. This score let 0,
0, 0.4 and (unknown digits) 66 % pass and refused 4 to 7 %; a nearest neighbour before the projection did
alike. The projection is tuned to tell the classes apart, and drops what else a picture shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import Array, as_features, one_hot_sum, unit_rows

FALSE_REJECT = 0.05
DOUBTFUL = 0.1  # of pictures that belong, the part whose low score is held against it


@dataclass(frozen=True, eq=False)
class OutOfDistribution:
    """Who belongs, and how sure that is."""

    means: Array  # unit class means [K, Do]; zero for a class that has no image
    scores: Array  # of the support images, each without itself, sorted, [m]
    # Of the same images, each without its class: as if it were an outsider; sorted, [m].
    outsider_scores: Array

    @classmethod
    def of(cls, task: Task) -> OutOfDistribution:
        """Means and scores of a support set."""
        means, scores, others = _support_scores(task)
        return cls(means, np.sort(scores), np.sort(others))

    def score(self, x: Any, head: Head) -> Array:
        """How much pictures belong, [n], of features [n, width] of this head."""
        return (_directions(as_features(x, "features"), head) @ self.means.T).max(axis=1)

    def threshold(self, false_reject: float = FALSE_REJECT, false_accept: float | None = None) -> float:
        """The score below which pictures are refused.

        Of pictures that belong, the fraction `false_reject` lies below it; or, where `false_accept` is given,
        of pictures of unknown classes this fraction lies above it.
        """
        for name, rate in (("false_reject", false_reject), ("false_accept", false_accept)):
            absent = rate is None and name == "false_accept"
            if not absent and not (isinstance(rate, (int, float)) and 0 <= rate < 1):
                raise UsageError(f"{name} must be a fraction from 0 to below 1, got {rate!r}")
        if false_accept is not None:
            return float(np.quantile(self.outsider_scores, 1 - false_accept))
        if false_reject == FALSE_REJECT:
            return self._default_threshold
        return float(np.quantile(self.scores, false_reject))

    @cached_property
    def _default_threshold(self) -> float:  # once per model, not once per request
        return float(np.quantile(self.scores, FALSE_REJECT))

    def reject(self, x: Any, head: Head, answers: Array, threshold: float | None = None) -> Array:
        """Which pictures are none of the classes, [n]; `answers` [n] are the classes they would get.

        A class that was added by its name alone has no image to compare with: its pictures are kept.
        """
        known = np.abs(self.means).sum(axis=1) > 0
        limit = self.threshold() if threshold is None else threshold
        return (self.score(x, head) < limit) & known[answers]

    def weights(self, x: Any, head: Head) -> Array:
        """How far pictures may be taken to belong, [n] from 0 to 1.

        1 where a tenth of the support images score lower, less in proportion below that.
        """
        lower = np.searchsorted(self.scores, self.score(x, head)) / len(self.scores)
        return np.minimum(1.0, lower / DOUBTFUL)

    def select(self, classes: Sequence[int | None]) -> OutOfDistribution:
        """Return the scores of a model with these classes, by their old index; None is one without images."""
        means = np.zeros((len(classes), self.means.shape[1]), self.means.dtype)
        for row, k in zip(means, classes, strict=True):
            if k is not None:
                row[:] = self.means[k]
        return replace(self, means=means)


def no_class(task: Task) -> tuple[Array, float]:
    """Scores [n] of labelled images, each without itself, and the fence below which one belongs to no class.

    The fence is Tukey's: half as much again as the middle half spans, below it. A share like `FALSE_REJECT`
    would always accuse someone. With one in fifty images taken from other photo sets, it found all of them
    among pets, clothing and birds, and accused 0.8 to 2.2 % of the others; among textures, which resemble
    nothing in particular, it found none and accused none.
    """
    scores = _support_scores(task)[1]
    low, high = np.quantile(scores, [0.25, 0.75])
    return scores, float(low - 1.5 * (high - low))


def _support_scores(task: Task) -> tuple[Array, Array, Array]:
    """Class means [K, Do]; the scores [n] of support images, each without itself, and without its class."""
    x = _directions(task.x[0], task.linear)
    sums = one_hot_sum(x, task.y, task.classes)
    means = unit_rows(sums)
    own = unit_rows(sums[task.y] - x)  # zero for the only image of a class
    cosines = x @ means.T
    cosines[np.arange(task.n), task.y] = -1.0
    others = cosines.max(axis=1)  # the best of the other classes
    return means, np.maximum(others, (x * own).sum(axis=1)), others


def _directions(x: Array, head: Head) -> Array:
    return unit_rows(head.split(x)[0].astype(np.float32, copy=False))
