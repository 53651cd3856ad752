"""SS-Text: class rows between the texts and the images, in closed form (Silva-Rodriguez et al., 2025).

The minimum of a softmax probe's lower bound, held at the texts: with n_k images x_i of class k, n in total,

    w_k = t_k + s / (n lam_k) sum_{i in k} f_i,      lam_k = 1 / n_k, or 1 / n for all where `balanced`
    logits = s f . normalize(w_k)

`balanced` is SS-Text+, for uneven classes. lam_k is at least 1e-3, as in their program. Nothing is searched.

Differences: several views of an image count as its mean; theirs has one view.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prolip.core import Task
from prolip.core.arrays import one_hot_sum, unit_rows
from prolip.methods.base import FitContext, Method, Shape
from prolip.methods.classifiers import LinearClassifier, unit_features
from prolip.methods.registry import register
from prolip.methods.task_res import raw_texts


@register
@dataclass(frozen=True)
class SSText(Method):
    """Texts and class sums of the images.

    Parameters
    ----------
    balanced
        Whether every image counts alike (SS-Text+), instead of every class.
    """

    name: ClassVar[str] = "ss_text"
    summary: ClassVar[str] = "SS-Text: class texts and class sums of the images, no training"
    size: ClassVar[str] = "0"
    research: ClassVar[bool] = True

    balanced: bool = False

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Add the images of each class to its text."""
        f = unit_features(task.linear, task.x).mean(axis=0)  # [n, D]
        images = np.bincount(task.y, minlength=task.classes)
        lam = np.full(task.classes, 1 / task.n) if self.balanced else 1 / np.maximum(images, 1)
        share = task.scale / (task.n * np.maximum(lam, 1e-3))
        rows = raw_texts(task) + share[:, None].astype(f.dtype) * one_hot_sum(f, task.y, task.classes)
        weight = task.scale * unit_rows(rows)
        return LinearClassifier(task.linear, task.text, weight, np.zeros(task.classes, weight.dtype))

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0
