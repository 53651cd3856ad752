"""CoCoOp: context words that depend on the image (Zhou et al., 2022).

A small net makes one shift of all context words from the image's unit embedding z:

    pi(z) = W2 relu(W1 z + c1) + c2,        the prompt of class k: [w_1 + pi(z)] ... [w_M + pi(z)] [name k]

So every image has text rows of its own, and each costs K prompts through the text tower: to train, and to
predict. Image features stay cached.

Defaults are the authors': "a photo of a", a bottleneck of D / 16, batches of one, 10 epochs. With a
validation set the best epoch is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.methods.registry import register
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.prompt_tuning import Prompts
from prolip.research.towers.tower_method import TowerTask

if TYPE_CHECKING:
    from torch import Tensor, nn

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

    fitted = CoOp.fitted_by_scores

    def parameters_from(self, start: Tensor, task: TowerTask) -> dict[str, nn.Parameter]:
        """Return the context, and W1, c1, W2 and c2 with torch's own initial values."""
        from torch import nn

        from prolip.research.towers.training import seeded

        dim, width = task.linear.dim, start.shape[1]
        hidden = max(1, dim // self.reduction)
        with seeded(self.seed):
            net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, width))
        return super().parameters_from(start, task) | dict(net.to(start.device).named_parameters())

    def rows(self, problem: ContextProblem, prompts: Prompts) -> Prompts:
        """Return the prompts: their rows depend on the image."""
        return prompts

    def scores(self, problem: ContextProblem, rows: Prompts, z: Tensor) -> Tensor:
        """Compute scores [B, K] of unit embeddings z [B, D], each against its own text rows."""
        import torch

        images = max(1, _PROMPTS_AT_ONCE // len(rows.slots))
        return torch.cat([self._scores(problem, rows, part) for part in z.split(images)])

    def _scores(self, problem: ContextProblem, prompts: Prompts, z: Tensor) -> Tensor:
        context, w1, c1, w2, c2 = problem.trained.values()
        shift = (z @ w1.T + c1).relu() @ w2.T + c2
        rows = prompts.embed(context + shift[:, None, None])  # [B, K, D]
        return problem.task.scale * (rows @ z.to(rows.dtype)[:, :, None])[..., 0]
