"""KgCoOp: learned words whose class texts stay near the hand-written ones (Yao et al., 2023).

CoOp's loss, and a penalty on the distance of each learned row t_k(w) from the row u_k of the hand-written
prompt:

    CE + weight * (1 - mean_k <t_k(w), u_k>),        weight = 8

The context starts as "a photo of a"; 100 epochs in batches of 128, as in the authors' scripts. Their u_k come
from a phrase of each dataset ("a photo of a {}, a type of texture." for DTD): `teacher`.
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

    from prolip.research.towers.training import Batch


@dataclass(frozen=True)
class KgCoOp(CoOp):
    """Learned context words, guided by hand-written prompts.

    Parameters
    ----------
    weight
        Weight of the penalty.
    teacher
        The hand-written prompt, with a `{}` for the class name; None: those of the task.
    """

    init: str = "a photo of a"
    epochs: int | None = 100
    batch_size: int = 128
    weight: float = 8.0
    teacher: str | None = None

    name: ClassVar[str] = "kgcoop"
    summary: ClassVar[str] = "CoOp with class texts that stay near the hand-written ones"

    def teacher_rows(self, task: TowerTask) -> Array:
        """Return the rows [K, D] of the teacher's prompts."""
        return teacher_rows(task, self.teacher)

    def loss(self, problem: ContextProblem, batch: Batch) -> Tensor:
        """Compute the cross-entropy plus the penalty."""
        rows = problem.prompts.embed(problem.context)
        distance = 1 - (rows * problem.teacher).sum(dim=1).mean()
        return problem.cross_entropy(rows, batch) + self.weight * distance
