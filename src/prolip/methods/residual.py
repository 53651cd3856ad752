"""The bias of methods that move the class texts: TaskRes and CLAP.

    s f . (t_k + alpha r_k) - s f . t_k,    with t_k + alpha r_k of unit length again where `normalise`

and a penalty lam sum_k m_k |r_k|^2 with a weight for every class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prolip.core import Task
from prolip.core.arrays import unit_rows
from prolip.methods.fitted import LinearClassifier, unit_features
from prolip.methods.pulled import PulledBias


class TextResidual(PulledBias):
    """Residuals r [K, D], from zero."""

    def __init__(
        self, task: Task, weights: Tensor, alpha: float = 1.0, normalise: bool = True, lam: float = 1.0
    ) -> None:
        x, _ = task.rows()
        self.task, self.alpha, self.normalise, self.lam = task, alpha, normalise, lam
        self.f = unit_features(task.linear, x)
        self.text = task.text.rows.to(self.f)
        self.weights = weights.to(self.f)
        self.start = (torch.zeros_like(self.text),)

    def rows(self, residual: Tensor) -> Tensor:
        """The class rows after the residual."""
        moved = self.text + self.alpha * residual
        return unit_rows(moved) if self.normalise else moved

    def __call__(self, parameters: Sequence[Tensor], rows: Any) -> Tensor:
        """The term s f (T_new - T)'."""
        return self.task.scale * self.f[rows] @ (self.rows(parameters[0]) - self.text).T

    def penalty(self, parameters: Sequence[Tensor]) -> Tensor:
        """The pull lam sum_k m_k |r_k|^2."""
        return self.lam * (self.weights * parameters[0].square().sum(dim=1)).sum()

    def fitted(self, parameters: Sequence[Tensor], info: dict[str, Any]) -> LinearClassifier:
        """The moved texts as a linear classifier."""
        weight = self.task.scale * self.rows(parameters[0].detach())
        return LinearClassifier(
            self.task.linear, self.task.text, weight, weight.new_zeros(len(weight)), info=info
        )
