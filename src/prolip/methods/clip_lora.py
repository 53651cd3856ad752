"""CLIP-LoRA: low-rank changes of query, key and value in every block of both towers (Zanella et al., 2024).

    W x  ->  W x + alpha / sqrt(r) B A x,        A [r, in], B [out, r],   r = 2, alpha = 1

A starts random, B at zero, and dropout of 0.25 falls on the input of A. The layers are peft's. open_clip has
query, key and value in one packed matrix, which peft would give a single change of rank r, and the output
projection one too; so its attention is first written out as three linear maps, with the same result.

Defaults are the authors': AdamW at 2e-4, weight decay 0.01, batches of 32, 500 steps for each shot, a cosine
down to 1e-6, crops of 0.08 to 1 of the picture.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.core import Task
from prolip.core.arrays import to_numpy
from prolip.encoders.trainable_towers import ATTENTION, IMAGE, Towers
from prolip.methods.common.fine_tuning import FineTuning
from prolip.methods.common.method import Progress
from prolip.methods.common.tuned_towers import Tuned, merge

if TYPE_CHECKING:
    from torch import nn

    from prolip.methods.common.training import Recipe


@dataclass(frozen=True)
class CLIPLoRA(FineTuning):
    """LoRA on the attention of both towers.

    Parameters
    ----------
    rank, alpha, dropout
        Of LoRA.
    steps_per_shot
        Steps in all, over N.
    epochs
        None: as many as the steps take; a number is used instead of the steps.
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
    needs: ClassVar[tuple[str, ...]] = (IMAGE, ATTENTION)

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """LoRA's factors, put into the towers: this changes them."""
        from prolip.methods.common.lora_layers import inject

        return inject(towers, self.rank, self.alpha, self.dropout, self.seed)

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Tuned:
        """Train the factors in a copy of the towers, then merge them."""
        started = time.perf_counter()
        task, encoder, towers = self.open(task, copy=True)
        trained = self.choose(towers)
        for name, module in towers.model.named_modules():
            if "lora_dropout" in name:  # the towers themselves stay as they are when they predict
                module.train()
        figures = self.run(task, encoder, towers, trained, progress)
        factors = {name: to_numpy(parameter) for name, parameter in trained.items()}
        lora = self.alpha / math.sqrt(self.rank)
        adapted = encoder.with_tensors(merge(encoder, factors, lora))
        assert task.text.classes is not None
        text = adapted.text(task.text.classes, task.templates)
        fitted = Tuned(text, task.scale, factors, lora, encoder=adapted)
        return self.finish(fitted, task, started, **figures)

    def recipe(self, task: Task) -> Recipe:
        """AdamW for a number of steps."""
        from prolip.methods.common.training import Recipe

        return Recipe(
            self.lr,
            self.epochs or 0,
            self.batch_size,
            steps=round(self.steps_per_shot * task.shots) if self.epochs is None else None,
            optimizer="adamw",
            weight_decay=self.weight_decay,
            floor=1e-6,
            per_step=True,
            seed=self.seed,
            checkpoint=self.checkpoint,
        )

    def parameters(self, task: Task) -> int:
        """Two factors for each projection."""
        return self.count_in(self.open(task)[2])

    def count_in(self, towers: Towers) -> int:
        """The same for towers alone."""
        from prolip.methods.common.lora_layers import count_factors

        return count_factors(towers, self.rank)
