"""GDA: Gaussian discriminant analysis beside zero-shot, in closed form (Wang et al., 2024).

Classes are Gaussians with means mu_k and one covariance. With C the n features less their class means,

    P = D ( C'C + tr(C'C) / (n - 1) I )^-1             the precision, after Kubokawa and Srivastava
    w_k = P mu_k,   b_k = log(1/K) - mu_k' P mu_k / 2
    logits = s f T' + alpha ( f W' + b )

alpha="auto" is searched over {1e-4, .., 100}, half decades included, on a validation set or inside the
support set; of equal accuracies the likelier wins (theirs: decades, on the whole validation split, and on
ImageNet the test set; of equals the first). Where there is nothing to hold out, it is 0.03, which did best
on the sets of `benchmarks/tasks.py`. There are no more folds than images of a class, so that every class
lends to each: b_k falls with the length of mu_k, which is longer the fewer images it comes from, and a
class that lent one would lose to those that did not.

Differences: one image a class and one view leave no spread around class means (theirs come from ten views);
the spread around the overall mean stands in. A class without images keeps its zero-shot score: its own
score here is the mean of the others'.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, one_hot_sum
from prolip.methods import selection
from prolip.methods.base import FitContext, Method
from prolip.methods.classifiers import LinearClassifier, products, unit_features
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning

ALPHA_GRID = tuple(10.0**e for e in (-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2))
ONE_SHOT_ALPHA = 0.03


@register
@dataclass(frozen=True)
class GDA(Method):
    """Gaussian discriminant analysis.

    Parameters
    ----------
    alpha
        Weight beside the zero-shot logits: "auto" (searched), or a number.
    seed
        Random seed for the folds.
    """

    name: ClassVar[str] = "gda"
    summary: ClassVar[str] = "Gaussian discriminant analysis beside zero-shot, closed form"
    size: ClassVar[str] = "0"

    alpha: Literal["auto"] | float = "auto"
    seed: int = 0

    def needs_tuning(self) -> bool:
        """Whether alpha is searched."""
        return self.alpha == "auto"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose alpha from the grid."""
        if not self.needs_tuning():
            return Tuning(self)
        if not splits.parts:
            return selection.fallback(self, "alpha", ONE_SHOT_ALPHA)
        pairs = []  # zero-shot and own logits by split
        for part in splits.parts:
            weight, bias = discriminants(part.task)
            f = unit_features(part.task.linear, part.x)
            pairs.append((task.scale * products(f, part.task.text.rows), products(f, weight) + bias))
        columns = [[zero + alpha * own for zero, own in pairs] for alpha in ALPHA_GRID]
        return splits.choose(self, "alpha", ALPHA_GRID, columns)

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Estimate means and covariance, in one linear classifier with the texts."""
        alpha = float(self.alpha)
        weight, bias = discriminants(task)
        weight = task.scale * task.text.rows.astype(weight.dtype, copy=False) + alpha * weight
        return LinearClassifier(task.linear, task.text, weight, alpha * bias)


def discriminants(task: Task) -> tuple[Array, Array]:
    """The discriminants of the Gaussians: W [K, D] and b [K].

    Less what all classes have in common, which is large: float32 then keeps the differences.
    """
    (x, y), classes = task.rows(), task.classes
    samples = unit_features(task.linear, x)
    f = samples.astype(np.float64)
    n, dim = f.shape
    images = np.bincount(y, minlength=classes)
    means = one_hot_sum(f, y, classes) / np.maximum(images, 1)[:, None]
    centred = f - means[y]
    if np.vdot(centred, centred) <= 1e-12 * n:
        centred = f - f.mean(axis=0)
    means[images == 0] = means[images > 0].mean(axis=0)
    scatter = centred.T @ centred
    system = scatter + np.trace(scatter) / max(n - 1, 1) * np.eye(dim)
    origin = f.mean(axis=0)
    means -= origin
    weight = dim * np.linalg.solve(system, means.T).T
    bias = -math.log(classes) - weight @ origin - 0.5 * (weight * means).sum(axis=1)
    return weight.astype(samples.dtype), bias.astype(samples.dtype)
