"""APE: a cache of some of the embedding's dimensions (Zhu et al., 2023), without training.

Dimensions are kept where classes differ: with all samples g_km of class k (its text and its N images),

    J_d = -w mean over pairs of other classes of (g_km g_jn)_d  +  (1 - w) var_k(t_kd),      w = 0.7

the Q largest. With f', K' and T' the embeddings, keys and texts in these dimensions, of unit length again,

    r_i = exp( gamma KL( y_i || softmax(K'_i T'') ) ),      y_i one-hot, in bits
    logits = s f T' + alpha exp( -beta (1 - f' K'') ) diag(r) V

Q is 500 of 1,024 on ImageNet in the authors' program and 500 to 900 elsewhere; here 700 in 1,024. alpha and
beta are 1 and gamma 0.1; "auto" searches all three together, on a validation set or inside the support set:
200 betas and 20 alphas from 0.1 up to 7, 5 gammas from 0 up to 0.5, their ranges on ImageNet (of equals the
first, beta outside, then alpha, then gamma). APE-T, which trains a residual, is left out.

Differences: the texts are the task's, theirs those of a language model (CuPL).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, Task, Text
from prolip.core.arrays import Array, Tensors, one_hot_sum, softmax, unit_rows
from prolip.methods.base import OptionError
from prolip.methods.classifiers import affinity, by_class, products, unit_features
from prolip.methods.registry import register
from prolip.methods.selection import Split
from prolip.methods.tip_adapter import count_by_alpha, lead, search_values
from prolip.research.methods.cache_search import CacheSearch


@register
@dataclass(frozen=True)
class APE(CacheSearch):
    """A cache of refined dimensions.

    Parameters
    ----------
    alpha, beta, gamma
        Weight and sharpness of the cache, and how much more misread images count: numbers, or "auto" for
        alpha, which searches all three.
    share
        Share of the dimensions that is kept.
    weight
        Weight w of the similarity between classes in the choice of dimensions.
    seed
        Random seed for the folds.
    """

    name: ClassVar[str] = "ape"
    summary: ClassVar[str] = "APE: a cache of the dimensions in which classes differ"
    size: ClassVar[str] = "0"
    research: ClassVar[bool] = True
    grid: ClassVar[dict[str, tuple[float, ...]]] = {
        "beta": search_values(7.0, 200),
        "alpha": search_values(7.0, 20),
        "gamma": tuple(0.1 * i for i in range(5)),
    }

    alpha: str | float = 1.0
    beta: float = 1.0
    gamma: float = 0.1
    share: float = 700 / 1024
    weight: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise OptionError("share", "above 0 and at most 1", self.share)

    def count_right(self, part: Split) -> Array:
        """How many held-out images are right, [betas, alphas, gammas]."""
        cache = self.cache(part.task)
        f = unit_features(part.task.linear, part.x)
        ahead = lead(part.task.scale * products(f, part.task.text.rows), part.y)
        nearness = cache.keys @ unit_rows(f[:, cache.dimensions]).T - 1
        betas, alphas, gammas = self.grid.values()
        found = np.zeros((len(betas), len(alphas), len(gammas)), int)
        for i, beta in enumerate(betas):
            closeness = np.exp(beta * nearness)
            for j, gamma in enumerate(gammas):
                near = np.exp(gamma * cache.misread)[:, None] * closeness
                added = by_class(near, part.task.y, part.task.classes)
                found[i, :, j] = count_by_alpha(ahead, added, part.y, alphas)
        return found

    def cache(self, task: Task) -> RefinedCache:
        """The cache with the dimensions that are kept, at alpha 1."""
        f = unit_features(task.linear, task.x)
        keys = unit_rows(f.mean(axis=0))  # [n, D]
        text = task.text.rows.astype(keys.dtype)
        count = max(1, round(self.share * keys.shape[1]))
        kept = np.argsort(-self._criterion(keys, task.y, text), kind="stable")[:count]
        keys, rows = unit_rows(keys[:, kept]), unit_rows(text[:, kept])
        read = softmax(products(keys, rows))
        truth = np.eye(task.classes, dtype=keys.dtype)[task.y]
        misread = (truth * np.log2((truth + 1e-6) / (read + 1e-6))).sum(axis=1)
        fixed = (task.linear, task.text, task.scale, keys, task.y, misread, kept)
        return RefinedCache(*fixed, 1.0, self.beta, self.gamma)

    def _criterion(self, keys: Array, y: Array, text: Array) -> Array:
        """The score J [D] of each dimension."""
        classes = len(text)
        sums = text + one_hot_sum(keys, y, classes)  # over the samples of each class
        counts = 1 + np.bincount(y, minlength=classes)
        pairs = counts.sum() ** 2 - np.square(counts).sum()
        similarity = (np.square(sums.sum(axis=0)) - np.square(sums).sum(axis=0)) / pairs
        score: Array = -self.weight * similarity + (1 - self.weight) * text.var(axis=0, ddof=1)
        return score


@register
@dataclass(frozen=True, eq=False)
class RefinedCache(Fitted):
    """logits = s f T' + alpha exp(-beta (1 - f' K'')) diag(exp(gamma misread)) V."""

    kind: ClassVar[str] = "refined_cache"

    head: Head
    text: Text
    scale: float
    keys: Array  # [n, Q]
    labels: Array  # [n]
    misread: Array  # [n], in bits
    dimensions: Array  # [Q]
    alpha: float
    beta: float
    gamma: float

    def logits(self, x: Any) -> Array:
        """Scores [m, K]: zero-shot, and what the nearest keys say."""
        f = unit_features(self.head, x)
        near = affinity(unit_rows(f[:, self.dimensions]), self.keys, self.beta)
        near = near * np.exp(self.gamma * self.misread)[:, None].astype(f.dtype)
        cached = by_class(near, self.labels, len(self.text))
        return self.scale * products(f, self.text.rows) + self.alpha * cached

    def tensors(self) -> Tensors:
        """Keys, labels, weights and dimensions."""
        return {name: getattr(self, name) for name in ("keys", "labels", "misread", "dimensions")}

    def config(self) -> dict[str, Any]:
        """The scale of zero-shot, and the numbers of the cache."""
        return {name: getattr(self, name) for name in ("scale", "alpha", "beta", "gamma")}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> RefinedCache:
        """Put the cache beside the base model."""
        numbers = {name: float(config[name]) for name in ("scale", "alpha", "beta", "gamma")}
        arrays = {name: tensors[name] for name in ("keys", "labels", "misread", "dimensions")}
        return cls(head, text, **arrays, **numbers)  # type: ignore[arg-type]
