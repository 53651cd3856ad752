"""First-order training on cached features: the optimizers and schedules of the authors' programs.

`adam` is the paper's recipe for ProLIP: Adam on the whole matrix, full batch, one augmented view an epoch,
300 epochs, eps 1e-4, a cosine from the learning rate to zero. The authors advance their view counter before
using it, so views come in the order 1, 2, .., V - 1, 0, 1, .. Their code computes in float16, where squares
of gradients below 0.005 vanish, and steps are then those of momentum, 1e4 times as long as the rate. With
precision="float16" this does the same: every result of an operation is rounded to float16 as on a GPU, sums
add up in float32. By default all is float32. `Steps` is for other programs.

In float16 the result depends on the order of sums, too: the gradients of a step differ in a hundredth of
their entries, by the last bit, when images and columns are in another order. Mostly that leaves the logits
as they are, or within 0.02. But where the square of a gradient is at the edge of what float16 holds, its last
bit decides between a step and one 1e4 times as long: without a penalty, the authors' program can end 2.7
logits from itself, and so can this (accuracy changed by 0.2 points at most, in made-up problems).
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, log_softmax, row_lengths
from prolip.solvers.objective import value, value_and_gradient
from prolip.solvers.solution import Solution

WARM_UP = 1e-5  # the rate of the first epoch, or step, of programs that come from Dassl


class AdamW:
    """Adam, with decoupled weight decay where there is one; the arrays change in place.

    `rounding` is applied to every result of an operation. With `half` that is Adam of PyTorch on float16
    arrays; ours remain float32.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        eps: float = 1e-4,
        decay: float = 0.0,
        rounding: Callable[[Array], Array] = lambda x: x,
    ) -> None:
        self.arrays, self.eps, self.decay, self.rounding, self.steps = arrays, eps, decay, rounding, 0
        self.moments = [(np.zeros_like(a), np.zeros_like(a)) for a in arrays]

    def step(self, gradients: Sequence[Array], lr: float) -> None:
        """One step at this learning rate."""
        self.steps += 1
        first, second = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        rounded = self.rounding
        for array, gradient, (mean, square) in zip(self.arrays, gradients, self.moments, strict=True):
            mean[:] = rounded(mean + 0.1 * (gradient - mean))
            # The constant is far below eps^2; without it squares fade into denormal numbers, which are slow.
            square[:] = rounded(rounded(0.999 * square) + (0.001 * np.square(gradient) + 1e-30))
            spread = rounded(rounded(rounded(np.sqrt(square)) / math.sqrt(second)) + self.eps)
            array[:] = rounded((1 - lr * self.decay) * array - (lr / first) * mean / spread)


def half(x: Array) -> Array:
    """Round float32 numbers to float16, in a third of the time that two casts take.

    To 11 bits by Veltkamp's splitting; below 2^-14 to multiples of 2^-24, the precision of float32 near 0.75.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # infinite numbers follow
        wide, size = x * np.float32(2**13 + 1), np.abs(x)
        rounded = np.where(size < 2**-14, (x + np.float32(0.75)) - np.float32(0.75), wide - (wide - x))
    if size.max(initial=0) >= 65520:  # beyond the largest float16
        rounded[size >= 65520] = np.copysign(np.inf, x[size >= 65520])
    return rounded


def half_gradient(task: Task, weight: Array, lam: float) -> Array:
    """The gradient of ProLIP's objective on one view, each operation of its graph rounded to float16."""
    head, scale, n = task.linear, np.float32(task.scale), task.n
    x, fixed = (None if each is None else half(each) for each in head.split(task.x[0].astype(np.float32)))
    assert x is not None
    text, start = half(task.text.rows.astype(np.float32)), half(head.weight.astype(np.float32))
    v = half(x @ weight if fixed is None else x @ weight + fixed)
    lengths = half(row_lengths(v))
    z = half(v / lengths)
    log_p = half(log_softmax(half(half(scale * z) @ text.T)))
    share = half(np.full(1, 1 / n, np.float32))[0]
    slope = np.exp(log_p) * share
    slope[np.arange(n), task.y] -= share
    by_z = half(scale * half(half(slope) @ text))
    by_lengths = half(half(-by_z * half(z / lengths)).sum(axis=1, keepdims=True))
    by_v = half(half(by_z / lengths) + half(by_lengths * z))
    gradient = half(x.T @ by_v)
    return half(gradient + half(2 * lam * half(weight - start))) if lam else gradient


def cosine(lr: float, done: float) -> float:
    """The learning rate after a share of all steps."""
    return 0.5 * lr * (1 + math.cos(math.pi * done))


class SGD:
    """Gradient descent, with momentum and weight decay where there is any; the arrays change in place."""

    def __init__(self, arrays: Sequence[Array], momentum: float = 0.0, decay: float = 0.0) -> None:
        self.arrays, self.momentum, self.decay = arrays, momentum, decay
        self.speeds = [np.zeros_like(array) for array in arrays]

    def step(self, gradients: Sequence[Array], lr: float) -> None:
        """One step at this learning rate."""
        for array, gradient, speed in zip(self.arrays, gradients, self.speeds, strict=True):
            speed *= self.momentum
            speed += gradient + self.decay * array if self.decay else gradient
            array -= lr * speed


@dataclass(frozen=True)
class Steps:
    """How parameters are trained: on cached features by NumPy, or through a tower by torch."""

    lr: float
    epochs: int
    optimizer: str = "adam"  # "adam" (AdamW where there is a `decay`), or "sgd"
    eps: float = 1e-4  # of Adam
    decay: float = 0.0
    momentum: float = 0.0  # of SGD
    batch: int | None = None  # images of a step; None is all of them
    pooled: bool = False  # whether a batch is drawn from all views together; otherwise an epoch has one view
    drop_last: bool = False  # whether a last batch that is not full is left out, as Dassl does
    # How the rate falls along a cosine. "steps": at each step, to `floor`. "epochs": once an epoch, after one
    # at 1e-5 (Dassl). "lp++": at each step, after one at 1e-5, over as many steps as there are epochs, and
    # then up and down again (the program of LP++ counts steps where it means epochs).
    schedule: str = "steps"
    floor: float = 0.0
    max_steps: int | None = None  # steps of the whole training, where a program counts these and not epochs
    seed: int = 0  # of the order of the images

    def per_epoch(self, images: int) -> int:
        """Steps in an epoch."""
        if self.batch is None:
            return 1
        return max(1, images // self.batch) if self.drop_last else math.ceil(images / self.batch)

    def total(self, images: int) -> int:
        """Steps of the whole training."""
        return self.epochs * self.per_epoch(images) if self.max_steps is None else self.max_steps

    def rate(self, step: int, images: int) -> float:
        """The learning rate of a step."""
        per_epoch = self.per_epoch(images)
        if self.schedule == "steps":
            return self.floor + cosine(self.lr - self.floor, step / self.total(images))
        turn = step // per_epoch if self.schedule == "epochs" else step
        warm_up = int(self.epochs > 1)
        return WARM_UP if turn < warm_up else cosine(self.lr, (turn - warm_up) / self.epochs)

    def batches(self, images: int, views: int, epoch: int, rng: np.random.Generator) -> list[Any]:
        """Rows of each step of an epoch, of `task.rows()`: the views come in the order 1, 2, .., V - 1, 0."""
        offset = (epoch + 1) % views * images
        if self.batch is None:
            return [slice(offset, offset + images)]
        order = rng.permutation(views * images) if self.pooled else offset + rng.permutation(images)
        size = self.batch
        return [order[k * size : (k + 1) * size] for k in range(self.per_epoch(images))]

    def build(self, arrays: Sequence[Array]) -> AdamW | SGD:
        """The optimizer of these arrays, which change in place."""
        if self.optimizer == "sgd":
            return SGD(arrays, self.momentum, self.decay)
        return AdamW(arrays, self.eps, self.decay)


def dassl_steps(lr: float, epochs: int, batch: int, seed: int, **more: Any) -> Steps:
    """SGD with momentum, and a rate that falls once an epoch: programs that come from Dassl."""
    steps = Steps(lr, epochs, "sgd", momentum=0.9, batch=batch, drop_last=True, schedule="epochs", seed=seed)
    return replace(steps, **more)


def clap_steps(seed: int) -> Steps:
    """What CLAP's authors train every probe with, their own and those that they compare with."""
    return dassl_steps(0.1, 300, 256, seed, pooled=True)


def adam(
    task: Task,
    lam: float,
    *,
    lr: float = 1e-4,
    epochs: int = 300,
    eps: float = 1e-4,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> Solution:
    """Fit by the paper's recipe, and return the last iterate; on a GPU by torch, where both are there.

    An epoch is one step on one view; `progress` is called with (epochs done, epochs).
    """
    train = _train
    if shutil.which("nvidia-smi") and importlib.util.find_spec("torch"):
        on_gpu = importlib.import_module("prolip.solvers.adam_torch")
        train = on_gpu.train if on_gpu.has_gpu() else _train
    weight = train(task, lam, lr, epochs, eps, precision, progress)
    points = weight, task.linear.weight.astype(weight.dtype)
    objective, start_objective = (value(task, point, lam) for point in points)
    return Solution(weight, lam, objective, start_objective, epochs, "adam", converged=None)


def _train(
    task: Task,
    lam: float,
    lr: float,
    epochs: int,
    eps: float,
    precision: str,
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """Return the last W [Do, D] of a training by NumPy."""
    halved = precision == "float16"
    start = task.linear.weight.astype(np.float32 if halved else task.x.dtype)
    weight = half(start) if halved else start.copy()
    views = [task.with_features(x, task.head) for x in task.x]
    optimizer = AdamW([weight], eps, rounding=half) if halved else AdamW([weight], eps)
    for epoch in range(epochs):
        view, rate = views[(epoch + 1) % task.views], cosine(lr, epoch / epochs)
        gradient = half_gradient(view, weight, lam) if halved else value_and_gradient(view, weight, lam)[1]
        optimizer.step([gradient], rate)
        if progress is not None:
            progress(epoch + 1, epochs)
    return weight
