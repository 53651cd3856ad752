"""Out-of-distribution images: those that belong to none of the classes.

The score of an image is its largest cosine to the mean support feature of a class, before the projection:

    score(x) = max_k  x . c_k,      c_k = normalize(mean of the unit features of class k),  |x| = 1

An image is rejected if its score is below that of all but a fraction (5 %) of the support images, each scored
with the mean of its class taken without it and its group (its near-copies). So only the support set is
needed. A given rate of false accepts needs out-of-distribution images to count: there each class in turn is
one, scored by the means of the others. Those are similar to the classes; unrelated images are rejected more
often.

Why not the probabilities: they only say which class is nearest. On the built-in sets, with five of ten
classes unknown, or all of the other set, at 5 % and 16 images per class: the largest probability accepted 17
to 71 % of out-of-distribution images, the largest logit 0 to 78 %; a nearest neighbour after the projection,
which is tuned on these images, rejected 14 to 47 % of in-distribution ones. This score accepted 0, 0, 0.4 and
(unknown digits) 66 % and rejected 4 to 7 %; a nearest neighbour before the projection did alike. The
projection is tuned to distinguish the classes, and drops what else an image shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import Array, as_features, one_hot_sum, unit_rows
from prolip.io.onnx_graph import Graph

FALSE_REJECT = 0.05
MIN_QUANTILE = 0.1  # of support scores; images with lower scores weigh less


@dataclass(frozen=True, eq=False)
class OutOfDistribution:
    """Class means, and the scores of the support set that thresholds are quantiles of."""

    means: Array  # unit class means [K, Do]; zero for a class that has no image
    scores: Array  # of the support images, each without itself, sorted, [m]
    unknown_scores: Array  # of the same images without their class, as if it were unknown, sorted, [m]

    @classmethod
    def of(cls, task: Task) -> OutOfDistribution:
        """Compute the means and scores of a support set."""
        means, scores, others = _support_scores(task)
        return cls(means, np.sort(scores), np.sort(others))

    def score(self, x: Any, head: Head) -> Array:
        """Score features [n, width] of this head, [n]."""
        scores: Array = (_directions(as_features(x, "features"), head) @ self.means.T).max(axis=1)
        return scores

    def threshold(self, false_reject: float = FALSE_REJECT, false_accept: float | None = None) -> float:
        """Return the score below which images are rejected.

        The fraction `false_reject` of in-distribution images lies below it; or, if `false_accept` is given,
        this fraction of images of unknown classes lies above it.
        """
        for name, rate in (("false_reject", false_reject), ("false_accept", false_accept)):
            absent = rate is None and name == "false_accept"
            if not absent and not (isinstance(rate, (int, float)) and 0 <= rate < 1):
                raise UsageError(f"{name} must be a fraction from 0 to below 1, got {rate!r}")
        if false_accept is not None:
            return float(np.quantile(self.unknown_scores, 1 - false_accept))
        if false_reject == FALSE_REJECT:
            return self._default_threshold
        return float(np.quantile(self.scores, false_reject))

    @cached_property
    def _default_threshold(self) -> float:  # once per model, not once per request
        return float(np.quantile(self.scores, FALSE_REJECT))

    def reject(self, x: Any, head: Head, best: Array, threshold: float | None = None) -> Array:
        """Return which images are out-of-distribution, [n]; `best` [n] are their most probable classes.

        A class that was added by its name alone has no image to compare with: none of it is rejected.
        """
        known = np.abs(self.means).sum(axis=1) > 0
        limit = self.threshold() if threshold is None else threshold
        rejected: Array = (self.score(x, head) < limit) & known[best]
        return rejected

    def to_onnx(self, graph: Graph, x: str, head: Head, best: str) -> str:
        """Add `reject` at the default threshold to a graph; return the name of its output, bool [m]."""
        inputs = graph.columns(x, 0, len(head.weight)) if head.residual else x
        cosines = graph.node("MatMul", graph.unit_rows(inputs), self.means.T)
        score = graph.node("ReduceMax", cosines, np.array([1]), keepdims=0)
        known = graph.node("Gather", np.abs(self.means).sum(axis=1) > 0, best, axis=0)
        return graph.node("And", graph.node("Less", score, self.threshold()), known)

    def weights(self, x: Any, head: Head) -> Array:
        """Return weights [n] from 0 to 1: 1 if at least a tenth of the support images score lower."""
        lower = np.searchsorted(self.scores, self.score(x, head)) / len(self.scores)
        return np.minimum(1.0, lower / MIN_QUANTILE)

    def select(self, classes: Sequence[int | None]) -> OutOfDistribution:
        """Return the scores of a model with these classes, by their old index; None is one without images."""
        means = np.zeros((len(classes), self.means.shape[1]), self.means.dtype)
        for row, k in zip(means, classes, strict=True):
            if k is not None:
                row[:] = self.means[k]
        return replace(self, means=means)


def outlier_scores(task: Task) -> tuple[Array, float]:
    """Return scores [n] of labelled images, each without itself, and the limit below which one is an outlier.

    The limit is Tukey's: 1.5 interquartile ranges below the lower quartile. A quantile like `FALSE_REJECT`
    would always find some. With one in fifty images taken from other photo sets, it found all of them among
    pets, clothing and birds, and 0.8 to 2.2 % of the others; among textures, which are diverse, none.
    """
    scores = _support_scores(task)[1]
    low, high = np.quantile(scores, [0.25, 0.75])
    return scores, float(low - 1.5 * (high - low))


def _support_scores(task: Task) -> tuple[Array, Array, Array]:
    """Return class means [K, Do]; scores [n] of support images without themselves; without their class."""
    x = _directions(task.x[0], task.linear)
    sums = one_hot_sum(x, task.y, task.classes)
    means = unit_rows(sums)
    cells, cell_of = np.unique(task.groups * task.classes + task.y, return_inverse=True)
    alike = one_hot_sum(x, cell_of, len(cells))[cell_of]
    own = unit_rows(sums[task.y] - alike)  # zero for the only group of a class
    cosines = x @ means.T
    cosines[np.arange(task.n), task.y] = -1.0
    others = cosines.max(axis=1)  # the best of the other classes
    return means, np.maximum(others, (x * own).sum(axis=1)), others


def _directions(x: Array, head: Head) -> Array:
    return unit_rows(head.split(x)[0].astype(np.float32, copy=False))
