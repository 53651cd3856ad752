"""CLAP: a class-adaptive linear probe (Silva-Rodriguez et al., 2024).

Class rows start at the texts, and each is held there the more, the better zero-shot does on its class:

    minimise over W:   mean_i CE( s f_i . normalize(w_k), y_i )  +  mean_k m_k (s / 10)^2 |w_k - t_k|^2
    m_k = mean over the images of class k of the zero-shot probability of k

In their program the rows keep the length that CLIP gives texts, about 10 at s = 100: that is the factor
(s / 10)^2 on our unit rows, and it makes the pull mean the same at any scale.

`multipliers="fixed"` is their default. "adaptive" is the outer loop of the augmented Lagrangian: after each
inner minimum, with h_k the squared distance of row k, m_k becomes max(m_k + rho_k h_k, 0) and rho_k becomes
h_k. As h_k >= 0, multipliers only grow: rows that strayed furthest are called back most.

The fixed multipliers do not weaken with more images: under CLIP it falls behind the other probes at 16 shots.

Differences: the inner minimum is exact (theirs: SGD, 300 epochs on 20 augmented passes); a class without
images takes the mean multiplier of the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prolip.core import Task, UsageError, errors
from prolip.core.arrays import Array, one_hot_sum, softmax
from prolip.methods.common.classifiers import LinearClassifier, products, unit_features
from prolip.methods.common.logit_bias import LogitBiasMethod, Sum
from prolip.methods.common.method import Progress, Shape
from prolip.methods.common.text_residual import TextResidual
from prolip.solvers.threads import single_thread

MULTIPLIERS = ("fixed", "adaptive")


@dataclass(frozen=True)
class CLAP(LogitBiasMethod):
    """A linear probe held at the texts, class by class.

    Parameters
    ----------
    multipliers
        "fixed", or "adaptive".
    rounds
        Outer steps of "adaptive".
    """

    name: ClassVar[str] = "clap"
    summary: ClassVar[str] = "CLAP: a linear probe held at each class text by its zero-shot reliability"
    open_class: ClassVar[bool] = False
    size: ClassVar[str] = "K x D"

    multipliers: str = "fixed"
    rounds: int = 3

    def __post_init__(self) -> None:
        if self.multipliers not in MULTIPLIERS:
            raise errors.unknown_name("multipliers", str(self.multipliers), MULTIPLIERS)
        if self.rounds < 1:
            raise UsageError(f"rounds must be at least 1, got {self.rounds}")

    @single_thread()
    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> LinearClassifier:
        """Train the rows; with adaptive multipliers, several times."""
        started = time.perf_counter()
        multiplier = reliability(task)
        term = self.bias(task, exact=True)
        trained = Sum(task, [term]).minimise()
        if self.multipliers == "adaptive":
            rho = np.ones_like(multiplier)
            for _ in range(self.rounds):
                distance = np.square(trained.parameters[0][0]).sum(axis=1)
                multiplier = np.maximum(multiplier + rho * distance, 0)
                rho = distance
                term = TextResidual(task, _strength(task, multiplier))
                trained = Sum(task, [term]).minimise()
        extremes = [float(multiplier.min()), float(multiplier.max())]
        fitted = term.fitted(trained.parameters[0])
        return self.finish(fitted, task, started, multipliers=extremes, **trained.report())

    def bias(self, task: Task, exact: bool) -> TextResidual:
        """The moved rows, with the fixed multipliers."""
        return TextResidual(task, _strength(task, reliability(task)))

    def count(self, shape: Shape) -> int:
        """A row for each class: K x D."""
        return shape.classes * shape.dim


def reliability(task: Task) -> Array:
    """m_k [K]: how probable zero-shot finds the true class, mean over the images of each class."""
    x, y = task.rows()
    f = unit_features(task.linear, x)
    p = softmax(task.scale * products(f, task.text.rows))[np.arange(len(y)), y]
    images = np.bincount(y, minlength=task.classes)
    mean = one_hot_sum(p, y, task.classes) / np.maximum(images, 1)
    return np.where(images > 0, mean, mean[images > 0].mean())


def _strength(task: Task, multiplier: Array) -> Array:
    return multiplier * (task.scale / 10) ** 2 / task.classes
