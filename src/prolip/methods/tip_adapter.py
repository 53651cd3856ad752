"""Tip-Adapter: support images as a cache of keys and labels beside zero-shot (Zhang et al., 2022).

    logits = s f T' + alpha exp( -beta (1 - f K') ) V

keys K [n, D] are the unit embeddings of the support images (the mean over views), values V their one-hot
labels. Three methods:

    tip_adapter          nothing is trained; alpha = 1.17, beta = 1, the authors' own for ImageNet; "auto"
                         searches both (theirs: 200 betas and 20 alphas, ranges by dataset)
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
from typing import Any, ClassVar

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, unit_rows
from prolip.methods import selection
from prolip.methods.base import FitContext, OptionError, Shape
from prolip.methods.classifiers import CacheClassifier, affinity, by_class, products, unit_features
from prolip.methods.logit_bias import LogitBias, LogitBiasMethod, Pullback, Sum, best_epoch
from prolip.methods.registry import register
from prolip.methods.selection import Score, Split, Splits, Tuning
from prolip.solvers.adam import Steps

BETAS_TRIED = 200  # that are searched
STARTS = tuple(float(alpha) for alpha in range(10))  # that the keys of tip_adapter_f_star are trained at


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

    def penalty(self, parameters: Sequence[Array]) -> tuple[float, list[Array]]:
        """The pull lam |K - K0|^2."""
        steps = [keys - self.keys for keys in parameters]
        return sum(self.lam * float(np.vdot(s, s)) for s in steps), [2 * self.lam * s for s in steps]

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
        Weight and sharpness of the cache: numbers, or "auto" for both (searched).
    max_alpha, max_beta, alphas
        Where the search ends, and how many alphas it tries.
    seed
        Random seed for folds and batches.
    """

    name: ClassVar[str] = "tip_adapter"
    summary: ClassVar[str] = "Tip-Adapter: a cache of the support images beside zero-shot, no training"
    size: ClassVar[str] = "0"

    alpha: str | float = 1.17
    beta: str | float = 1.0
    seed: int = 0
    max_alpha: float = 50.0
    max_beta: float = 50.0
    alphas: int = 200

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, (int, float)) and value >= 0):
                raise OptionError(name, '"auto" or a number >= 0', value)

    def needs_tuning(self) -> bool:
        """Whether alpha or beta is "auto"."""
        return "auto" in (self.alpha, self.beta)

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Search alpha and beta where they are "auto"."""
        return self.search(splits, self.keys_of_parts(splits.parts)) if self.needs_tuning() else Tuning(self)

    def search(self, splits: Splits, keys: Sequence[Array]) -> Tuning:
        """Choose the alpha and beta that do best on held-out images, given the keys of the training parts."""
        if not splits.parts:
            start = selection.fallback(self, "alpha", _number(self.alpha), "alpha = beta = 1")
            return replace(start, method=replace(start.method, beta=_number(self.beta)))  # type: ignore[type-var]
        alphas = _values(self.alpha, search_values(self.max_alpha, self.alphas))
        betas = _values(self.beta, search_values(self.max_beta, BETAS_TRIED))
        pairs = list(zip(splits.parts, keys, strict=True))
        right = np.sum(selection.in_parallel(lambda pair: count_right(*pair, alphas, betas), pairs), axis=0)
        beta, alpha = np.unravel_index(right.argmax(), right.shape)
        found = replace(self, alpha=alphas[alpha], beta=betas[beta])
        report = splits.report("alpha, beta", [(found.alpha, found.beta)], [found.score(splits, keys)])
        return Tuning(found, report)

    def score(self, splits: Splits, keys: Sequence[Array]) -> Score:
        """How well these keys do on held-out images, at this alpha and beta."""
        caches = [Cache(part.task, _number(self.alpha), _number(self.beta)) for part in splits.parts]
        return splits.score(
            [
                cache.fitted([own]).logits(part.x)
                for cache, own, part in zip(caches, keys, splits.parts, strict=True)
            ]
        )

    def solve(self, task: Task, context: FitContext) -> CacheClassifier:
        """Build the cache; train its keys where the method does."""
        keys, report = self.keys_of(task, context)
        fitted = Cache(task, _number(self.alpha), _number(self.beta)).fitted([keys])
        return replace(fitted, report=report)

    def bias(self, task: Task, exact: bool) -> Cache:
        """The cache as a term: nothing in it is trained."""
        return Cache(task, _number(self.alpha), _number(self.beta), trained=False)

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0

    def keys_of(self, task: Task, context: FitContext) -> tuple[Array, dict[str, Any]]:
        """The cache's keys [n, D], the support images as they are; and a report of their training."""
        return Cache(task, 1.0, 1.0).keys, {}

    def keys_of_parts(self, parts: Sequence[Split]) -> list[Array]:
        """The keys of each training part."""
        return selection.in_parallel(lambda part: self.keys_of(part.task, FitContext())[0], parts)


@register
@dataclass(frozen=True)
class TipAdapterF(TipAdapter):
    """The cache with trained keys.

    Parameters
    ----------
    lr, epochs, batch
        Learning rate, epochs and batch size of AdamW.
    """

    name: ClassVar[str] = "tip_adapter_f"
    summary: ClassVar[str] = "Tip-Adapter-F: the cache with trained keys, alpha = beta = 1"
    size: ClassVar[str] = "N x K x D"

    decay_in_adam_sum: ClassVar[float] = 0.01

    alpha: str | float = 1.0
    lr: float = 1e-3
    epochs: int = 20
    batch: int = 256

    def bias(self, task: Task, exact: bool) -> Cache:
        """The cache as a term, its keys held at the images where there is a minimum to go to."""
        return Cache(task, _number(self.alpha), _number(self.beta), 1 / task.shots if exact else 0.0)

    def count(self, shape: Shape) -> int:
        """A key for each image: N x K x D."""
        return shape.images * shape.dim

    def keys_of(self, task: Task, context: FitContext) -> tuple[Array, dict[str, Any]]:
        """Keys trained from the support images, and a report of the training."""
        return self.train_keys(task, context)

    def train_keys(
        self, task: Task, context: FitContext, start: Array | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Keys trained from `start`, or the support images."""
        term = self.bias(task, exact=False)
        steps = Steps(self.lr, self.epochs, decay=0.01, batch=self.batch, seed=self.seed)
        judge, first = best_epoch(term, context.validation), None if start is None else [start]
        trained = Sum(task, [term]).train(steps, judge, context.progress, first)
        return trained.parameters[0][0], trained.report()

    def uses_validation(self) -> bool:
        """Whether there is an epoch to choose."""
        return True


@register
@dataclass(frozen=True)
class TipAdapterFStar(TipAdapterF):
    """Trained keys, searched alpha and beta.

    Parameters
    ----------
    shared_keys
        Whether each training continues from the last, as LP++'s program runs.
    """

    name: ClassVar[str] = "tip_adapter_f_star"
    summary: ClassVar[str] = "Tip-Adapter-F*: trained keys, alpha and beta searched"

    alpha: str | float = "auto"
    beta: str | float = "auto"
    shared_keys: bool = False

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Train at each of the first alphas, keep the best, and search alpha and beta with its keys."""
        if not self.needs_tuning():
            return Tuning(self)
        first, keys = self._start(splits)
        return replace(self.search(splits, keys), start=first)

    def solve(self, task: Task, context: FitContext) -> CacheClassifier:
        """Train the keys at the alpha that did best, for the alpha and beta that were found with them."""
        if context.start is None:
            return super().solve(task, context)
        keys, report = context.start.keys_of(task, replace(context, validation=None))
        fitted = Cache(task, _number(self.alpha), _number(self.beta)).fitted([keys])
        return replace(fitted, report=report)

    def keys_of(self, task: Task, context: FitContext) -> tuple[Array, dict[str, Any]]:
        """Keys trained from the support images; where shared, at each of the first alphas in turn."""
        if not self.shared_keys:
            return super().keys_of(task, context)
        keys: Array | None = None
        report: dict[str, Any] = {}
        for alpha in STARTS:
            keys, report = replace(self, alpha=alpha, beta=1.0).train_keys(task, context, keys)
        assert keys is not None
        return keys, report

    def _start(self, splits: Splits) -> tuple[TipAdapterFStar, list[Array]]:
        """With the alpha whose trained keys do best on held-out images (of equals the first); those keys."""
        best, kept, found = -1.0, replace(self, alpha=_number(self.alpha), beta=_number(self.beta)), []
        if self.shared_keys:
            return kept, kept.keys_of_parts(splits.parts)
        for alpha in _values(self.alpha, STARTS) if splits.parts else ():
            at = replace(kept, alpha=alpha)
            keys = at.keys_of_parts(splits.parts)
            if (accuracy := at.score(splits, keys).accuracy) > best:
                best, kept, found = accuracy, at, keys
        return kept, found


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


def search_values(largest: float, count: int) -> tuple[float, ...]:
    """Values from 0.1 up to the largest, as Tip-Adapter's authors and those after them space them."""
    return tuple(0.1 + i * (largest - 0.1) / count for i in range(count))


def _values(given: str | float, grid: Sequence[float]) -> Sequence[float]:
    return grid if isinstance(given, str) else (given,)


def _number(given: str | float) -> float:
    """What "auto" is before it is searched."""
    return 1.0 if isinstance(given, str) else float(given)
