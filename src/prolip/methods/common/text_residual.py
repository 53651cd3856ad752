"""The bias of methods that move the class texts: TaskRes and CLAP.

    s f . (t_k + alpha r_k) - s f . t_k,    with t_k + alpha r_k of unit length again where `normalise`

and a penalty lam sum_k m_k |r_k|^2 with a weight for every class.
"""

from __future__ import annotations

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
        self, task: Task, weights: Array, alpha: float = 1.0, normalise: bool = True, lam: float = 1.0
    ) -> None:
        x, _ = task.rows()
        self.task, self.alpha, self.normalise, self.lam = task, alpha, normalise, lam
        self.f = unit_features(task.linear, x)
        self.text = task.text.rows.astype(self.f.dtype, copy=False)
        self.weights = weights.astype(self.f.dtype, copy=False)[:, None]  # m [K, 1]
        self.start = (np.zeros_like(self.text),)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The term s f (T_new - T)', and the way back through the normalisation."""
        f, s, moved = self.f[rows], self.task.scale, self.text + self.alpha * parameters[0]
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
        moved = self.text + self.alpha * parameters[0]
        weight = self.task.scale * (unit_rows(moved) if self.normalise else moved)
        bias = np.zeros(len(weight), weight.dtype)
        return LinearClassifier(self.task.linear, self.task.text, weight, bias)
