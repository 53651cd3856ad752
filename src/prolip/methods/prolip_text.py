"""ProLIP on the text side: fine-tune the text projection, and nothing else.

With m_k the text features of class k before the projection P [Dt, D], and f the frozen image embeddings,

    minimise over P:   mean_i CE( s f_i . normalize(m_k P + c), y_i )  +  lam |P - P0|^2

the rows of several templates being averaged after each is normalised, as the zero-shot classifier does.
Differences from the authors: their program does not normalise each template's row before the mean
(`per_template=False`), so that with several templates it does not start at zero-shot; and the minimum is
exact (`solver="adam"` has their steps). P - P0 lies in the row space of the text features, so the unknowns
are at most (templates x K) x D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prolip.core import InputError, Task
from prolip.core.arrays import Array
from prolip.core.capabilities import Capability
from prolip.methods.classifiers import TextProjected, text_rows, unit_features
from prolip.methods.logit_bias import LogitBias, Pullback, normalised, row_space
from prolip.methods.penalty import PenalisedBiasMethod
from prolip.methods.registry import register
from prolip.solvers import lam_value
from prolip.solvers.adam import Steps


class TextProjection(LogitBias):
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
        self.text = text.rows.astype(self.f.dtype, copy=False)
        self.features = text.features.astype(self.f.dtype, copy=False)  # [templates, K, Dt]
        self.projection, self.projected = text.projection, text.projection(self.features)
        inputs, _ = text.projection.split(self.features)
        self.inputs = inputs.reshape(-1, inputs.shape[2])  # [templates x K, Dt]
        self.basis: Array | None = None
        if exact and len(self.inputs) < self.inputs.shape[1]:
            self.basis, self.inputs = row_space(self.inputs)
        self.start = (np.zeros((self.inputs.shape[1], self.text.shape[1]), self.f.dtype),)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """What the tuned projection changes, and the way back through both normalisations and the mean."""
        f, s = self.f[rows], self.task.scale
        each = self.projected + (self.inputs @ parameters[0]).reshape(self.projected.shape)
        unit, back_each = normalised(each) if self.per_template else (each, lambda slope: slope)
        tuned, back = normalised(unit.mean(axis=0))

        def pullback(slope: Array) -> list[Array]:
            by_class = back(s * (slope.T @ f)) / len(each)  # [K, D], the same for every template
            by_prompt = back_each(np.broadcast_to(by_class, each.shape))
            return [self.inputs.T @ by_prompt.reshape(len(self.inputs), -1)]

        return f @ (s * (tuned - self.text)).T, pullback

    def fitted(self, parameters: Sequence[Array]) -> TextProjected:
        """The tuned projection, with the rows it gives."""
        task, step = self.task, parameters[0]
        if self.basis is not None:
            step = self.basis.T @ step
        projection = self.projection.with_weight(self.projection.weight.astype(step.dtype) + step)
        rows = text_rows(self.features, projection, self.per_template)
        weight, bias = projection.weight, projection.bias
        return TextProjected(task.linear, task.text, task.scale, weight, bias, rows, self.per_template)


@register
@dataclass(frozen=True)
class ProLIPText(PenalisedBiasMethod):
    """Fine-tune the text projection.

    Parameters
    ----------
    per_template
        Whether each template's row is normalised before their mean.
    lr, epochs
        Learning rate and epochs of solver="adam".
    """

    name: ClassVar[str] = "prolip_text"
    summary: ClassVar[str] = "fine-tune the text projection, close to its pretrained value"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Dt x D"
    needs: ClassVar[Capability] = Capability.EMBEDDINGS | Capability.TEXT_FEATURES

    per_template: bool = True
    lr: float = 1e-4
    epochs: int = 300

    def bias(self, task: Task, exact: bool) -> TextProjection:
        """The tuned text as a term."""
        return TextProjection(task, lam_value(self.lam, task), self.per_template, exact)

    def recipe(self, task: Task) -> Steps:
        """The paper's, as for the image projection."""
        return Steps(self.lr, self.epochs)
