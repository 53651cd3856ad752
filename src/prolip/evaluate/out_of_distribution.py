"""Out-of-distribution images: those that belong to none of the classes.

The score of an image is its largest cosine to the mean support feature of a class, before the projection:

    score(x) = max_k  x . c_k,      c_k = normalize(mean of the unit features of class k),  |x| = 1

An image is rejected if its score is below that of all but a fraction (5 %) of the support images, each scored
with the mean of its class taken without it and its group (its near-copies). So only the support set is
needed.

Negatives, images n_j that show none of the classes, make it sharper where strangers resemble the classes:

    score(x) = max_k  x . c_k  -  3/4 max_j  x . n_j

With 20 negatives, 73 % of images of unknown classes were accepted without, 44 % with negatives of these, and
of other photo sets 4.0 and 0.5 % (4 images per class, means of seven sets: `benchmarks/accuracy.py --measure
rejection`). With 1/2 for 3/4 some 10 points more of the unknown were accepted; with 1 more of a third set.

Why not the probabilities: they only say which class is nearest. On the built-in sets, with five of ten
classes unknown, or all of the other set, at 5 % and 16 images per class: the largest probability accepted 17
to 71 % of out-of-distribution images, the largest logit 0 to 78 %; a nearest neighbour after the projection,
which is tuned on these images, rejected 14 to 47 % of in-distribution ones. This score accepted 0, 0, 0.4 and
(unknown digits) 66 % and rejected 4 to 7 %; a nearest neighbour before the projection did alike. The
projection is tuned to distinguish the classes, and drops what else an image shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import Array, as_features, one_hot_sum, unit_rows
from prolip.io.onnx_graph import Graph

FALSE_REJECT = 0.05
MIN_QUANTILE = 0.1  # of support scores; images with lower scores weigh less
NEGATIVE_SHARE = 0.75


@dataclass(frozen=True, eq=False)
class OutOfDistribution:
    """Class means, the negatives, and the scores of the support set that thresholds are quantiles of."""

    means: Array  # unit class means [K, Do]; zero for a class that has no image
    negatives: Array  # `directions` [j, Do] of images of none of the classes; j is 0 where there are none
    scores: Array  # of the support images, each without itself, sorted, [m]

    @classmethod
    def of(cls, task: Task, negatives: Array | None = None) -> OutOfDistribution:
        """Compute the means and scores of a support set; `negatives` are `directions` [j, Do]."""
        x, (means, scores) = directions(task.x[0], task.linear), _support_scores(task)
        if negatives is None:
            negatives = np.zeros((0, means.shape[1]), means.dtype)
        return cls(means, negatives, np.sort(scores - _negative_scores(x, negatives)))

    def score(self, x: Any, head: Head) -> Array:
        """Score features [n, width] of this head, [n]."""
        z = directions(as_features(x, "features"), head)
        scores: Array = (z @ self.means.T).max(axis=1) - _negative_scores(z, self.negatives)
        return scores

    def threshold(self, false_reject: float = FALSE_REJECT) -> float:
        """Return the score below which images are rejected: so is this fraction of the support images."""
        if not (isinstance(false_reject, (int, float)) and 0 <= false_reject < 1):
            raise UsageError(f"false_reject must be a fraction from 0 to below 1, got {false_reject!r}")
        return float(np.quantile(self.scores, false_reject))

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
        z = graph.unit_rows(graph.columns(x, 0, len(head.weight)) if head.residual else x)
        axis = np.array([1])
        score = graph.node("ReduceMax", graph.node("MatMul", z, self.means.T), axis, keepdims=0)
        if len(self.negatives):
            near = graph.node("MatMul", z, NEGATIVE_SHARE * self.negatives.T)
            score = graph.node("Sub", score, graph.node("ReduceMax", near, axis, keepdims=0))
        known = graph.node("Gather", np.abs(self.means).sum(axis=1) > 0, best, axis=0)
        return graph.node("And", graph.node("Less", score, self.threshold()), known)

    def weights(self, x: Any, head: Head) -> Array:
        """Return weights [n] from 0 to 1: 1 if at least a tenth of the support images score lower."""
        lower = np.searchsorted(self.scores, self.score(x, head)) / len(self.scores)
        return np.minimum(1.0, lower / MIN_QUANTILE)


def directions(x: Array, head: Head) -> Array:
    """Return the unit directions [n, Do] of features before the projection."""
    return unit_rows(head.split(x)[0].astype(np.float32, copy=False))


def outlier_scores(task: Task) -> tuple[Array, float]:
    """Return scores [n] of labelled images, each without itself, and the limit below which one is an outlier.

    The limit is Tukey's: 1.5 interquartile ranges below the lower quartile. A quantile like `FALSE_REJECT`
    would always find some. With one in fifty images taken from other photo sets, it found all of them among
    pets, clothing and birds, and 0.8 to 2.2 % of the others; among textures, which are diverse, none.
    """
    scores = _support_scores(task)[1]
    low, high = np.quantile(scores, [0.25, 0.75])
    return scores, float(low - 1.5 * (high - low))


def _support_scores(task: Task) -> tuple[Array, Array]:
    """Return class means [K, Do]; the largest cosine [n] of each support image to them, without itself."""
    x = directions(task.x[0], task.linear)
    sums = one_hot_sum(x, task.y, task.classes)
    means = unit_rows(sums)
    cells, cell_of = np.unique(task.groups * task.classes + task.y, return_inverse=True)
    alike = one_hot_sum(x, cell_of, len(cells))[cell_of]
    own = unit_rows(sums[task.y] - alike)  # zero for the only group of a class
    cosines = x @ means.T
    cosines[np.arange(task.n), task.y] = (x * own).sum(axis=1)
    return means, cosines.max(axis=1)


def _negative_scores(z: Array, negatives: Array) -> Array:
    """Return NEGATIVE_SHARE of the largest cosine [n] to a negative; 0 without any."""
    if not len(negatives):
        return np.zeros(len(z), z.dtype)
    scores: Array = NEGATIVE_SHARE * (z @ negatives.T).max(axis=1)
    return scores
