"""WiSE-FT: the mean of zero-shot and fine-tuned weights (Wortsman et al., 2022), of a linear classifier.

Class rows start at the texts and are trained without a penalty, to W; what is used lies between the two,

    w_k = (1 - alpha) t_k + alpha w_k',      logits = s f . normalize(w_k),      alpha = 0.5

The paper fine-tunes the whole encoder, or the linear classifier alone; this is the latter. It leaves the
steps open: here they are CLAP's for every probe (SGD at 0.1, 300 epochs), which train the probe from the
texts that CLAP is compared with (ZS-LP; alpha = 1).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from prolip.core import Task
from prolip.methods.base import FitContext, Method, OptionError, Shape
from prolip.methods.classifiers import LinearClassifier
from prolip.methods.logit_bias import Sum
from prolip.methods.registry import register
from prolip.methods.task_res import TextResidual, raw_texts
from prolip.solvers.adam import clap_steps


@register
@dataclass(frozen=True)
class WiSEFT(Method):
    """A trained linear probe, averaged with zero-shot.

    Parameters
    ----------
    alpha
        Share of the trained rows, 0 to 1.
    seed
        Random seed for the batches.
    """

    name: ClassVar[str] = "wise_ft"
    summary: ClassVar[str] = "WiSE-FT: a linear probe from the texts, averaged with them"
    size: ClassVar[str] = "K x D"
    research: ClassVar[bool] = True

    alpha: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise OptionError("alpha", "between 0 and 1", self.alpha)

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Train the rows, and go back part of the way."""
        term = TextResidual(task, np.zeros(task.classes), rows=raw_texts(task))
        trained = Sum(task, [term]).train(clap_steps(self.seed), progress=context.progress)
        ((step,),) = trained.parameters
        return replace(term.fitted([self.alpha * step]), report=trained.report())

    def count(self, shape: Shape) -> int:
        """A row for each class: K x D."""
        return shape.classes * shape.dim
