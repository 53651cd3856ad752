"""Tip-Adapter: support images as a cache of keys and labels beside zero-shot (Zhang et al., 2022).

    logits = s f T' + alpha exp( -beta (1 - f K') ) V

keys K [n, D] are the unit embeddings of the support images (the mean over views), values V their one-hot
labels. Three methods:

    tip_adapter          nothing is trained; alpha = 1.17, beta = 1, the authors' own for ImageNet
    tip_adapter_f        keys are trained, alpha = beta = 1, as the paper compares it
    tip_adapter_f_star   alpha and beta searched, keys trained there, alpha and beta searched again

Training is the authors': AdamW (rate 1e-3, eps 1e-4, weight decay 0.01), 20 epochs in batches of 256, a
cosine. It has no penalty, hence no minimum to go to. With a validation set the best epoch is kept.

Differences: the authors pick the epoch, alpha and beta on the test set; here alpha and beta are searched on a
validation set, or by cross-validation inside the support set, where every held-out image meets keys trained
without it. With one image a class and no validation set they stay at 1. As a term of a sum (`+`) the cache
is that of the frozen model, as the paper says; in the authors' program its queries move with ProLIP's matrix.
A sum that goes to its minimum holds the keys K at the images K0 by |K - K0|^2 / N, or there would be none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Task, UsageError
from prolip.core.arrays import Array, unit_rows
from prolip.methods.common import cross_validation
from prolip.methods.common.classifiers import CacheClassifier, affinity, by_class, products, unit_features
from prolip.methods.common.hyperparameter import in_parallel
from prolip.methods.common.logit_bias import LogitBias, LogitBiasMethod, Pullback, Sum
from prolip.methods.common.method import Progress, Shape
from prolip.solvers.threads import single_thread

ALPHAS = (0.0, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0)
BETAS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0)


class Cache(LogitBias):
    """alpha exp(-beta (1 - f K')) V, in the keys K where they are trained."""

    def __init__(self, task: Task, alpha: float, beta: float, lam: float = 0.0, trained: bool = True) -> None:
        self.task, self.alpha, self.beta, self.lam = task, alpha, beta, lam
        f = unit_features(task.linear, task.x)  # [V, n, D]
        self.f = f.reshape(-1, f.shape[2])
        self.keys = unit_rows(f.mean(axis=0))
        self.start = (self.keys,) if trained else ()

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The cache's answer for rows of the support set, and the way back to the keys."""
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


@dataclass(frozen=True)
class TipAdapter(LogitBiasMethod):
    """The cache as it is.

    Parameters
    ----------
    alpha, beta
        Weight and sharpness of the cache: numbers, or "auto" for both (searched).
    seed
        Of folds and batches.
    """

    name: ClassVar[str] = "tip_adapter"
    summary: ClassVar[str] = "Tip-Adapter: a cache of the support images beside zero-shot, no training"
    open_class: ClassVar[bool] = False
    size: ClassVar[str] = "0"

    alpha: str | float = 1.17
    beta: str | float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, (int, float)) and value >= 0):
                raise UsageError(f'{name} must be "auto" or a number >= 0, got {value!r}')

    @single_thread()
    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> CacheClassifier:
        """Build the cache; train and search as the method says."""
        started = time.perf_counter()
        _, method, figures = self.resolve(task, validation)
        keys, training = method.keys_of(task, progress, validation)
        fitted = Cache(task, _number(method.alpha), _number(method.beta)).fitted([keys])
        return method.finish(fitted, task, started, **figures, **training)

    def resolve(self, task: Task, validation: Task | None) -> tuple[Task, TipAdapter, dict[str, Any]]:
        """Search alpha and beta where that is asked for."""
        if "auto" not in (self.alpha, self.beta):
            return task, self, {}
        parts = cross_validation.splits(task, validation, seed=self.seed)
        keys = in_parallel(lambda part: self.keys_of(part.task, None, None)[0], parts)
        return task, *self.search(parts, keys)

    def search(
        self, parts: Sequence[cross_validation.Split], keys: Sequence[Array]
    ) -> tuple[TipAdapter, dict[str, Any]]:
        """With the alpha and beta that do best on held-out images, given the keys of the training parts."""
        pairs = [(a, b) for b in _values(self.beta, BETAS) for a in _values(self.alpha, ALPHAS)]
        if not parts:
            start = replace(self, alpha=_number(self.alpha), beta=_number(self.beta))
            return start, cross_validation.fallback("alpha, beta", 1)
        by_part = in_parallel(lambda pair: held_out(*pair, pairs), list(zip(parts, keys, strict=True)))
        labels = [part.y for part in parts]
        scores = [cross_validation.score(logits, labels) for logits in zip(*by_part, strict=True)]
        place = cross_validation.best(scores)
        report = cross_validation.report("alpha, beta", [pairs[place]], [scores[place]], parts)
        return replace(self, alpha=pairs[place][0], beta=pairs[place][1]), report

    def bias(self, task: Task, exact: bool) -> Cache:
        """The cache as a term: nothing in it is trained."""
        return Cache(task, _number(self.alpha), _number(self.beta), trained=False)

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0

    def keys_of(
        self, task: Task, progress: Progress | None, validation: Task | None
    ) -> tuple[Array, dict[str, Any]]:
        """The cache's keys [n, D], and what there is to tell of them: the support images as they are."""
        return Cache(task, 1.0, 1.0).keys, {}


@dataclass(frozen=True)
class TipAdapterF(TipAdapter):
    """The cache with trained keys.

    Parameters
    ----------
    lr, epochs, batch
        Of AdamW.
    """

    name: ClassVar[str] = "tip_adapter_f"
    summary: ClassVar[str] = "Tip-Adapter-F: the cache with trained keys, alpha = beta = 1"
    size: ClassVar[str] = "N x K x D"

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

    def keys_of(
        self, task: Task, progress: Progress | None, validation: Task | None
    ) -> tuple[Array, dict[str, Any]]:
        """Keys trained from the support images, and figures of the training."""
        trained = Sum(task, [self.bias(task, exact=False)]).adam(
            lr=self.lr,
            epochs=self.epochs,
            decay=0.01,
            batch=self.batch,
            seed=self.seed,
            judge=self._judge(task, validation),
            progress=progress,
        )
        return trained.parameters[0][0], trained.report()

    def _judge(self, task: Task, validation: Task | None) -> Callable[[list[list[Array]]], float] | None:
        if validation is None:
            return None
        term = self.bias(task, exact=False)

        def accuracy(parameters: list[list[Array]]) -> float:
            found = term.fitted(parameters[0]).predict(validation.x[0])
            return float((found == validation.y).mean())

        return accuracy


@dataclass(frozen=True)
class TipAdapterFStar(TipAdapterF):
    """Trained keys, searched alpha and beta."""

    name: ClassVar[str] = "tip_adapter_f_star"
    summary: ClassVar[str] = "Tip-Adapter-F*: trained keys, alpha and beta searched"

    alpha: str | float = "auto"
    beta: str | float = "auto"

    @single_thread()
    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> CacheClassifier:
        """Search without training, train from there, and search again with the trained keys."""
        if "auto" not in (self.alpha, self.beta):
            return super().fit(task, progress, validation)
        started = time.perf_counter()
        parts = cross_validation.splits(task, validation, seed=self.seed)
        untrained = [Cache(part.task, 1.0, 1.0).keys for part in parts]
        first, _ = self.search(parts, untrained)
        keys, training = first.keys_of(task, progress, validation)
        again = [keys]
        if validation is None:
            again = in_parallel(lambda part: first.keys_of(part.task, None, None)[0], parts)
        found, report = self.search(parts, again)
        fitted = Cache(task, _number(found.alpha), _number(found.beta)).fitted([keys])
        return found.finish(fitted, task, started, **report, **training)


def held_out(part: cross_validation.Split, keys: Array, pairs: Sequence[tuple[float, float]]) -> list[Array]:
    """Logits of held-out images for each alpha and beta."""
    task = part.task
    f = unit_features(task.linear, part.x)
    zero, nearness = task.scale * products(f, task.text.rows), keys @ f.T - 1
    cached = {b: by_class(np.exp(b * nearness), task.y, task.classes) for b in {beta for _, beta in pairs}}
    return [zero + alpha * cached[beta] for alpha, beta in pairs]


def _values(given: str | float, grid: Sequence[float]) -> Sequence[float]:
    return grid if isinstance(given, str) else (given,)


def _number(given: str | float) -> float:
    """What "auto" is before it is searched."""
    return 1.0 if isinstance(given, str) else float(given)
