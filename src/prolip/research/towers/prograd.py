"""ProGrad: learn words only in directions that keep what the model knew (Zhu et al., 2023).

A batch has two losses: the cross-entropy, with gradient g_a; and the divergence of the prediction from that
of the hand-written prompts, with gradient g_b. Where the two conflict, the component of g_a against g_b is
removed:

    g = g_a - lam * <g_a, g_b> / |g_b|^2 * g_b      if <g_a, g_b> < 0,      else g_a

The teacher's predictions are soft labels of a cross-entropy, which has the gradient of the divergence. The
context starts as zeros, with the phrase as its last words. In the authors' program teacher and phrase are
those of each dataset ("a type of pet, a photo of a {}."): `teacher`, `init`; and `conflict` is 0.8 on
Flowers, DTD and EuroSAT from 8 shots on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.core.arrays import Array
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.prompt_tuning import teacher_rows
from prolip.research.towers.tower_method import TowerTask

if TYPE_CHECKING:
    from torch import Tensor

    from prolip.research.towers.training import Batch, Gradient


@dataclass(frozen=True)
class ProGrad(CoOp):
    """Learned context words that do not move against the zero-shot model.

    Parameters
    ----------
    conflict
        The share of a conflicting component that is removed: 1 is all of it.
    teacher
        The hand-written prompt, with a `{}` for the class name; None: those of the task.
    """

    contexts: int | None = 16
    init: str = "a photo of a"
    conflict: float = 1.0
    teacher: str | None = None

    name: ClassVar[str] = "prograd"
    summary: ClassVar[str] = "CoOp, without steps that go against the zero-shot predictions"

    def teacher_rows(self, task: TowerTask) -> Array:
        """Return the rows [K, D] of the teacher's prompts."""
        return teacher_rows(task, self.teacher)

    def gradient(self, problem: ContextProblem) -> Gradient:
        """Return the function that computes the projected gradient."""
        from torch.autograd import grad
        from torch.nn.functional import cross_entropy

        def fill(batch: Batch) -> Tensor:
            logits = problem.logits(problem.prompts.embed(problem.context), batch)
            loss = cross_entropy(logits, problem.labels[batch.images])
            soft_labels = problem.logits(problem.teacher, batch).softmax(dim=1)
            (own,) = grad(loss, problem.context, retain_graph=True)
            (general,) = grad(cross_entropy(logits, soft_labels), problem.context)
            problem.context.grad = project(own, general, self.conflict)
            return loss

        return fill


def project(own: Tensor, general: Tensor, conflict: float = 1.0) -> Tensor:
    """Remove the component of `own` against `general`, if there is one.

    Examples
    --------
    >>> import numpy as np
    >>> project(np.array([1.0, -1.0]), np.array([0.0, 2.0])).tolist()
    [1.0, 0.0]
    """
    along = (own * general).sum()
    if along >= 0:
        return own
    return own - conflict * along / (general * general).sum() * general
