"""CoCoOp: context words that depend on the image (Zhou et al., 2022).

A small net makes one shift of all context words from the image's unit embedding z:

    pi(z) = W2 relu(W1 z + c1) + c2,        the prompt of class k: [w_1 + pi(z)] ... [w_M + pi(z)] [name k]

So every image has text rows of its own, and each costs K prompts through the text tower: to train, and to
predict. Image features stay cached.

Defaults are the authors': "a photo of a", a bottleneck of D / 16, batches of one, 10 epochs. With a
validation set the best epoch is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip.core import Task, Text
from prolip.core.arrays import Array, to_numpy, to_torch, unit_rows
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.prompt_tuning import Prompts
from prolip.research.towers.tower_method import TowerFitted

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.research.towers.training import Batch

_PROMPTS_AT_ONCE = 256


@register
@dataclass(frozen=True)
class CoCoOp(CoOp):
    """Context words conditioned on the image.

    Parameters
    ----------
    reduction
        D divided by the width of the net's hidden layer.
    """

    init: str = "a photo of a"
    epochs: int | None = 10
    batch_size: int = 1
    reduction: int = 16

    name: ClassVar[str] = "cocoop"
    summary: ClassVar[str] = "CoOp with words that a small net shifts for each image"
    size: ClassVar[str] = "M x De + (D + De + 1) D / 16 + De"

    def solve(self, task: Task, context: FitContext) -> TowerFitted:
        """Learn the context and the net."""
        problem = ContextProblem.of(self, task)
        net = self._net(problem)

        from torch import no_grad
        from torch.nn.functional import cross_entropy

        def logits(z: Tensor) -> Tensor:
            return conditional_logits(problem.prompts, problem.context, net, z, problem.task.scale)

        def loss(batch: Batch) -> Tensor:
            return cross_entropy(logits(problem.views.of(batch)), problem.labels[batch.images])

        def fitted(text: Text) -> TowerFitted:
            prompts, words = problem.prompts_of(text), problem.context.detach()

            def scores(x: Array) -> Array:
                z = to_torch(unit_rows(task.linear(x)), words.device)
                parts = z.split(max(1, _PROMPTS_AT_ONCE // len(text)))
                with no_grad():
                    parts = [conditional_logits(prompts, words, net, part, task.scale) for part in parts]
                return np.concatenate([to_numpy(part) for part in parts])

            return TowerFitted(task.linear, text, task.scale, fitted, scores=scores)

        trained = {"context": problem.context, **{f"net.{name}": p for name, p in net.items()}}
        score = problem.validation_score(context.validation, logits)
        with problem.views:
            figures = self.train(problem.task, trained, loss, context.progress, validation_score=score)
        return replace(fitted(task.text), report=figures)

    def _net(self, problem: ContextProblem) -> dict[str, nn.Parameter]:
        """Create W1, c1, W2 and c2 with torch's own initial values."""
        from torch import nn

        from prolip.research.towers.training import seeded

        dim, width = problem.teacher.shape[1], problem.context.shape[-1]
        hidden = max(1, dim // self.reduction)
        with seeded(self.seed):
            net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, width))
        return dict(net.to(problem.teacher.device).named_parameters())


def conditional_logits(
    prompts: Prompts, context: Tensor, net: dict[str, Any], z: Tensor, scale: float
) -> Tensor:
    """Compute scores [B, K] of unit embeddings z [B, D], each against its own text rows."""
    hidden = (z @ net["0.weight"].T + net["0.bias"]).relu()
    shift = hidden @ net["2.weight"].T + net["2.bias"]
    rows = prompts.embed(context + shift[:, None, None])  # [B, K, D]
    return scale * (rows @ z.to(rows.dtype)[:, :, None])[..., 0]
