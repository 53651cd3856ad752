"""CLIP-LoRA: low-rank changes of query, key and value in every block of both towers (Zanella et al., 2024).

    W x  ->  W x + alpha / sqrt(r) B A x,        A [r, in], B [out, r],   r = 2, alpha = 1

A starts random, B at zero, and the input of A has dropout of 0.25. The layers are peft's. open_clip has
query, key and value in one packed matrix, which peft would give a single change of rank r, and the output
projection one too; so its attention is first split into three linear maps, with the same result.

Defaults are the authors': AdamW at 2e-4, weight decay 0.01, batches of 32, 500 steps for each shot, a cosine
down to 1e-6, crops of 0.08 to 1 of the image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from prolip.core import Task
from prolip.core.capabilities import Capability
from prolip.encoders.trainable_towers import Towers
from prolip.methods.registry import register
from prolip.research.towers.fine_tuning import FineTuning
from prolip.solvers.adam import Steps

if TYPE_CHECKING:
    from torch import nn


@register
@dataclass(frozen=True)
class CLIPLoRA(FineTuning):
    """LoRA on the attention of both towers.

    Parameters
    ----------
    rank, alpha, dropout
        Options of LoRA.
    steps_per_shot
        Number of steps divided by N.
    epochs
        None: as many as the steps take; a number replaces the steps.
    weight_decay
        Weight decay of AdamW.
    """

    lr: float = 2e-4
    epochs: int | None = None  # type: ignore[assignment]
    batch_size: int = 32
    view_area: float = 0.08
    rank: int = 2
    alpha: int = 1
    dropout: float = 0.25
    steps_per_shot: int = 500
    weight_decay: float = 0.01

    name: ClassVar[str] = "clip_lora"
    summary: ClassVar[str] = "low-rank changes of the attention in both towers (transformers only)"
    size: ClassVar[str] = "r x 6 x width x blocks, of each tower"
    needs: ClassVar[Capability] = Capability.IMAGE_TOWER | Capability.ATTENTION

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Put LoRA's factors into the towers, which changes them, and return the factors."""
        from prolip.research.towers.lora_layers import inject

        factors = inject(towers, self.rank, self.alpha, self.dropout, self.seed)
        for name, module in towers.model.named_modules():
            if "lora_dropout" in name:  # the towers themselves stay in evaluation mode
                module.train()
        return factors

    def steps(self, task: Task) -> Steps:
        """Return AdamW for a number of steps."""
        count = round(self.steps_per_shot * task.shots) if self.epochs is None else None
        steps = replace(super().steps(task), eps=1e-8, decay=self.weight_decay, floor=1e-6)
        return replace(steps, epochs=self.epochs or 0, max_steps=count)
