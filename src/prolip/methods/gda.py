"""GDA: Gaussian discriminant analysis beside zero-shot, in closed form (Wang et al., 2024).

Classes are Gaussians with means mu_k and one covariance. With C the n features less their class means,

    P = D ( C'C + tr(C'C) / (n - 1) I )^-1             the precision, after Kubokawa and Srivastava
    w_k = P mu_k,   b_k = log(1/K) - mu_k' P mu_k / 2
    logits = s f T' + alpha ( f W' + b )

alpha is searched over {1e-4, .., 100}, on a validation set or inside the support set (theirs: the whole
validation split, and on ImageNet the test set). Where there is nothing to hold out, alpha = 0.03,
which did best on the sets of `benchmarks/development.py`. With two or three images a class there are
as many folds, so that every class lends to each: b_k falls with the length of mu_k, which is longer the fewer
images it comes from, and a class that lent one would lose to those that did not.

Differences: one image a class and one view leave no spread around class means (theirs come from ten views);
the spread around the overall mean stands in. A class without images keeps its zero-shot score: its own
score here is the mean of the others'.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import Task, UsageError
from prolip.methods import search
from prolip.methods.base import Method, Progress, Shape
from prolip.methods.fitted import LinearClassifier, unit_features

GRID = tuple(10.0**e for e in (-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2))
DEFAULT = 0.03


@dataclass(frozen=True)
class GDA(Method):
    """Gaussian discriminant analysis.

    Parameters
    ----------
    alpha
        Weight beside the zero-shot logits: "auto" (searched), or a number.
    seed
        Of the folds.
    """

    name: ClassVar[str] = "gda"
    summary: ClassVar[str] = "Gaussian discriminant analysis beside zero-shot, closed form"
    open_class: ClassVar[bool] = False
    size: ClassVar[str] = "0"

    alpha: str | float = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.alpha != "auto" and not (isinstance(self.alpha, (int, float)) and self.alpha >= 0):
            raise UsageError(f'alpha must be "auto" or a number >= 0, got {self.alpha!r}')

    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> LinearClassifier:
        """Estimate means and covariance; search alpha where that is asked for."""
        started = time.perf_counter()
        told: dict[str, Any] = {}
        alpha = self.alpha
        if isinstance(alpha, str):
            alpha, told["search"] = self._search(task, validation)
        weight, bias = discriminants(task)
        weight = task.scale * task.text.rows.to(weight) + alpha * weight
        told["chosen"] = {"alpha": alpha}
        info = self.report(task, started, **told)
        return LinearClassifier(task.linear, task.text, weight, alpha * bias, info=info)

    def count(self, shape: Shape) -> int:
        """Nothing is trained; K x D numbers are estimated."""
        return 0

    def _search(self, task: Task, validation: Task | None) -> tuple[float, dict[str, Any]]:
        folds = search.FOLDS if task.shots >= 4 else max(2, int(task.shots))
        parts = search.splits(task, validation, folds=folds, seed=self.seed)
        if not parts:
            return DEFAULT, {"option": "alpha", "on": "nothing to hold out: the fixed default"}
        pairs = []
        for part in parts:
            weight, bias = discriminants(part.task)
            f = unit_features(part.task.linear, part.x)
            pairs.append((task.scale * f @ part.task.text.rows.to(f).T, f @ weight.T + bias))
        labels = [part.y for part in parts]
        scores = [search.score([zero + a * own for zero, own in pairs], labels) for a in GRID]
        source = "validation" if validation is not None else "support"
        return GRID[search.best(scores)], search.report("alpha", GRID, scores, source)


def discriminants(task: Task) -> tuple[Tensor, Tensor]:
    """W [K, D] and b [K]."""
    x, y = task.rows()
    f = unit_features(task.linear, x)
    double = f.double()
    n, dim = double.shape
    images = torch.bincount(y, minlength=task.classes)
    means = double.new_zeros(task.classes, dim).index_add(0, y, double) / images.clamp_min(1)[:, None]
    centred = double - means[y]
    if centred.square().sum() <= 1e-12 * n:
        centred = double - double.mean(dim=0)
    means[images == 0] = means[images > 0].mean(dim=0)
    scatter = centred.T @ centred
    system = scatter + scatter.trace() / max(n - 1, 1) * torch.eye(dim).to(scatter)
    weight = dim * torch.linalg.solve(system, means.T).T
    bias = -math.log(task.classes) - 0.5 * (weight * means).sum(dim=1)
    return weight.to(f.dtype), bias.to(f.dtype)
