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

from prolip.core import Fitted, Head, Task, Text
from prolip.core.arrays import Array, as_features, to_numpy, to_torch, unit_rows
from prolip.encoders import Encoder
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.prompt_tuning import Layout, Prompts, class_names

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

    def solve(self, task: Task, context: FitContext) -> Conditional:
        """Learn the context and the net."""
        problem = ContextProblem.of(self, task)
        net = self._net(problem)

        from torch.nn.functional import cross_entropy

        def logits(z: Tensor) -> Tensor:
            return conditional_logits(problem.prompts, problem.context, net, z, problem.task.scale)

        def loss(batch: Batch) -> Tensor:
            return cross_entropy(logits(problem.views.of(batch)), problem.labels[batch.images])

        trained = {"context": problem.context, **{f"net.{name}": p for name, p in net.items()}}
        towers, score = problem.prompts.towers, problem.validation_score(context.validation, logits)
        with problem.views:
            figures = self.train(
                problem.task, towers, trained, loss, context.progress, validation_score=score
            )
        task, learned = problem.task, {name: to_numpy(p) for name, p in net.items()}
        assert task.encoder is not None
        words, layout, encoder = to_numpy(problem.context), problem.layout, task.encoder
        return Conditional(
            task.linear, task.text, task.scale, words, learned, layout, encoder, report=figures
        )

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


@dataclass(frozen=True, eq=False)
class Conditional(Fitted):
    """Class texts that depend on the image; predictions need the text tower."""

    head: Head
    text: Text  # hand-written, for their names
    scale: float
    context: Array
    net: dict[str, Array]
    layout: Layout
    encoder: Encoder

    def logits(self, x: Any) -> Array:
        """Compute scores [m, K], each image against its own text rows, a few images at a time."""
        names, encoder = class_names(self.text, self.method), self.encoder
        z = unit_rows(self.head(as_features(x, "features")))
        prompts = self.layout.prompts(encoder, names)
        net = {name: to_torch(p, encoder.device) for name, p in self.net.items()}
        context = to_torch(self.context, encoder.device)
        size = max(1, _PROMPTS_AT_ONCE // len(names))
        parts = (to_torch(z[start : start + size], encoder.device) for start in range(0, len(z), size))
        scores = [conditional_logits(prompts, context, net, part, self.scale) for part in parts]
        return np.concatenate([to_numpy(score) for score in scores])

    def with_text(self, text: Any) -> Conditional:
        """Use the same context and net with other class names."""
        class_names(text, self.method)
        return replace(self, text=text)
