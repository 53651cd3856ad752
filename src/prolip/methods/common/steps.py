"""Training on cached features in steps: the optimizer, the batches and the rate of the authors' programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip import solvers
from prolip.core.arrays import Array

WARM_UP = 1e-5  # the rate of the first epoch, or step, of programs that come from Dassl


@dataclass(frozen=True)
class Steps:
    """How parameters are trained."""

    lr: float
    epochs: int
    optimizer: str = "adam"  # "adam" (AdamW where there is a `decay`), or "sgd"
    eps: float = 1e-4  # of Adam, like `decay`
    decay: float = 0.0
    momentum: float = 0.0  # of SGD
    batch: int | None = None  # images of a step; None is all of them
    pooled: bool = False  # whether a batch is drawn from all views together; otherwise an epoch has one view
    drop_last: bool = False  # whether a last batch that is not full is left out, as Dassl does
    # How the rate falls along a cosine. "steps": at each step, to zero. "epochs": once an epoch, after one at
    # 1e-5 (Dassl). "waves": at each step, after one at 1e-5, over as many steps as there are epochs, and then
    # up and down again (the program of LP++ counts steps where it means epochs).
    schedule: str = "steps"
    seed: int = 0  # of the order of the images

    def per_epoch(self, images: int) -> int:
        """Steps in an epoch."""
        if self.batch is None:
            return 1
        return max(1, images // self.batch) if self.drop_last else math.ceil(images / self.batch)

    def rate(self, step: int, images: int) -> float:
        """The learning rate of a step."""
        per_epoch = self.per_epoch(images)
        if self.schedule == "steps":
            return solvers.cosine(self.lr, step / (self.epochs * per_epoch))
        turn = step // per_epoch if self.schedule == "epochs" else step
        return WARM_UP if turn < 1 and self.epochs > 1 else solvers.cosine(self.lr, (turn - 1) / self.epochs)

    def batches(self, images: int, views: int, epoch: int, rng: np.random.Generator) -> list[Any]:
        """Rows of each step of an epoch, of `task.rows()`: the views come in the order 1, 2, .., V - 1, 0."""
        offset = (epoch + 1) % views * images
        if self.batch is None:
            return [slice(offset, offset + images)]
        order = rng.permutation(views * images) if self.pooled else offset + rng.permutation(images)
        size = self.batch
        return [order[k * size : (k + 1) * size] for k in range(self.per_epoch(images))]

    def build(self, arrays: Sequence[Array]) -> solvers.AdamW | SGD:
        """The optimizer of these arrays, which change in place."""
        return (
            SGD(arrays, self.momentum)
            if self.optimizer == "sgd"
            else solvers.AdamW(arrays, self.eps, self.decay)
        )


def clap_steps(seed: int) -> Steps:
    """What CLAP's authors train every probe with, their own and those that they compare with."""
    return Steps(
        0.1, 300, "sgd", momentum=0.9, batch=256, pooled=True, drop_last=True, schedule="epochs", seed=seed
    )


class SGD:
    """Gradient descent, with momentum where there is any; the arrays change in place."""

    def __init__(self, arrays: Sequence[Array], momentum: float = 0.0) -> None:
        self.arrays, self.momentum = arrays, momentum
        self.speeds = [np.zeros_like(array) for array in arrays]

    def step(self, gradients: Sequence[Array], lr: float) -> None:
        """One step at this learning rate."""
        for array, gradient, speed in zip(self.arrays, gradients, self.speeds, strict=True):
            speed *= self.momentum
            speed += gradient
            array -= lr * speed
