"""ProLIP that tunes the bias b_o of the projection too; the supplement says that it changes nothing.

    minimise over W, b:   mean_i CE( s normalize(x_i W + b) T', y_i )  +  lam ( |W - W0|^2 + |b - b_o|^2 )

That is ProLIP on features with a further column of ones, whose row of the matrix is b; b_o is zero where the
encoder has none.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prolip.core import Head, Projected, Task
from prolip.core.arrays import Array
from prolip.core.capabilities import Capability
from prolip.methods.prolip import Projection
from prolip.methods.registry import register


@register
@dataclass(frozen=True)
class ProLIPBias(Projection):
    """Fine-tune the visual projection and its bias."""

    name: ClassVar[str] = "prolip_bias"
    summary: ClassVar[str] = "ProLIP that tunes the bias of the projection too"
    size: ClassVar[str] = "(Do + 1) x D"
    needs: ClassVar[Capability] = Capability.IMAGE_FEATURES
    research: ClassVar[bool] = True

    def inner(self, task: Task) -> Task:
        """The task with a column of ones, in front of the offset of a residual head."""
        head = task.linear
        bias = np.zeros(head.dim, head.weight.dtype) if head.bias is None else head.bias
        at = len(head.weight)
        ones = np.ones((*task.x.shape[:2], 1), task.x.dtype)
        x = np.concatenate([task.x[..., :at], ones, task.x[..., at:]], axis=2)
        return task.with_features(x, Head(np.vstack([head.weight, bias]), residual=head.residual))

    def place(self, task: Task, weight: Array) -> Projected:
        """Put W and b into the head."""
        head = Head(weight[:-1], weight[-1], task.linear.residual)
        return Projected(head, task.text, task.scale)
