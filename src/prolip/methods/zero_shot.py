"""Zero-shot classification: the pretrained model, asked for the nearest class text.

    logits = s * normalize(x W0 + b) T'

No image of the support set is used.
"""

from dataclasses import dataclass
from typing import ClassVar

from prolip.core import Projected, Task
from prolip.methods.base import Method, Progress, Shape


@dataclass(frozen=True)
class ZeroShot(Method):
    """The pretrained model as it came."""

    name: ClassVar[str] = "zero_shot"
    summary: ClassVar[str] = "the pretrained model, no training"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "0"

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Projected:
        """The pretrained head and the class texts, as they are."""
        started = self.begin(task, validation)
        return self.finish(Projected(task.linear, task.text, task.scale), task, started)

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0
