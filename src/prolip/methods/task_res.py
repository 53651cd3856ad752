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

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Task
from prolip.methods.base import Shape
from prolip.methods.common.hyperparameter import Hyperparameter
from prolip.methods.common.penalised_bias import PenalisedBiasMethod
from prolip.methods.common.text_residual import TextResidual, raw_texts
from prolip.solvers import lam_value
from prolip.solvers.adam import Steps, clap_steps


@dataclass(frozen=True)
class TaskRes(PenalisedBiasMethod):
    """A residual on the text classifier.

    Parameters
    ----------
    alpha
        What the residual is multiplied by.
    normalise
        Whether moved texts are brought back to unit length.
    lr, epochs
        Of solver="adam"; epochs None: 100, or 200 from 8 shots on. There lam is half the weight decay.
    """

    name: ClassVar[str] = "task_res"
    summary: ClassVar[str] = "TaskRes: a residual on every class text"
    size: ClassVar[str] = "K x D"
    solvers: ClassVar[tuple[str, ...]] = ("exact", "adam", "sgd")
    in_sum: ClassVar[dict[str, Any]] = {"alpha": 0.1, "normalise": False}

    alpha: float = 0.5
    normalise: bool = True
    lr: float = 2e-3
    epochs: int | None = None

    def find(self, task: Task, validation: Task | None) -> Hyperparameter:
        """The authors' weight decay for their recipe, searched for the minimum."""
        if self.solver != "exact" and self.lam == "auto":
            return replace(self, lam=2.5e-4 if self.solver == "adam" else 0.0).find(task, validation)
        return super().find(task, validation)

    def chooses(self) -> bool:
        """The pull of the exact form, where it is "auto"."""
        return self.solver == "exact" and super().chooses()

    def bias(self, task: Task, exact: bool) -> TextResidual:
        """The term alpha s f R', or what that is after normalising."""
        lam = lam_value(self.lam, task)
        if not exact and self.normalise:
            return TextResidual(task, np.ones(task.classes), self.alpha, lam=lam, rows=raw_texts(task))
        weights = np.full(task.classes, (task.scale / 100) ** 2)
        return TextResidual(task, weights, self.alpha, self.normalise, lam)

    def recipe(self, task: Task) -> Steps:
        """The rate, epochs and batches of its authors, or of CLAP's."""
        if self.solver == "sgd":
            return clap_steps(self.seed)
        epochs = self.epochs or (200 if task.shots >= 8 else 100)
        return Steps(self.lr, epochs, eps=1e-8, batch=256, drop_last=True, schedule="epochs", seed=self.seed)

    def count(self, shape: Shape) -> int:
        """A row for each class: K x D."""
        return shape.classes * shape.dim
