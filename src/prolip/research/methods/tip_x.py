"""Tip-X: Tip-Adapter, and a cache that compares images by zero-shot predictions (Udandarao et al., 2023).

    logits = s f T' + alpha exp( -beta (1 - f K') ) V + gamma phi( -KL(p || q) ) V
    p, q     = softmax( 2 cosines with the texts ), of the image and of each key
    phi(-d)  = -( (d - min d) / (max d - min d) (hi - lo) + lo ),      lo and hi the range of f K'

alpha, beta and gamma are 1; "auto" searches all three on a validation set or inside the support set: 20
alphas from 0.1 and 200 betas from 1 up to 50, 50 gammas from 0.1 up to 30 (of equals the first, alpha
outside, then beta, then gamma).

Differences: the authors' keys are generated or retrieved images (SuS), here the support images. Their phi
takes both ranges from all test images together; here from the support images, so that a prediction does not
depend on other test images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, Task, Text
from prolip.core.arrays import Array, Tensors, log_softmax, unit_rows
from prolip.methods.classifiers import affinity, by_class, products, unit_features
from prolip.methods.registry import register
from prolip.methods.selection import Split
from prolip.methods.tip_adapter import count_by_alpha, lead, search_values
from prolip.research.methods.cache_search import CacheSearch

SHARPNESS = 2.0  # of p and q: their temperature is 0.5


@register
@dataclass(frozen=True)
class TipX(CacheSearch):
    """Two caches: of embeddings, and of zero-shot predictions.

    Parameters
    ----------
    alpha, beta, gamma
        Weight and sharpness of the first cache, weight of the second: numbers, or "auto" for alpha, which
        searches all three.
    seed
        Random seed for the folds.
    """

    name: ClassVar[str] = "tip_x"
    summary: ClassVar[str] = "Tip-X: Tip-Adapter, and a cache of zero-shot predictions"
    size: ClassVar[str] = "0"
    research: ClassVar[bool] = True
    grid: ClassVar[dict[str, tuple[float, ...]]] = {
        "alpha": search_values(50.0, 20),
        "beta": tuple(1 + i * 49 / 200 for i in range(200)),
        "gamma": search_values(30.0, 50),
    }

    alpha: str | float = 1.0
    beta: float = 1.0
    gamma: float = 1.0
    seed: int = 0

    def count_right(self, part: Split) -> Array:
        """How many held-out images are right, [alphas, betas, gammas]."""
        cache, y = self.cache(part.task), part.y
        f = unit_features(part.task.linear, part.x)
        zero = cache.scale * products(f, part.task.text.rows)
        read, nearness = cache.read(f), cache.keys @ f.T - 1
        alphas, betas, gammas = self.grid.values()
        found = np.zeros((len(alphas), len(betas), len(gammas)), int)
        aheads = [lead(zero + gamma * read, y) for gamma in gammas]
        for i, beta in enumerate(betas):
            cached = by_class(np.exp(beta * nearness), part.task.y, part.task.classes)
            for j, ahead in enumerate(aheads):
                found[:, i, j] = count_by_alpha(ahead, cached, y, alphas)
        return found

    def cache(self, task: Task) -> TwoCaches:
        """Both caches, at alpha 1."""
        keys = unit_rows(unit_features(task.linear, task.x).mean(axis=0))
        log_q = log_softmax(SHARPNESS * products(keys, task.text.rows))
        divergence, cosines = divergences(log_q, log_q), keys @ keys.T
        ranges = np.array([divergence.min(), divergence.max(), cosines.min(), cosines.max()])
        fixed = (task.linear, task.text, task.scale, keys, task.y, ranges)
        return TwoCaches(*fixed, 1.0, self.beta, self.gamma)


def divergences(log_p: Array, log_q: Array) -> Array:
    """KL(p_i || q_j) of rows [m, K] and [n, K], as [m, n]."""
    p = np.exp(log_p)
    kl: Array = (p * log_p).sum(axis=1, keepdims=True) - p @ log_q.T
    return kl


@register
@dataclass(frozen=True, eq=False)
class TwoCaches(Fitted):
    """logits = s f T' + alpha exp(-beta (1 - f K')) V + gamma phi(-KL(p || q)) V."""

    kind: ClassVar[str] = "two_caches"

    head: Head
    text: Text
    scale: float
    keys: Array  # [n, D]
    labels: Array  # [n]
    ranges: Array  # least and largest divergence, least and largest cosine, of the support images
    alpha: float
    beta: float
    gamma: float

    def logits(self, x: Any) -> Array:
        """Scores [m, K]: zero-shot, and what both caches say."""
        f = unit_features(self.head, x)
        near = by_class(affinity(f, self.keys, self.beta), self.labels, len(self.text))
        return self.scale * products(f, self.text.rows) + self.alpha * near + self.gamma * self.read(f)

    def read(self, f: Array) -> Array:
        """The second cache's scores [m, K] of unit embeddings [m, D]."""
        log_p, log_q = (log_softmax(SHARPNESS * products(v, self.text.rows)) for v in (f, self.keys))
        low, high, least, most = self.ranges.tolist()
        scaled = (divergences(log_p, log_q.astype(f.dtype)) - low) / max(high - low, 1e-12)
        return by_class(-(scaled * (most - least) + least).T, self.labels, len(self.text))

    def tensors(self) -> Tensors:
        """Keys, labels and ranges."""
        return {name: getattr(self, name) for name in ("keys", "labels", "ranges")}

    def config(self) -> dict[str, Any]:
        """The scale of zero-shot, and the numbers of the caches."""
        return {name: getattr(self, name) for name in ("scale", "alpha", "beta", "gamma")}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> TwoCaches:
        """Put the caches beside the base model."""
        numbers = {name: float(config[name]) for name in ("scale", "alpha", "beta", "gamma")}
        arrays = {name: tensors[name] for name in ("keys", "labels", "ranges")}
        return cls(head, text, **arrays, **numbers)  # type: ignore[arg-type]
