"""CLAP: a class-adaptive linear probe (Silva-Rodriguez et al., 2024).

Class rows start at the texts, and each is held there the more, the better zero-shot does on its class:

    minimise over W:   mean_i CE( s f_i . normalize(w_k), y_i )  +  mean_k m_k |w_k - t_k|^2
    m_k = mean over the images of class k of the zero-shot probability of k

t_k is the mean of the prompts as long as the text tower makes them, not normalised; where only unit rows are
known their length is taken to be s / 10, about CLIP's. The unknowns here are w_k over that length.

`multipliers="fixed"` is their default; it does not weaken with more images. "adaptive" is the outer loop of
the augmented Lagrangian: with h_k the squared distance of row k, m_k becomes max(m_k + rho_k h_k, 0) and
rho_k, at first 0, becomes h_k. As h_k >= 0, multipliers only grow: rows that moved furthest are pulled back
most. Here this follows a whole fit, `rounds` times; in their program it follows every epoch of one training.

By default the inner minimum is exact. `solver="sgd"` is the authors' recipe: SGD with momentum 0.9 at 0.1,
300 epochs in batches of 256 from all views together, a first epoch at 1e-5, then a cosine, once an epoch; an
epoch has as many batches as the images fill, a last one that is not full left out. It ends where its epochs
do, at most a few tenths of a logit away.

Differences that are left: as many views as the task has (theirs: 20); a class without images takes the mean
multiplier of the others.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from prolip.core import Task, errors
from prolip.core.arrays import Array, one_hot_sum, row_lengths, softmax, unit_rows
from prolip.methods.base import FitContext, OptionError, Shape
from prolip.methods.classifiers import LinearClassifier, products, unit_features
from prolip.methods.logit_bias import LogitBiasMethod, Sum, Trained
from prolip.methods.registry import register
from prolip.methods.task_res import TextResidual, raw_texts
from prolip.solvers.adam import clap_steps

MULTIPLIERS = ("fixed", "adaptive")
SOLVERS = ("exact", "sgd")


@register
@dataclass(frozen=True)
class CLAP(LogitBiasMethod):
    """A linear probe held at the texts, class by class.

    Parameters
    ----------
    multipliers
        "fixed", or "adaptive".
    rounds
        Outer steps of "adaptive".
    solver
        "exact", or "sgd" for the authors' steps.
    seed
        Random seed for the batches.
    """

    name: ClassVar[str] = "clap"
    summary: ClassVar[str] = "CLAP: a linear probe held at each class text by its zero-shot reliability"
    size: ClassVar[str] = "K x D"

    multipliers: str = "fixed"
    rounds: int = 3
    solver: str = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        errors.check_name("solver", self.solver, SOLVERS)
        errors.check_name("multipliers", self.multipliers, MULTIPLIERS)
        if self.rounds < 1:
            raise OptionError("rounds", "at least 1", self.rounds)

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Train the rows; with adaptive multipliers, several times."""
        multiplier = reliability(task)
        term, trained = self._train(task, multiplier)
        if self.multipliers == "adaptive":
            rho = np.zeros_like(multiplier)
            for _ in range(self.rounds):
                moved = trained.parameters[0][0] * (row_lengths(raw_texts(task)) / row_lengths(term.rows))
                distance = np.square(moved).sum(axis=1)
                multiplier, rho = np.maximum(multiplier + rho * distance, 0), distance
                term, trained = self._train(task, multiplier)
        extremes = [float(multiplier.min()), float(multiplier.max())]
        report = {"multipliers": extremes, **trained.report()}
        return replace(term.fitted(trained.parameters[0]), report=report)

    def _train(self, task: Task, multiplier: Array) -> tuple[TextResidual, Trained]:
        exact = self.solver == "exact"
        term = residual(task, multiplier, exact)
        total = Sum(task, [term])
        return term, total.minimise() if exact else total.train(clap_steps(self.seed))

    def bias(self, task: Task, exact: bool) -> TextResidual:
        """The moved rows, with the fixed multipliers."""
        return residual(task, reliability(task), exact)

    def count(self, shape: Shape) -> int:
        """A row for each class: K x D."""
        return shape.classes * shape.dim


def reliability(task: Task) -> Array:
    """m_k [K]: how probable zero-shot finds the true class, mean over the images of each class."""
    x, y = task.rows()
    f = unit_features(task.linear, x)
    p = softmax(task.scale * products(f, unit_rows(raw_texts(task))))[np.arange(len(y)), y]
    images = np.bincount(y, minlength=task.classes)
    mean = one_hot_sum(p, y, task.classes) / np.maximum(images, 1)
    return np.where(images > 0, mean, mean[images > 0].mean())


def residual(task: Task, multiplier: Array, exact: bool) -> TextResidual:
    """Rows that move from the texts; where `exact`, in units of their length, held by m_k |t_k|^2 / K."""
    raw = raw_texts(task)
    if not exact:
        return TextResidual(task, multiplier / task.classes, rows=raw)
    weights = multiplier * np.square(row_lengths(raw)[:, 0]) / task.classes
    return TextResidual(task, weights, rows=unit_rows(raw))
