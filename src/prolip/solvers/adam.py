"""The paper's recipe: Adam on the whole matrix.

Full batch, one augmented view an epoch, 300 epochs, eps 1e-4, a cosine from the learning rate to zero. The
authors advance their view counter before using it, so views come in the order 1, 2, .., V - 1, 0, 1, .. The
difference from their code: float32 throughout (theirs is float16, where small squared gradients vanish).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array
from prolip.solvers.objective import value_and_gradient
from prolip.solvers.solution import Solution


class AdamW:
    """Adam, with decoupled weight decay where there is one; the arrays change in place."""

    def __init__(self, arrays: Sequence[Array], eps: float = 1e-4, decay: float = 0.0) -> None:
        self.arrays, self.eps, self.decay, self.steps = arrays, eps, decay, 0
        self.moments = [(np.zeros_like(a), np.zeros_like(a)) for a in arrays]

    def step(self, gradients: Sequence[Array], lr: float) -> None:
        """One step at this learning rate."""
        self.steps += 1
        first, second = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for array, gradient, (mean, square) in zip(self.arrays, gradients, self.moments, strict=True):
            mean *= 0.9
            mean += 0.1 * gradient
            square *= 0.999
            # The constant is far below eps^2; without it squares fade into denormal numbers, which are slow.
            square += 0.001 * np.square(gradient) + 1e-30
            array *= 1 - lr * self.decay
            spread = np.sqrt(square / second)
            spread += self.eps
            array -= (lr / first) * mean / spread


def cosine(lr: float, done: float) -> float:
    """The learning rate after a share of all steps."""
    return 0.5 * lr * (1 + math.cos(math.pi * done))


def adam(
    task: Task,
    lam: float,
    *,
    lr: float = 1e-4,
    epochs: int = 300,
    eps: float = 1e-4,
    progress: Callable[[int, int], None] | None = None,
) -> Solution:
    """Fit by the paper's recipe; the last iterate is the answer. An epoch is one step on one view, and
    `progress` is called with (epochs done, epochs) after each.
    """
    began = time.perf_counter()
    start = task.linear.weight.astype(task.x.dtype)
    weight, views = start.copy(), [task.with_features(x, task.head) for x in task.x]
    optimizer = AdamW([weight], eps)
    for epoch in range(epochs):
        _, gradient = value_and_gradient(views[(epoch + 1) % task.views], weight, lam)
        optimizer.step([gradient], cosine(lr, epoch / epochs))
        if progress is not None:
            progress(epoch + 1, epochs)
    seconds = time.perf_counter() - began
    objective, _ = value_and_gradient(task, weight, lam)
    start_objective, _ = value_and_gradient(task, start, lam)
    return Solution(
        weight, lam, task.scale, objective, start_objective, epochs, seconds, "adam", math.isfinite(objective)
    )
