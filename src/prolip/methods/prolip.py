"""ProLIP: fine-tune the projection at the end of the image encoder, and nothing else.

With x the frozen tower's output, W [Do, D] the projection, b its frozen bias, T the class texts and s the
scale, the paper minimises (its equation 4, over the support set)

    mean_i CE( s * normalize(x_i W + b) T', y_i )  +  lam |W - W0|_F^2

The paper's equation 2 leaves the normalisation out; its pseudo-code and the authors' program have it, and so
do we. Penalty and cross-entropy are scaled as in their program: a mean over samples, a sum over weights.

Differences from the authors' program: float32 throughout (theirs trains in float16, where small gradients
vanish), and by default the minimum itself instead of 300 steps of Adam towards it (`solver="adam"` has them).
A residual head (SigLIP's) adds each sample's own offset before the normalisation.
"""

from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Projected, Task
from prolip.core.arrays import Array
from prolip.methods.base import Shape
from prolip.methods.common.projection import Projection


@dataclass(frozen=True)
class ProLIP(Projection):
    """Fine-tune the visual projection.

    Examples
    --------
    >>> import numpy as np
    >>> from prolip.core import Head, Task
    >>> rng = np.random.default_rng(0)
    >>> x, text = rng.normal(size=(8, 6)), rng.normal(size=(2, 4))
    >>> task = Task(x, [0, 0, 0, 0, 1, 1, 1, 1], text, Head(rng.normal(size=(6, 4))))
    >>> ProLIP(lam="1/N").fit(task).logits(x).shape
    (8, 2)
    """

    name: ClassVar[str] = "prolip"
    summary: ClassVar[str] = "fine-tune the image projection, kept near its pretrained value"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Do x D"
    needs: ClassVar[tuple[str, ...]] = ("image features before the projection",)

    def inner(self, task: Task) -> Task:
        """The task itself; on a black box (no head) this is RLA."""
        return task

    def place(self, task: Task, weight: Array) -> Projected:
        """W in the place of the pretrained projection."""
        return Projected(task.linear.with_weight(weight), task.text, task.scale, tuned=True)

    def count(self, shape: Shape) -> int:
        """The projection: Do x D."""
        return shape.features * shape.dim
