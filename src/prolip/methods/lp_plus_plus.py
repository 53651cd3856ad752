"""LP++: class weights blended with the texts, and step sizes from the data (Huang et al., 2024).

    logits_ik = f_i . w_k + alpha_k f_i . t_k,        mean cross-entropy over w [K, D] and alpha [K]

w starts at the sum of each class's features, every alpha_k at 2.5 s times the mean cosine between an image
and its text (250 times at CLIP's s = 100). Gradient descent then takes steps as long as the curvature
allows: with F [n, D] the features,

    step of w      4 n / lambda_max(F'F), with momentum 0.9
    step of alpha  n / (4 max_k sum_i (f_i . t_k)^2), once every 10 epochs

There is no penalty, and few shots can be separated, so the minimum lies at infinity: the number of epochs is
the regulariser. With a validation set the best epoch is taken (of equals the later), as theirs; without one
the last of 300. Cross-validation inside the support set stops too early: half the images of a class ask for
fewer epochs than all of them.

Differences: no intercept (theirs starts random); alpha's gradient is the current one (theirs is never
cleared, so that each step takes the sum of all before it; `accumulate=True` does the same).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from prolip.core import Task, UsageError
from prolip.core.arrays import Array, one_hot_sum, softmax
from prolip.methods.common.classifiers import LinearClassifier, unit_features
from prolip.methods.common.method import Method, Progress, Shape
from prolip.solvers.threads import single_thread


@dataclass(frozen=True)
class LPPlusPlus(Method):
    """A blend of text and class weights.

    Parameters
    ----------
    epochs
        At most; fewer where a validation set says so.
    accumulate
        Whether alpha's gradients add up, as in the authors' program.
    """

    name: ClassVar[str] = "lp_plus_plus"
    summary: ClassVar[str] = "LP++: class weights blended with the texts, steps from the data"
    open_class: ClassVar[bool] = False
    size: ClassVar[str] = "K x (D + 1)"

    epochs: int = 300
    accumulate: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise UsageError(f"epochs must be a number >= 0, got {self.epochs}")

    @single_thread()
    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> LinearClassifier:
        """Descend; keep the last epoch, or the best on the validation set."""
        started = time.perf_counter()
        judge = _judge(validation)
        best, kept, at = -1.0, None, 0
        for epoch, point in enumerate(descend(task, self.epochs, self.accumulate)):
            accuracy = judge(*point)
            if accuracy >= best:
                best, kept, at = accuracy, point, epoch
            if progress is not None:
                progress(epoch, self.epochs)
        assert kept is not None
        w, alpha = kept
        weight = w + alpha[:, None] * task.text.rows.astype(w.dtype, copy=False)
        fitted = LinearClassifier(task.linear, task.text, weight, np.zeros_like(alpha))
        return replace(self, epochs=at).finish(fitted, task, started)

    def count(self, shape: Shape) -> int:
        """A row and a weight of its text for each class: K x (D + 1)."""
        return shape.classes * (shape.dim + 1)


def _judge(validation: Task | None) -> Callable[[Array, Array], float]:
    """Accuracy of w and alpha on a validation set; the same for all where there is none."""
    if validation is None:
        return lambda w, alpha: 0.0
    f = unit_features(validation.linear, validation.x[0])
    texts, y = validation.text.rows.astype(f.dtype, copy=False), validation.y

    def accuracy(w: Array, alpha: Array) -> float:
        return float(((f @ (w + alpha[:, None] * texts).T).argmax(axis=1) == y).mean())

    return accuracy


def descend(task: Task, epochs: int, accumulate: bool) -> Iterator[tuple[Array, Array]]:
    """W and alpha before the first epoch and after each."""
    x, y = task.rows()
    f = unit_features(task.linear, x)
    n, every, texts = len(f), np.arange(len(f)), task.text.rows.astype(f.dtype, copy=False)
    cosines = f @ texts.T  # [n, K]
    w = one_hot_sum(f, y, task.classes)
    alpha = np.full(task.classes, 2.5 * task.scale * float(cosines[every, y].mean()), f.dtype)
    step = 4 * n / float(np.linalg.eigvalsh(f.T @ f)[-1])
    step_alpha = n / (4 * float(np.square(cosines).sum(axis=0).max()))
    momentum, slope_alpha = np.zeros_like(w), np.zeros_like(alpha)
    yield w, alpha
    for epoch in range(epochs):
        residual = softmax(f @ (w + alpha[:, None] * texts).T)
        residual[every, y] -= 1
        slope_w = residual.T @ f / n
        slope = (slope_w * texts).sum(axis=1)
        momentum = slope_w + 0.9 * momentum
        slope_alpha = slope_alpha + slope if accumulate else slope
        w = w - step * momentum
        if epoch % 10 == 0:
            alpha = alpha - step_alpha * slope_alpha
        yield w, alpha
