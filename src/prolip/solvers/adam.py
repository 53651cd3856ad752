"""The paper's recipe: Adam on the whole matrix.

Full batch, one augmented view an epoch, 300 epochs, eps 1e-4, a cosine from the learning rate to zero.
The authors advance their view counter before using it, so views come in the order 1, 2, .., V - 1, 0, 1, ..
Differences from the authors' code: float32 throughout (theirs is float16, where small squared gradients
vanish), and the gradient is written out, not taken by autograd, which is faster and the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from prolip.core import Task
from prolip.solvers.arithmetic import flushed_denormals
from prolip.solvers.objective import cross_entropy, value_and_gradient
from prolip.solvers.solution import Solution


def adam(
    task: Task,
    lam: float,
    *,
    lr: float = 1e-4,
    epochs: int = 300,
    eps: float = 1e-4,
    progress: Callable[[int, int], None] | None = None,
) -> Solution:
    """Fit by the paper's recipe; the last iterate is the answer.

    Parameters
    ----------
    task
        The few-shot problem.
    lam
        Weight of |W - W0|^2.
    lr, epochs, eps
        Adam's step, how many epochs (an epoch is one step on one view), and its epsilon.
    progress
        Called with (epochs done, epochs) after each.
    """
    head = task.linear
    inputs, fixed = head.split(task.x)
    start = head.weight.to(inputs)
    text, y = task.text.rows.to(inputs), task.y.to(inputs.device)
    start_value, slope = value_and_gradient(task, start, lam)
    start_norm = float(slope.norm())

    begin = time.perf_counter()
    weight = torch.nn.Parameter(start.clone())
    weight.grad = torch.zeros_like(start)
    optimizer = torch.optim.Adam([weight], lr=lr, eps=eps, fused=True)
    with torch.no_grad(), flushed_denormals():
        for epoch in range(epochs):
            view = (epoch + 1) % task.views
            v = inputs[view] @ weight
            if fixed is not None:
                v += (fixed if fixed.ndim == 1 else fixed[view]).to(v)
            _, slope, _ = cross_entropy(v, text, y, task.scale)
            torch.sub(weight, start, out=weight.grad).mul_(2 * lam)
            weight.grad.addmm_(inputs[view].T, slope, alpha=1 / task.n)
            optimizer.param_groups[0]["lr"] = 0.5 * lr * (1 + math.cos(math.pi * epoch / epochs))
            optimizer.step()
            if progress is not None:
                progress(epoch + 1, epochs)
    seconds = time.perf_counter() - begin

    final = weight.detach()
    value, slope = value_and_gradient(task, final, lam)
    gradient = float(slope.norm()) / max(start_norm, 1e-30)
    return Solution(
        final, lam, task.scale, value, start_value, gradient, epochs, seconds, "adam", math.isfinite(value)
    )
