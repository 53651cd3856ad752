"""TIMO: images weight the prompts, and prompts join the images of GDA (Li et al., 2025), in closed form.

With m_k the mean image of class k, of unit length, and prompts t_kp of unit length,

    c_kp = m_k . t_kp,     T_k = normalize( sum_p softmax_p( gamma c_kp / |c_k| ) t_kp )    images guide texts
    X    = the images and c_kp t_kp of every prompt, as samples of their classes            texts guide images
    logits = alpha f T' + f W' + b,      W, b the discriminants of `gda` on X

gamma is 50 (100 on Flowers, 1 on ImageNet). alpha = "auto" is searched over 1e-4, .., 1e4 on a validation set
or inside the support set, of equals the first; without either it is s, the weight of zero-shot.

Differences: the authors' prompts are those of a language model (CuPL), here the prompts of the task, often
a single one, whose weight is 1; they choose alpha on the whole validation split (on ImageNet: the test set).
TIMO-S, which also searches gamma and the number of prompts, is left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, one_hot_sum, softmax, unit_rows
from prolip.methods import selection
from prolip.methods.base import FitContext, Method, OptionError, Shape
from prolip.methods.classifiers import LinearClassifier, products, unit_features
from prolip.methods.gda import discriminants_of
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning

TIMO_GRID = tuple(10.0**e for e in range(-4, 5))


@register
@dataclass(frozen=True)
class TIMO(Method):
    """Discriminants of images and prompts, beside image-weighted prompts.

    Parameters
    ----------
    alpha
        Weight of the texts: "auto" (searched), or a number.
    gamma
        How sharply images weight prompts.
    seed
        Random seed for the folds.
    """

    name: ClassVar[str] = "timo"
    summary: ClassVar[str] = "TIMO: prompts weighted by images, and images joined by prompts"
    size: ClassVar[str] = "0"
    research: ClassVar[bool] = True

    alpha: str | float = "auto"
    gamma: float = 50.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.alpha != "auto" and not (isinstance(self.alpha, (int, float)) and self.alpha >= 0):
            raise OptionError("alpha", '"auto" or a number >= 0', self.alpha)

    def needs_tuning(self) -> bool:
        """Whether alpha is "auto"."""
        return self.alpha == "auto"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose alpha from the grid."""
        if self.alpha != "auto":
            return Tuning(self)
        if not splits.parts:
            return selection.fallback(self, "alpha", task.scale)
        pairs = []  # cosines of the texts and own logits by split
        for part in splits.parts:
            rows, weight, bias = self.classifiers(part.task)
            f = unit_features(part.task.linear, part.x)
            pairs.append((products(f, rows), products(f, weight) + bias))
        columns = [[alpha * text + own for text, own in pairs] for alpha in TIMO_GRID]
        return splits.choose(self, "alpha", TIMO_GRID, columns, by_accuracy=True)

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Compute texts and discriminants, in one linear classifier."""
        rows, weight, bias = self.classifiers(task)
        weight = float(self.alpha) * rows.astype(weight.dtype) + weight
        return LinearClassifier(task.linear, task.text, weight, bias)

    def classifiers(self, task: Task) -> tuple[Array, Array, Array]:
        """The weighted texts T [K, D], and the discriminants W [K, D] and b [K]."""
        x, y = task.rows()
        f = unit_features(task.linear, x)
        means = one_hot_sum(f, y, task.classes)
        means = np.where(np.bincount(y, minlength=task.classes)[:, None], means, task.text.rows)
        prompts = _prompts(task).astype(f.dtype)  # [P, K, D]
        scores = np.einsum("kd,pkd->kp", unit_rows(means), prompts)
        shares = softmax(self.gamma * unit_rows(scores))
        rows = unit_rows(np.einsum("kp,pkd->kd", shares, prompts))
        guided = (scores.T[:, :, None] * prompts).reshape(-1, f.shape[1])
        labels = np.concatenate([np.tile(np.arange(task.classes), len(prompts)), y])
        return rows, *discriminants_of(np.concatenate([guided, f]), labels, task.classes)

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0


def _prompts(task: Task) -> Array:
    """Every prompt's embedding [P, K, D], of unit length; the class rows where only they are known."""
    text = task.text
    if text.features is None or text.projection is None:
        return task.text.rows[None]
    return unit_rows(text.projection(text.features))
