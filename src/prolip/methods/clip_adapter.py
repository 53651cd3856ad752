"""CLIP-Adapter: a small network behind the embedding, mixed with it (Gao et al., 2024).

    z = alpha v + (1 - alpha) relu(relu(v W1) W2)        logits = s normalize(z) T'

W1 [D, D/4] and W2 [D/4, D] start random. alpha is the share of the pretrained embedding, as in the paper's
equation 6 (the official program writes the other share, 0.2). The loss is not smooth and has no minimum near
zero-shot, so the recipe is the method, and there are two:

    solver="adam"  as the ProLIP paper runs it again: Adam (eps 1e-4), 300 full-batch epochs, a cosine
    solver="sgd"   as LP++'s authors ran it, for the figures of Table 1: v of unit length goes in, the mix is
                   not normalised, alpha = 0.5; SGD without momentum at 0.01 in batches of 32, 300 epochs. A
                   cosine falls at each step over as many steps as there are epochs, and rises and falls
                   again after that; with a validation set the best epoch is kept (of equals the first)

With "adam", alpha is searched over {0, 0.1, 0.3, 0.5, 0.7, 0.9} on a validation set or inside the support
set, as the paper's grid has it, at one learning rate, on every other fold against the rest and with a tenth
of the epochs; 0.8, the official program's, where there is nothing to hold out.
It does not depend on the classes, so it stays open-class, but nothing holds it near the pretrained model.

Difference that is left: the starting weights and the order of the images are other random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, unit_rows
from prolip.methods import selection
from prolip.methods.base import FitContext, OptionError
from prolip.methods.classifiers import AdapterClassifier
from prolip.methods.logit_bias import LogitBias, LogitBiasMethod, Pullback, Sum, best_epoch, normalised
from prolip.methods.registry import register
from prolip.methods.selection import Split, Splits, Tuning
from prolip.solvers.adam import Steps
from prolip.solvers.folds import assign_folds

ALPHAS = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)
ONE_SHOT_ALPHA = 0.8


@dataclass(frozen=True, eq=False)
class OneSplit(Splits):
    """Every other fold against the rest: five of them would take longer than the fit."""

    @cached_property
    def parts(self) -> list[Split]:
        """One split, or none."""
        task = self.sampled()
        fold = assign_folds(task, self.seed)
        odd = (fold > 0) & (fold % 2 == 1)
        held, kept = np.flatnonzero(odd), np.flatnonzero(~odd)
        return [Split(task.subset(kept), task.x[0, held], task.y[held])] if len(held) else []

    def held_out(self, logits: Sequence[Array]) -> None:
        """Not all images are held out."""


class Adapter(LogitBias):
    """s (normalize(z) - normalize(v)) T', in W1 and W2."""

    smooth: ClassVar[bool] = False

    def __init__(self, task: Task, alpha: float, reduction: int, seed: int, unit_input: bool = False) -> None:
        x, _ = task.rows()
        self.task, self.alpha, self.unit_input = task, alpha, unit_input
        v = task.linear(x)
        self.unit = unit_rows(v)
        self.v = self.unit if unit_input else v
        self.text = task.text.rows.astype(self.v.dtype, copy=False)
        dim = self.v.shape[1]
        hidden = max(1, dim // reduction)
        rng = np.random.default_rng(seed)
        # Uniform within 1 / sqrt(inputs): how linear layers begin in PyTorch.
        self.start = tuple(
            (rng.uniform(-1, 1, shape) / math.sqrt(shape[0])).astype(self.v.dtype)
            for shape in ((dim, hidden), (hidden, dim))
        )

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """What mixing in the network changes, and the way back through its two layers."""
        (down, up), v, s = parameters, self.v[rows], self.task.scale
        hidden = np.maximum(v @ down, 0)
        changed = np.maximum(hidden @ up, 0)
        mixed = self.alpha * v + (1 - self.alpha) * changed
        z, back = (mixed, lambda slope: slope) if self.unit_input else normalised(mixed)

        def pullback(slope: Array) -> list[Array]:
            by_changed = (1 - self.alpha) * back(slope @ (s * self.text)) * (changed > 0)
            by_hidden = by_changed @ up.T * (hidden > 0)
            return [v.T @ by_hidden, hidden.T @ by_changed]

        return (z - self.unit[rows]) @ (s * self.text).T, pullback

    def fitted(self, parameters: Sequence[Array]) -> AdapterClassifier:
        """The network behind the head."""
        task, (down, up) = self.task, parameters
        return AdapterClassifier(task.linear, task.text, task.scale, down, up, self.alpha, self.unit_input)


@register
@dataclass(frozen=True)
class CLIPAdapter(LogitBiasMethod):
    """A two-layer adapter.

    Parameters
    ----------
    alpha
        Share of the pretrained embedding: "auto" (searched; 0.5 with "sgd"), or a number in 0 .. 1.
    reduction
        D over the width of the middle layer.
    solver
        "adam" or "sgd": whose recipe.
    lr, epochs
        Learning rate and epochs of the solver; lr None: 1e-3 for "adam", 0.01 for "sgd".
    seed
        Random seed for the starting weights, the batches and the folds.
    """

    name: ClassVar[str] = "clip_adapter"
    summary: ClassVar[str] = "CLIP-Adapter: a two-layer network mixed with the embedding"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "2 x D/4 x D"

    alpha: Literal["auto"] | float = "auto"
    reduction: int = 4
    solver: Literal["adam", "sgd"] = "adam"
    lr: float | None = None
    epochs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, str) and not 0 <= self.alpha <= 1:
            raise OptionError("alpha", '"auto" or a number from 0 to 1', self.alpha)

    def solve(self, task: Task, context: FitContext) -> AdapterClassifier:
        """Train the network."""
        term = self.bias(task, exact=False)
        judge = best_epoch(term, context.validation) if self.solver == "sgd" else None
        trained = Sum(task, [term]).train(self.recipe(), judge, context.progress)
        return replace(term.fitted(trained.parameters[0]), report=trained.report())

    def recipe(self) -> Steps:
        """The steps of the solver."""
        if self.solver == "adam":
            return Steps(self.lr or 1e-3, self.epochs)
        return Steps(self.lr or 0.01, self.epochs, "sgd", batch=32, schedule="lp++", seed=self.seed)

    def needs_tuning(self) -> bool:
        """Whether alpha is searched."""
        return self.alpha == "auto" and self.solver == "adam"

    def uses_validation(self) -> bool:
        """Whether there is an alpha, or an epoch, to choose."""
        return self.needs_tuning() or self.solver == "sgd"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose alpha where it is "auto"."""
        if self.alpha != "auto":
            return Tuning(self)
        if self.solver == "sgd":
            return Tuning(replace(self, alpha=0.5))
        if splits.validation is None:
            splits = OneSplit(task, None, splits.seed)
        if not splits.parts:
            return selection.fallback(self, "alpha", ONE_SHOT_ALPHA)
        short = replace(self, epochs=max(1, self.epochs // 10))

        def logits(alpha: float) -> list[Array]:
            method = replace(short, alpha=alpha)
            return [method.solve(part.task, FitContext()).logits(part.x) for part in splits.parts]

        return splits.choose(self, "alpha", ALPHAS, selection.in_parallel(logits, ALPHAS))

    def bias(self, task: Task, exact: bool) -> Adapter:
        """The network as a term."""
        return Adapter(task, float(self.alpha), self.reduction, self.seed, self.solver == "sgd")
