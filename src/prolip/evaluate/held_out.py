"""What a method says about support images that it was not fitted on: the honest half of a small data set.

The support set is cut into folds; for each, the method is fitted on the others with the options that the
whole fit settled on, and asked about the fold. The only image of a class is never held out: without it the
class would be another problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.core import Fitted, Task
from prolip.methods.base import Method
from prolip.solvers.selection import assign_folds

FOLDS = 5


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Answers about held-out images.

    Attributes
    ----------
    logits
        [m, K], each row by a model that did not see the image.
    y
        Labels [m].
    images
        Which images of the support set these are, [m].
    """

    logits: Tensor
    y: Tensor
    images: Tensor

    def __len__(self) -> int:
        return len(self.y)


def held_out(method: Method, fitted: Fitted, task: Task, *, folds: int = FOLDS, seed: int = 0) -> HeldOut:
    """Cross-validate inside the support set.

    Parameters
    ----------
    method, fitted
        The method, and what it made of the whole support set: its choices (lam, scale) are kept.
    task
        The support set; images are judged by their first view.
    """
    fold = assign_folds(task, folds, seed)
    settled = method.settled(fitted.info)
    logits = torch.zeros(task.n, task.classes)
    for k in range(folds):
        out, kept = (fold == k).nonzero()[:, 0], (fold != k).nonzero()[:, 0]
        if len(out):
            logits[out] = settled.fit(task.subset(kept)).logits(task.x[0, out]).float().cpu()
    images = (fold >= 0).nonzero()[:, 0]
    return HeldOut(logits[images], task.y[images], images)
