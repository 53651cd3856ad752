"""RLA, the Regularized Linear Adapter: ProLIP for a model whose weights cannot be touched.

A square matrix W [D, D] on top of the model's embedding v, started at the identity and kept near it
(the paper's equations 7 and 8):

    mean_i CE( s * normalize(v_i W) T', y_i )  +  lam |W - I|_F^2

v is not normalised before W, as in the authors' program; where a model hands out only unit embeddings, v is
of unit length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Projected, Task
from prolip.methods.base import Progress, Shape
from prolip.methods.projection import Projection


@dataclass(frozen=True)
class RLA(Projection):
    """A linear adapter after the frozen head."""

    name: ClassVar[str] = "rla"
    summary: ClassVar[str] = "a square linear map on the embedding, kept near the identity (black box)"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "D x D"

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Projected:
        """Fit the adapter on embeddings; the head stays as it is."""
        if validation is not None:
            validation = validation.with_features(validation.embeddings(), None)
        solution, info = self.solve(task.with_features(task.embeddings(), None), progress, validation)
        return Projected(task.linear, task.text, solution.scale, adapter=solution.weight, info=info)

    def count(self, shape: Shape) -> int:
        """D x D."""
        return shape.dim**2
