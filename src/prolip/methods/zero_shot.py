"""Zero-shot classification: the pretrained model, asked for the nearest class text.

    logits = s * normalize(x W0 + b) T'

No image of the support set is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Projected, Task
from prolip.methods.base import Method, Progress


@dataclass(frozen=True)
class ZeroShot(Method):
    """The model as it came."""

    name: ClassVar[str] = "zero_shot"
    summary: ClassVar[str] = "the pretrained model, no training"
    open_class: ClassVar[bool] = True

    def fit(self, task: Task, progress: Progress | None = None) -> Projected:
        """Nothing to fit."""
        return Projected(task.linear, task.text, task.scale, info={"method": self.name, "seconds": 0.0})

    def parameters(self, task: Task) -> int:
        """None."""
        return 0
