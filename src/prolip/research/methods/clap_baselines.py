"""Baselines as CLAP's authors run them (Silva-Rodriguez et al., 2024), for the figures of Table 2b.

All are trained by the steps of CLAP: SGD with momentum at 0.1, 300 epochs in batches of 256.

**Tip-Adapter-F.** Keys start as the embeddings v of the support images, the mean over views, as long as the
tower makes them, and are trained on the same mean embeddings:

    logits = s f T' + exp( v normalize(K)' - 1 ) V,      v = head(x), f = normalize(v)

Queries are not normalised: that is their program, not ours. Where embeddings are long (about 10 under
ViT-B/16) the cache outweighs zero-shot, and accuracy falls below it; where they are short (RN50, on which the
figures are) it does not. So embeddings of unit length are refused: their length is part of the method.

**Cross-modal LP.** A probe that starts at the texts and is trained on images and texts alike:

    logits = s f normalize(W)',      W = T at the start,      f of images, and of prompts of their classes

Texts are as many as images. Where a class has several prompts, as on ImageNet, the program gives them in
another order than their labels, and so most of them wrong labels; this does the same.

Differences that are left: as many views as the task has (theirs: 20); texts are dealt out evenly over the
classes of the images, where theirs are drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, InputError, Task, Text
from prolip.core.arrays import Array, as_features, row_lengths, unit_rows
from prolip.methods.base import FitContext, Method
from prolip.methods.classifiers import LinearClassifier, affinity, by_class, products
from prolip.methods.logit_bias import LogitBias, Pullback, Sum, normalised
from prolip.methods.registry import register
from prolip.methods.task_res import UNIT, TextResidual, raw_prompts
from prolip.solvers.adam import clap_steps


class UnnormalisedCache(LogitBias):
    """exp(v normalize(K)' - 1) V on a task of one view, in the keys K."""

    def __init__(self, task: Task) -> None:
        self.task, self.v = task, task.linear(task.x[0])
        self.start = (self.v,)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The logits of the cache for rows of the support set, and the way back to the keys."""
        v, y = self.v[rows], self.task.y
        unit, back = normalised(parameters[0])
        near = affinity(v, unit, 1.0)  # [n, m]

        def pullback(slope: Array) -> list[Array]:
            slopes = slope.T[y]  # [n, m]
            slopes *= near
            return [back(slopes @ v)]

        return by_class(near, y, self.task.classes), pullback

    def fitted(self, parameters: Sequence[Array]) -> UnnormalisedCacheClassifier:
        """The cache beside zero-shot."""
        task = self.task
        return UnnormalisedCacheClassifier(
            task.linear, task.text, task.scale, unit_rows(parameters[0]), task.y
        )


@register
@dataclass(frozen=True)
class CLAPTipAdapterF(Method):
    """The cache with trained keys, by CLAP's program.

    Parameters
    ----------
    seed
        Random seed for the batches.
    """

    name: ClassVar[str] = "clap_tip_adapter_f"
    summary: ClassVar[str] = "Tip-Adapter-F by the program of CLAP's authors"
    size: ClassVar[str] = "N x K x D"
    research: ClassVar[bool] = True

    seed: int = 0

    def solve(self, task: Task, context: FitContext) -> UnnormalisedCacheClassifier:
        """Train the keys, and return the cache with them beside zero-shot."""
        if np.abs(row_lengths(task.embeddings()) - 1).max() < UNIT:
            raise InputError(
                f"{self.name} needs embeddings as long as the model makes them, these have length 1: give "
                "features before the projection, or embeddings that are not normalised"
            )
        task = task.with_features(task.x.mean(axis=0), task.head)
        term = UnnormalisedCache(task)
        trained = Sum(task, [term]).train(clap_steps(self.seed), progress=context.progress)
        return replace(term.fitted(trained.parameters[0]), report=trained.report())


@dataclass(frozen=True, eq=False)
class UnnormalisedCacheClassifier(Fitted):
    """logits = s f T' + exp(v K' - 1) V, with unit keys K and embeddings v of any length."""

    head: Head
    text: Text
    scale: float
    keys: Array  # [n, D]
    labels: Array  # [n]

    def logits(self, x: Any) -> Array:
        """Scores [m, K]: zero-shot, and what the nearest keys say."""
        v = self.head(as_features(x, "features"))
        near = by_class(affinity(v, self.keys, 1.0), self.labels, len(self.text))
        return self.scale * products(unit_rows(v), self.text.rows) + near


@register
@dataclass(frozen=True)
class CLAPCrossModal(Method):
    """The cross-modal probe, by CLAP's program.

    Parameters
    ----------
    seed
        Random seed for the batches.
    """

    name: ClassVar[str] = "clap_cross_modal"
    summary: ClassVar[str] = "the cross-modal linear probe by the program of CLAP's authors"
    size: ClassVar[str] = "K x D"
    research: ClassVar[bool] = True

    seed: int = 0

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Train class rows on embeddings of images, and on as many of prompts."""
        prompts = raw_prompts(task)  # [templates, K, D]
        templates, _, dim = prompts.shape
        rng = np.random.default_rng(self.seed)
        turns = rng.integers(templates, size=(task.views, task.n))
        # Prompts go template by template, their labels class by class.
        texts = prompts.reshape(-1, dim)[task.y * templates + turns]
        both = task.with_features(np.concatenate([task.embeddings(), texts]), None)
        term = TextResidual(both, 0.0, rows=prompts.mean(axis=0))
        trained = Sum(both, [term]).train(clap_steps(self.seed), progress=context.progress)
        fitted = term.fitted(trained.parameters[0])
        return replace(fitted, head=task.linear, report=trained.report())
