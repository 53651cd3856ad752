"""Zero-shot classification: the nearest class text under the pretrained model.

    logits = s * normalize(x W0 + b) T'

No image of the support set is used.
"""

from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Projected, Task
from prolip.methods.base import FitContext, Method
from prolip.methods.registry import register


@register
@dataclass(frozen=True)
class ZeroShot(Method):
    """The pretrained model, unchanged."""

    name: ClassVar[str] = "zero_shot"
    summary: ClassVar[str] = "the pretrained model, no training"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "0"

    def solve(self, task: Task, context: FitContext) -> Projected:
        """Return the pretrained head and the class texts, as they are."""
        return Projected(task.linear, task.text, task.scale)
