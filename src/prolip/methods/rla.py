"""RLA, the Regularized Linear Adapter: ProLIP for a model whose weights cannot be touched.

A square matrix W [D, D] on top of the model's embedding v, started at the identity and held close to it
(the paper's equations 7 and 8):

    mean_i CE( s * normalize(v_i W) T', y_i )  +  lam |W - I|_F^2

v is not normalised before W, as in the authors' program; where a model hands out only unit embeddings, v is
of unit length.
"""

from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Projected, Task
from prolip.core.arrays import Array
from prolip.methods.prolip import Projection
from prolip.methods.registry import register


@register
@dataclass(frozen=True)
class RLA(Projection):
    """A linear adapter after the frozen head."""

    name: ClassVar[str] = "rla"
    summary: ClassVar[str] = "a square linear map on the embedding, close to the identity (black box)"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "D x D"
    redundant_on_black_box: ClassVar[bool] = True  # there it is `prolip`

    def inner(self, task: Task) -> Task:
        """A black box on the embeddings."""
        return task.with_features(task.embeddings(), None)

    def place(self, task: Task, weight: Array) -> Projected:
        """The adapter behind the head, which stays as it is."""
        return Projected(task.linear, task.text, task.scale, adapter=weight)
