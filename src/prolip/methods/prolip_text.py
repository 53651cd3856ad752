"""ProLIP on the text side: fine-tune the text projection, and nothing else.

With m_k the text features of class k before the projection P [Dt, D], and f the frozen image embeddings,

    minimise over P:   mean_i CE( s f_i . normalize(m_k P + c), y_i )  +  lam |P - P0|^2

the rows of several templates being averaged after each is normalised, as the zero-shot classifier does.
Differences from the authors: their program does not normalise each template's row before the mean
(`per_template=False`), so that with several templates it does not start at zero-shot; and the minimum is
exact (`solver="adam"` has their steps). P - P0 lies in the row space of the text features, so the unknowns
are at most (templates x K) x D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import InputError, Task
from prolip.methods.base import Shape
from prolip.methods.fitted import TextProjected, text_rows, unit_features
from prolip.methods.pulled import Pulled, PulledBias
from prolip.solvers import lam_value


class TextProjection(PulledBias):
    """s f (T(P) - T)'. The unknown is P - P0, in the row space of the text features where `exact`."""

    def __init__(self, task: Task, lam: float, per_template: bool, exact: bool) -> None:
        text = task.text
        if text.features is None or text.projection is None:
            raise InputError(
                "prolip_text needs text features from before the projection: "
                "a Text with `features` and `projection`, as an encoder's `text` makes it"
            )
        x, _ = task.rows()
        self.task, self.lam, self.per_template = task, lam, per_template
        self.f = unit_features(task.linear, x)
        self.text = text.rows.to(self.f)
        self.features = text.features.to(self.f)
        self.projection = text.projection
        self.basis: Tensor | None = None
        rows = self.features.reshape(-1, self.features.shape[2])
        width = rows.shape[1]
        if exact and len(rows) < width:
            self.basis = torch.linalg.qr(rows.T)[0].T  # [r, Dt]
            width = len(rows)
        self.start = (self.f.new_zeros(width, self.text.shape[1]),)

    def weight(self, step: Tensor) -> Tensor:
        """P."""
        return self.projection.weight.to(step) + (step if self.basis is None else self.basis.T @ step)

    def __call__(self, parameters: Sequence[Tensor], rows: Any) -> Tensor:
        """What the tuned projection changes."""
        head = self.projection
        projected = self.features @ self.weight(parameters[0])
        if head.bias is not None:
            projected = projected + head.bias.to(projected)
        if self.per_template:
            projected = projected / projected.norm(dim=2, keepdim=True)
        tuned = projected.mean(dim=0)
        tuned = tuned / tuned.norm(dim=1, keepdim=True)
        return self.task.scale * self.f[rows] @ (tuned - self.text).T

    def penalty(self, parameters: Sequence[Tensor]) -> Tensor:
        """The pull lam |P - P0|^2."""
        return self.lam * parameters[0].square().sum()

    def fitted(self, parameters: Sequence[Tensor], info: dict[str, Any]) -> TextProjected:
        """The tuned projection, with the rows it gives."""
        task = self.task
        projection = self.projection.with_weight(self.weight(parameters[0].detach()))
        rows = text_rows(self.features, projection, self.per_template)
        info = info | {"per_template": self.per_template}
        return TextProjected(task.linear, task.text, task.scale, projection, self.per_template, rows, info)


@dataclass(frozen=True)
class ProLIPText(Pulled):
    """Fine-tune the text projection.

    Parameters
    ----------
    per_template
        Whether each template's row is normalised before their mean.
    lr, epochs
        Of solver="adam".
    """

    name: ClassVar[str] = "prolip_text"
    summary: ClassVar[str] = "fine-tune the text projection, kept near its pretrained value"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Dt x D"
    needs: ClassVar[tuple[str, ...]] = ("image embeddings", "text features before the projection")

    per_template: bool = True
    lr: float = 1e-4
    epochs: int = 300

    def bias(self, task: Task, exact: bool) -> TextProjection:
        """The tuned text as a term."""
        return TextProjection(task, lam_value(self.lam, task), self.per_template, exact)

    def recipe(self, task: Task) -> dict[str, Any]:
        """The paper's, as for the image projection."""
        return {"lr": self.lr, "epochs": self.epochs}

    def count(self, shape: Shape) -> int:
        """Dt x D; a shape without text features counts D for Dt."""
        return (shape.text_features or shape.dim) * shape.dim
