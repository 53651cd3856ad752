"""LP++: class weights blended with the texts, and step sizes from the data (Huang et al., 2024).

    logits_ik = f_i . w_k + b_k + alpha_k f_i . t_k,     mean cross-entropy over w [K, D], b [K] and alpha [K]

w starts at the sum of each class's features over its images (the mean over views), every alpha_k at 2.5 s
times the mean cosine between an image and its text (250 times at CLIP's s = 100). Gradient descent then takes
steps as long as the curvature allows: with F [n, D] the features,

    step of w, b   4 n / lambda_max(F'F), with momentum 0.9
    step of alpha  n / (4 max_k sum_i (f_i . t_k)^2), after every tenth epoch

In their program alpha's gradient is never cleared, so that each of its steps takes the sum of all gradients
before it; so it is here.

There is no penalty, and few shots can be separated, so the minimum lies at infinity: the number of epochs is
the regulariser. With a validation set the best epoch is taken (of equals the later), as theirs; without one
the last of 300. Cross-validation inside the support set stops too early: half the images of a class ask for
fewer epochs than all of them.

Difference: b starts at zero (theirs at random numbers within 1 / sqrt(D)). Theirs has one view; with several,
the rows of all views are one batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, one_hot_sum, softmax_loss
from prolip.methods.base import FitContext, Method
from prolip.methods.classifiers import LinearClassifier, unit_features
from prolip.methods.registry import register
from prolip.methods.selection import accuracy


@register
@dataclass(frozen=True)
class LPPlusPlus(Method):
    """A blend of text and class weights.

    Parameters
    ----------
    epochs
        At most; fewer where a validation set says so.
    """

    name: ClassVar[str] = "lp_plus_plus"
    summary: ClassVar[str] = "LP++: class weights blended with the texts, steps from the data"
    size: ClassVar[str] = "K x (D + 1)"

    epochs: int = 300

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Descend; keep the last epoch, or the best on the validation set."""
        best, kept, at, validation = -1.0, None, 0, context.validation
        for epoch, (weight, bias) in enumerate(descend(task, self.epochs)):
            point = LinearClassifier(task.linear, task.text, weight, bias)
            reached = best if validation is None or not epoch else accuracy(point, validation)
            if reached >= best:
                best, kept, at = reached, point, epoch
            if epoch and context.progress is not None:
                context.progress(epoch, self.epochs)
        assert kept is not None
        return replace(kept, settings=replace(self, epochs=at).to_settings())

    def uses_validation(self) -> bool:
        """Whether there is an epoch to choose."""
        return True


def descend(task: Task, epochs: int) -> Iterator[tuple[Array, Array]]:
    """Class rows [K, D], their part of the texts included, and b [K]: at the start, and after each epoch."""
    x, y = task.rows()
    f = unit_features(task.linear, x)
    n, texts = len(f), task.text.rows.astype(f.dtype, copy=False)
    w, b = one_hot_sum(f, y, task.classes) / task.views, np.zeros(task.classes, f.dtype)
    alpha = np.full(task.classes, 2.5 * task.scale * np.einsum("nd,nd->n", f, texts[y]).mean(), f.dtype)
    step = 4 * n / float(np.linalg.eigvalsh(f.T @ f)[-1])
    step_alpha = n / (4 * float(np.square(f @ texts.T).sum(axis=0).max()))
    speed_w, speed_b, slope_alpha = np.zeros_like(w), np.zeros_like(b), np.zeros_like(alpha)
    weight = w + alpha[:, None] * texts
    yield weight, b
    for epoch in range(1, epochs + 1):
        _, residual = softmax_loss(f @ weight.T + b, y)
        slope_w = residual.T @ f / n
        slope_alpha = slope_alpha + (slope_w * texts).sum(axis=1)
        speed_w, speed_b = slope_w + 0.9 * speed_w, residual.mean(axis=0) + 0.9 * speed_b
        w, b = w - step * speed_w, b - step * speed_b
        if epoch % 10 == 0:
            alpha = alpha - step_alpha * slope_alpha
        weight = w + alpha[:, None] * texts
        yield weight, b
