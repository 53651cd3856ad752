"""CLAP: a class-adaptive linear probe (Silva-Rodriguez et al., 2024).

Class rows start at the texts, and each is held there the more, the better zero-shot does on its class:

    minimise over W:   mean_i CE( s f_i . normalize(w_k), y_i )  +  mean_k m_k |w_k - t_k|^2
    m_k = mean over the images of class k of the zero-shot probability of k

t_k is the mean of the prompts as long as the text tower makes them, not normalised; where only unit rows are
known their length is taken to be s / 10, about CLIP's. The unknowns here are w_k over that length.

The multipliers m_k are fixed, as by default in their program; its others grow with the distance of a row.

By default the minimum is exact. `solver="sgd"` is the authors' recipe: SGD with momentum 0.9 at 0.1,
300 epochs in batches of 256 from all views together, a first epoch at 1e-5, then a cosine, once an epoch; an
epoch has as many batches as the images fill, a last one that is not full left out. It ends where its epochs
do, at most a few tenths of a logit away.

Differences that are left: as many views as the task has (theirs: 20); a class without images takes the mean
multiplier of the others.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, one_hot_sum, row_lengths, softmax, unit_rows
from prolip.methods.base import FitContext
from prolip.methods.classifiers import LinearClassifier, products, unit_features
from prolip.methods.logit_bias import LogitBiasMethod, Sum
from prolip.methods.registry import register
from prolip.methods.task_res import TextResidual, raw_texts
from prolip.solvers.adam import clap_steps


@register
@dataclass(frozen=True)
class CLAP(LogitBiasMethod):
    """A linear probe held at the texts, class by class.

    Parameters
    ----------
    solver
        "exact", or "sgd" for the authors' steps.
    seed
        Random seed for the batches.
    """

    name: ClassVar[str] = "clap"
    summary: ClassVar[str] = "CLAP: a linear probe held at each class text by its zero-shot reliability"
    size: ClassVar[str] = "K x D"

    solver: Literal["exact", "sgd"] = "exact"
    seed: int = 0

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Train the class rows, to the minimum or by the authors' steps."""
        exact = self.solver == "exact"
        term = self.bias(task, exact)
        total = Sum(task, [term])
        trained = total.minimise() if exact else total.train(clap_steps(self.seed))
        return replace(term.fitted(trained.parameters[0]), report=trained.report())

    def bias(self, task: Task, exact: bool) -> TextResidual:
        """The moved rows; where `exact`, in units of their length, held by m_k |t_k|^2 / K."""
        multiplier, raw = (reliability(task) / task.classes)[:, None], raw_texts(task)
        if not exact:
            return TextResidual(task, multiplier, rows=raw)
        return TextResidual(task, multiplier * np.square(row_lengths(raw)), rows=unit_rows(raw))


def reliability(task: Task) -> Array:
    """m_k [K]: how probable zero-shot finds the true class, mean over the images of each class."""
    x, y = task.rows()
    f = unit_features(task.linear, x)
    p = softmax(task.scale * products(f, unit_rows(raw_texts(task))))[np.arange(len(y)), y]
    images = np.bincount(y, minlength=task.classes)
    mean = one_hot_sum(p, y, task.classes) / np.maximum(images, 1)
    return np.where(images > 0, mean, mean[images > 0].mean())
