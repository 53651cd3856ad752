"""Tip-Adapter: support images as a cache of keys and labels beside zero-shot (Zhang et al., 2022).

    logits = s f T' + alpha exp( -beta (1 - f K') ) V

keys K [n, D] are the unit embeddings of the support images (the mean over views), values V their one-hot
labels. Three methods:

    tip_adapter          nothing is trained; alpha = 1.17, beta = 1, the authors' own for ImageNet, where they
                         search both for other datasets: 200 betas and 20 alphas, ranges by dataset
    tip_adapter_f        keys are trained, alpha = beta = 1, as the paper compares it
    tip_adapter_f_star   keys trained at beta = 1 and each alpha of 0, 1, .., 9; the best of the ten is kept,
                         and alpha and beta are searched with its keys: 200 x 200 values from 0.1 to 50.
                         As LP++'s program runs, the ten trainings share their keys, so that each continues
                         from the last and the keys of the last are used: `shared_keys`

Training is the authors': AdamW (rate 1e-3, eps 1e-4, weight decay 0.01), 20 epochs in batches of 256, a
cosine. It has no penalty, hence no minimum to go to. tip_adapter_f keeps the best epoch on a validation set.

Tip-Adapter-F* is LP++'s authors' form, which chooses on a validation set (of equals the first: small beta,
then small alpha). Tip-Adapter's own program chooses alpha and beta on the whole validation split and the
epoch on the test set (on ImageNet all three on the test set). Without a validation set
all is chosen by cross-validation inside the support set, where every held-out image meets keys trained
without it; with one image a class alpha and beta stay at 1.

Differences: as a term of a sum (`+`) the cache is that of the frozen model, as the paper says; in the
authors' program its queries move with ProLIP's matrix. A sum that goes to its minimum holds the keys K at the
images K0 by |K - K0|^2 / N, or there would be none. The order of the images is another. A key is the mean of
unit views; Tip-Adapter's own averages views of any length (0.006 of a logit on WHU-RS19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from prolip.core import Task, UsageError
from prolip.core.arrays import Array, unit_rows
from prolip.methods import selection
from prolip.methods.base import FitContext
from prolip.methods.classifiers import CacheClassifier, affinity, by_class, products, unit_features
from prolip.methods.logit_bias import LogitBias, LogitBiasMethod, Pullback, Sum, best_epoch
from prolip.methods.registry import register
from prolip.methods.selection import Score, Split, Splits, Tuning
from prolip.solvers.adam import Steps

STARTS = tuple(float(alpha) for alpha in range(10))  # that the keys of tip_adapter_f_star are trained at
GRID = tuple(0.1 + i * (50 - 0.1) / 200 for i in range(200))  # of alpha and of beta
BATCH = 256


class Cache(LogitBias):
    """alpha exp(-beta (1 - f K')) V, in the keys K where they are trained."""

    def __init__(self, task: Task, alpha: float, beta: float, lam: float = 0.0, trained: bool = True) -> None:
        self.task, self.alpha, self.beta, self.lam = task, alpha, beta, lam
        f = unit_features(task.linear, task.x)  # [V, n, D]
        self.f = f.reshape(-1, f.shape[2])
        self.keys = unit_rows(f.mean(axis=0))
        self.start = (self.keys,) if trained else ()

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The logits of the cache for rows of the support set, and the way back to the keys."""
        f, y = self.f[rows], self.task.y
        near = affinity(f, parameters[0] if parameters else self.keys, self.beta)  # [n, m]

        def pullback(slope: Array) -> list[Array]:
            return [(self.alpha * self.beta * near * slope.T[y]) @ f] if parameters else []

        return self.alpha * by_class(near, y, self.task.classes), pullback

    def fitted(self, parameters: Sequence[Array]) -> CacheClassifier:
        """The cache beside zero-shot."""
        task, keys = self.task, parameters[0] if parameters else self.keys
        return CacheClassifier(task.linear, task.text, task.scale, keys, task.y, self.alpha, self.beta)


@register
@dataclass(frozen=True)
class TipAdapter(LogitBiasMethod):
    """The cache as it is.

    Parameters
    ----------
    alpha, beta
        Weight and sharpness of the cache.
    """

    name: ClassVar[str] = "tip_adapter"
    summary: ClassVar[str] = "Tip-Adapter: a cache of the support images beside zero-shot, no training"
    size: ClassVar[str] = "0"

    alpha: float = 1.17
    beta: float = 1.0

    def solve(self, task: Task, context: FitContext) -> CacheClassifier:
        """Build the cache."""
        return self.bias(task, exact=False).fitted([])

    def bias(self, task: Task, exact: bool) -> Cache:
        """The cache as a term: nothing in it is trained."""
        return Cache(task, self.alpha, self.beta, trained=False)


@register
@dataclass(frozen=True)
class TipAdapterF(LogitBiasMethod):
    """The cache with trained keys.

    Parameters
    ----------
    alpha, beta
        Weight and sharpness of the cache.
    lr, epochs
        Learning rate and epochs of AdamW.
    seed
        Random seed for the batches.
    """

    name: ClassVar[str] = "tip_adapter_f"
    summary: ClassVar[str] = "Tip-Adapter-F: the cache with trained keys, alpha = beta = 1"
    size: ClassVar[str] = "N x K x D"

    decay_in_adam_sum: ClassVar[float] = 0.01

    alpha: float = 1.0
    beta: float = 1.0
    lr: float = 1e-3
    epochs: int = 20
    seed: int = 0

    def bias(self, task: Task, exact: bool) -> Cache:
        """The cache as a term, its keys held at the images where there is a minimum to go to."""
        return Cache(task, self.alpha, self.beta, 1 / task.shots if exact else 0.0)

    def solve(self, task: Task, context: FitContext) -> CacheClassifier:
        """Train the keys of the cache by the authors' steps."""
        return self.train(task, context)

    def train(self, task: Task, context: FitContext, start: Array | None = None) -> CacheClassifier:
        """The cache with keys trained from `start`, or from the support images."""
        term = self.bias(task, exact=False)
        steps = Steps(self.lr, self.epochs, decay=0.01, batch=BATCH, seed=self.seed)
        judge, first = best_epoch(term, context.validation), None if start is None else [start]
        trained = Sum(task, [term]).train(steps, judge, context.progress, first)
        return replace(term.fitted(trained.parameters[0]), report=trained.report())

    def uses_validation(self) -> bool:
        """Whether there is an epoch to choose."""
        return True


@register
@dataclass(frozen=True)
class TipAdapterFStar(TipAdapterF):
    """Trained keys, searched alpha and beta.

    Parameters
    ----------
    alpha, beta
        Weight and sharpness of the cache: numbers, or "auto" for both (searched).
    shared_keys
        Whether each training continues from the last, as LP++'s program runs.
    """

    name: ClassVar[str] = "tip_adapter_f_star"
    summary: ClassVar[str] = "Tip-Adapter-F*: trained keys, alpha and beta searched"

    alpha: Literal["auto"] | float = "auto"  # type: ignore[assignment]
    beta: Literal["auto"] | float = "auto"  # type: ignore[assignment]
    shared_keys: bool = False

    def __post_init__(self) -> None:
        if (self.alpha == "auto") != (self.beta == "auto"):
            raise UsageError('alpha and beta are searched together: give numbers for both, or "auto"')

    def needs_tuning(self) -> bool:
        """Whether alpha and beta are searched."""
        return self.alpha == "auto"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Train at each of the first alphas, keep the best, and search alpha and beta with its keys."""
        if not self.needs_tuning():
            return Tuning(self)
        fixed, parts = replace(self, alpha=1.0, beta=1.0), splits.parts
        if not parts:
            return selection.fallback(fixed, "alpha", 1.0, "alpha = beta = 1")
        best, kept, caches = -1.0, fixed, list[CacheClassifier]()
        for start in [fixed] if self.shared_keys else [replace(fixed, alpha=alpha) for alpha in STARTS]:
            tasks = [part.task for part in parts]
            trained = selection.in_parallel(partial(start.train_all, context=FitContext()), tasks)
            if (accuracy := _score(splits, trained).accuracy) > best:
                best, kept, caches = accuracy, start, trained
        pairs = list(zip(parts, [cache.keys for cache in caches], strict=True))
        right = np.sum(selection.in_parallel(lambda pair: count_right(*pair, GRID, GRID), pairs), axis=0)
        beta, alpha = (GRID[i] for i in np.unravel_index(right.argmax(), right.shape))
        score = _score(splits, [replace(cache, alpha=alpha, beta=beta) for cache in caches])
        report = splits.report("alpha, beta", [(alpha, beta)], [score])
        return Tuning(replace(self, alpha=alpha, beta=beta), report, start=kept)

    def solve(self, task: Task, context: FitContext) -> CacheClassifier:
        """Train the keys at the alpha that did best, for the alpha and beta that were found with them."""
        if context.start is None:
            return self.train_all(task, context)
        trained: CacheClassifier = context.start.train_all(task, replace(context, validation=None))
        return replace(trained, alpha=float(self.alpha), beta=float(self.beta))

    def train_all(self, task: Task, context: FitContext) -> CacheClassifier:
        """Train the keys; where they are shared, at each of the first alphas in turn."""
        if not self.shared_keys:
            return self.train(task, context)
        keys: Array | None = None
        for alpha in STARTS:
            trained = replace(self, alpha=alpha, beta=1.0).train(task, context, keys)
            keys = trained.keys
        return replace(trained, alpha=float(self.alpha), beta=float(self.beta))


def _score(splits: Splits, caches: Sequence[CacheClassifier]) -> Score:
    """How well the caches of the training parts do on the images that were held out."""
    return splits.score([cache.logits(part.x) for cache, part in zip(caches, splits.parts, strict=True)])


def count_right(part: Split, keys: Array, alphas: Sequence[float], betas: Sequence[float]) -> Array:
    """How many held-out images are right, [betas, alphas]."""
    task = part.task
    f = unit_features(task.linear, part.x)
    ahead, nearness = lead(task.scale * products(f, task.text.rows), part.y), keys @ f.T - 1
    caches = (by_class(np.exp(beta * nearness), task.y, task.classes) for beta in betas)
    return np.array([count_by_alpha(ahead, cached, part.y, alphas) for cached in caches])


def lead(logits: Array, y: Array) -> Array:
    """How far the true class of each image is ahead of every other, [m, K]; of itself, by infinity."""
    every = np.arange(len(y))
    ahead = logits[every, y, None] - logits
    ahead[every, y] = np.inf
    return ahead


def count_by_alpha(ahead: Array, cached: Array, y: Array, alphas: Sequence[float]) -> Array:
    """How many images are right by zero-shot + alpha x cached [m, K], for each alpha.

    An image is right where z_y + alpha c_y > z_k + alpha c_k for every other class k: between the largest
    alpha that some k asks for, and the smallest that some k allows.
    """
    gain = cached[np.arange(len(y)), y, None] - cached
    with np.errstate(divide="ignore", invalid="ignore"):
        turn = -ahead / gain
    least = np.where(gain > 0, turn, -np.inf).max(axis=1)
    most = np.where(gain < 0, turn, np.inf).min(axis=1)
    least[((gain == 0) & (ahead <= 0)).any(axis=1)] = np.inf
    tried = np.array(alphas)[:, None]
    counts: Array = ((least < tried) & (tried < most)).sum(axis=1)
    return counts
