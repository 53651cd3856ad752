"""TaskRes: a residual on every class text (Yu et al., 2023).

    minimise over R:   mean_i CE( s f_i . normalize(t_k + alpha r_k), y_i )  +  lam (s / 100)^2 |R|^2

from R = 0, with alpha = 0.5. As a term of a sum it is the paper's (supplement): alpha = 0.1, and the moved
texts are not normalised again, so that the bias is linear, alpha s f R'.

`solver="adam"` is the authors' recipe: the texts t keep the length that CLIP gives them (the mean of the
prompts, not normalised), Adam at 2e-3 (2e-4 on ImageNet) with a weight decay of 5e-4, which is lam = 2.5e-4
in that unit; 100 epochs (200 from 8 shots on) in batches of 256, a last one that is not full left out; a
first epoch at 1e-5, then a cosine, once an epoch. alpha is 1 on Flowers. It hardly regularises: it ends where
its epochs do. `solver="sgd"` is how CLAP's authors run it, for the figures of Table 2b: from the same texts
by the steps of CLAP, without a penalty. By default it is ours: unit texts, the minimum itself, lam searched.

Difference that is left: where only unit texts are known, their length is taken to be s / 10.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, row_lengths, unit_rows
from prolip.methods.classifiers import LinearClassifier, unit_features
from prolip.methods.logit_bias import LogitBias, Pullback, normalised
from prolip.methods.penalty import PenalisedBiasMethod
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning
from prolip.solvers import lam_value
from prolip.solvers.adam import Steps, clap_steps

UNIT = 1e-2  # prompts whose lengths differ from 1 by less have been normalised


class TextResidual(LogitBias):
    """The bias of methods that move the class texts, TaskRes and CLAP, in residuals r [K, D] from zero:

        s f . (t_k + alpha r_k) - s f . t_k,    with t_k + alpha r_k of unit length again where `normalise`

    and a penalty lam |R|^2, where lam may be an array [K, 1] of weights for the classes. The authors of both
    move texts that are as long as the model's text tower makes them (`raw_texts`); where they are normalised
    again that is a matter of the unit of r, for a penalty or a learning rate.
    """

    def __init__(
        self,
        task: Task,
        lam: float | Array,
        alpha: float = 1.0,
        normalise: bool = True,
        rows: Array | None = None,
    ) -> None:
        x, _ = task.rows()
        self.task, self.alpha, self.normalise = task, alpha, normalise
        self.f = unit_features(task.linear, x)
        self.lam = lam.astype(self.f.dtype, copy=False) if isinstance(lam, np.ndarray) else lam
        self.text = task.text.rows.astype(self.f.dtype, copy=False)
        self.rows = self.text if rows is None else rows.astype(self.f.dtype, copy=False)  # what r is added to
        self.start = (np.zeros_like(self.text),)

    def logits(self, parameters: Sequence[Array], rows: Any) -> tuple[Array, Pullback]:
        """The term s f (T_new - T)', and the way back through the normalisation."""
        f, s, moved = self.f[rows], self.task.scale, self.rows + self.alpha * parameters[0]
        new, back = normalised(moved) if self.normalise else (moved, lambda slope: slope)

        def pullback(slope: Array) -> list[Array]:
            return [self.alpha * back(s * (slope.T @ f))]

        return f @ (s * (new - self.text)).T, pullback

    def fitted(self, parameters: Sequence[Array]) -> LinearClassifier:
        """The moved texts as a linear classifier."""
        moved = self.rows + self.alpha * parameters[0]
        weight = self.task.scale * (unit_rows(moved) if self.normalise else moved)
        bias = np.zeros(len(weight), weight.dtype)
        return LinearClassifier(self.task.linear, self.task.text, weight, bias)


@register
@dataclass(frozen=True)
class TaskRes(PenalisedBiasMethod):
    """A residual on the text classifier.

    Parameters
    ----------
    alpha
        What the residual is multiplied by.
    normalise
        Whether moved texts are normalised again.
    lr, epochs
        Learning rate and epochs of solver="adam"; epochs None: 100, or 200 from 8 shots on. lam is half the
        weight decay there.
    """

    name: ClassVar[str] = "task_res"
    summary: ClassVar[str] = "TaskRes: a residual on every class text"
    size: ClassVar[str] = "K x D"
    options_in_sum: ClassVar[dict[str, Any]] = {"alpha": 0.1, "normalise": False}
    options_in_adam_sum: ClassVar[dict[str, Any]] = {"lam": 0.0}  # the paper pulls on ProLIP's matrix alone

    solver: Literal["exact", "adam", "sgd"] = "exact"  # type: ignore[assignment]
    alpha: float = 0.5
    normalise: bool = True
    lr: float = 2e-3
    epochs: int | None = None

    def needs_tuning(self) -> bool:
        """Whether the penalty of the exact form is "auto"; the recipes have a fixed one."""
        return self.solver == "exact" and super().needs_tuning()

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Take the authors' weight decay for their recipe; search lam for the minimum."""
        if self.solver != "exact" and self.lam == "auto":
            return replace(self, lam=2.5e-4 if self.solver == "adam" else 0.0).tune(task, splits)
        return super().tune(task, splits)

    def bias(self, task: Task, exact: bool) -> TextResidual:
        """The term alpha s f R', or what that is after normalising."""
        lam = lam_value(self.lam, task)
        if not exact and self.normalise:
            return TextResidual(task, lam, self.alpha, rows=raw_texts(task))
        return TextResidual(task, lam * (task.scale / 100) ** 2, self.alpha, self.normalise)

    def recipe(self, task: Task) -> Steps:
        """The rate, epochs and batches of its authors, or of CLAP's."""
        if self.solver == "sgd":
            return clap_steps(self.seed)
        epochs = self.epochs or (200 if task.shots >= 8 else 100)
        return Steps(self.lr, epochs, eps=1e-8, batch=256, drop_last=True, schedule="epochs", seed=self.seed)


def raw_texts(task: Task) -> Array:
    """Class rows [K, D] as long as the text tower makes them: the mean of the prompts, not normalised."""
    rows: Array = raw_prompts(task).mean(axis=0)
    return rows


def raw_prompts(task: Task) -> Array:
    """Embeddings [templates, K, D] of the prompts, as long as the text tower makes them.

    Where only unit rows are known, they are taken to be s / 10 long, which is about CLIP's (8.7 on ViT-B/32).
    """
    text = task.text
    if text.features is None or text.projection is None:
        return task.scale / 10 * text.rows[None]
    prompts = text.projection(text.features)
    unit = bool(np.abs(row_lengths(prompts) - 1).max() < UNIT)
    return task.scale / 10 * prompts if unit else prompts
