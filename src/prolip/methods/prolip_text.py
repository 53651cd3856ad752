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

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import InputError, Task, errors
from prolip.methods.base import Progress, Shape
from prolip.methods.bias import Bias, BiasMethod, Sum
from prolip.methods.fitted import TextProjected, text_rows, unit_features
from prolip.methods.regularised import Regularised
from prolip.solvers import lam_value

SOLVERS = ("exact", "adam")


class TextProjection(Bias):
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
class ProLIPText(Regularised, BiasMethod):
    """Fine-tune the text projection.

    Parameters
    ----------
    per_template
        Whether each template's row is normalised before their mean.
    solver
        "exact", or "adam" for the authors' steps.
    lr, epochs
        Of "adam".
    """

    name: ClassVar[str] = "prolip_text"
    summary: ClassVar[str] = "fine-tune the text projection, kept near its pretrained value"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Dt x D"
    needs: ClassVar[tuple[str, ...]] = ("image embeddings", "text features before the projection")

    per_template: bool = True
    solver: str = "exact"
    lr: float = 1e-4
    epochs: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver not in SOLVERS:
            raise errors.unknown_name("solver", str(self.solver), SOLVERS)

    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> TextProjected:
        """Tune P."""
        if self.solver == "exact":
            return super().fit(task, progress, validation)  # type: ignore[return-value]
        started = time.perf_counter()
        lam, told = self.strength(task, validation)
        term = TextProjection(task, lam, self.per_template, exact=False)
        trained = Sum(task, [term]).adam(lr=self.lr, epochs=self.epochs, progress=progress)
        info = self.report(task, started, **told, solver="adam", **trained.report())
        return term.fitted(trained.parameters[0], info)

    def path(self, task: Task, lams: Sequence[float], rough: bool = False) -> Iterator[TextProjected]:
        """P for each lam."""
        start = None
        for lam in lams:
            term = TextProjection(task, lam, self.per_template, exact=True)
            trained = Sum(task, [term]).minimise(start, rough)
            start = trained.parameters[0]
            yield term.fitted(start, {"solver": "exact", **trained.report()})

    def settle(self, task: Task, validation: Task | None) -> tuple[Task, ProLIPText, dict[str, Any]]:
        """Choose lam."""
        lam, told = self.strength(task, validation)
        return task, replace(self, lam=lam), told

    def bias(self, task: Task, exact: bool) -> TextProjection:
        """The tuned text as a term."""
        return TextProjection(task, lam_value(self.lam, task), self.per_template, exact)

    def count(self, shape: Shape) -> int:
        """Dt x D; a shape without text features counts D for Dt."""
        return (shape.text_features or shape.dim) * shape.dim
