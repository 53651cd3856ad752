"""Prompt tuning: what all of its methods share, which is how they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prolip.core import Task
from prolip.core.arrays import Array
from prolip.data import as_templates
from prolip.research.towers.tower_method import TowerMethod, TowerTask


@dataclass(frozen=True)
class PromptTuning(TowerMethod):
    """SGD with momentum: an epoch of warm-up, then a cosine, once an epoch.

    Parameters
    ----------
    epochs
        None: by the number of shots, as CoOp's authors do.
    recompute
        Keep less in memory on the way forth and compute it again on the way back: for large towers, and for
        thousands of classes.
    checkpoint
        A folder that an interrupted run goes on from.
    """

    lr: float = 0.002
    epochs: int | None = None
    batch_size: int = 32
    weight_decay: float = 5e-4
    recompute: bool = False
    seed: int = 0
    checkpoint: str | None = None

    open_class: ClassVar[bool] = True

    def schedule(self, task: Task) -> dict[str, Any]:
        """A warm-up, and as many epochs as its authors took for so many shots."""
        epochs = epochs_for(task) if self.epochs is None else self.epochs
        return {"epochs": epochs, "weight_decay": self.weight_decay, "warm_up": 1}


def taught_rows(task: TowerTask, template: str | None) -> Array:
    """Class rows [K, D] of a hand-written prompt, or of the task's own."""
    if template is None:
        rows: Array = task.text.rows
        return rows
    assert task.encoder is not None
    assert task.text.classes is not None
    taught: Array = task.encoder.text(task.text.classes, as_templates(template)).rows
    return taught


def epochs_for(task: Task) -> int:
    """Epochs by shots: 50 for one, 100 for up to four, 200 for more."""
    return 50 if task.shots < 2 else 100 if task.shots <= 4 else 200
