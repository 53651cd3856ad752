"""The bias of methods that move the class texts: TaskRes and CLAP.

    s f . (t_k + alpha r_k) - s f . t_k,    with t_k + alpha r_k of unit length again where `normalise`

and a penalty lam sum_k m_k |r_k|^2 with a weight for every class. The authors of both move texts that are as
long as the model's text tower makes them (`raw_texts`); where they are normalised again that is a matter of
the unit of r, for a penalty or a learning rate.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, unit_rows
from prolip.methods.common.classifiers import LinearClassifier, unit_features
from prolip.methods.common.logit_bias import Pullback, normalised
from prolip.methods.common.penalised_bias import PenalisedBias


class TextResidual(PenalisedBias):
    """Residuals r [K, D], from zero."""

    def __init__(
        self,
        task: Task,
        weights: Array,
        alpha: float = 1.0,
        normalise: bool = True,
        lam: float = 1.0,
        rows: Array | None = None,
    ) -> None:
        x, _ = task.rows()
        self.task, self.alpha, self.normalise, self.lam = task, alpha, normalise, lam
        self.f = unit_features(task.linear, x)
        self.text = task.text.rows.astype(self.f.dtype, copy=False)
        self.rows = self.text if rows is None else rows.astype(self.f.dtype, copy=False)  # what r is added to
        self.weights = weights.astype(self.f.dtype, copy=False)[:, None]  # m [K, 1]
        self.start = (np.zeros_like(self.text),)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The term s f (T_new - T)', and the way back through the normalisation."""
        f, s, moved = self.f[rows], self.task.scale, self.rows + self.alpha * parameters[0]
        new, back = normalised(moved) if self.normalise else (moved, lambda slope: slope)

        def pullback(slope: Array) -> list[Array]:
            return [self.alpha * back(s * (slope.T @ f))]

        return f @ (s * (new - self.text)).T, pullback

    def penalty(self, parameters: Sequence[Array]) -> tuple[float, list[Array]]:
        """The pull lam sum_k m_k |r_k|^2."""
        pull = self.lam * self.weights * parameters[0]
        return float(np.vdot(pull, parameters[0])), [2 * pull]

    def fitted(self, parameters: Sequence[Array]) -> LinearClassifier:
        """The moved texts as a linear classifier."""
        moved = self.rows + self.alpha * parameters[0]
        weight = self.task.scale * (unit_rows(moved) if self.normalise else moved)
        bias = np.zeros(len(weight), weight.dtype)
        return LinearClassifier(self.task.linear, self.task.text, weight, bias)


def raw_texts(task: Task) -> Array:
    """Class rows [K, D] as long as the text tower makes them: the mean of the prompts, not normalised.

    Where only unit rows are known, they are taken to be s / 10 long, which is about CLIP's (8.7 on ViT-B/32).
    """
    text = task.text
    if text.features is None or text.projection is None:
        return task.scale / 10 * text.rows
    raw: Array = text.projection(text.features).mean(axis=0)
    return raw
