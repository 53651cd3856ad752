"""CoCoOp: context words that depend on the image (Zhou et al., 2022).

A small net makes one shift of all context words from the image's unit embedding z:

    pi(z) = W2 relu(W1 z + c1) + c2,        the prompt of class k: [w_1 + pi(z)] ... [w_M + pi(z)] [name k]

So every image has text rows of its own, and each costs K prompts through the text tower: to train, and to
predict. Image features stay cached.

Defaults are the authors': "a photo of a", a bottleneck of D / 16, batches of one, 10 epochs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prolip.core import Fitted, Head, Task, Text
from prolip.core.arrays import as_features, unit_rows
from prolip.encoders import Encoder
from prolip.methods.base import Progress
from prolip.methods.prompts.coop import CoOp, Problem
from prolip.methods.prompts.fitted import other_names, prompts_of
from prolip.methods.prompts.words import Prompts
from prolip.methods.training import Batch

_PROMPTS_AT_ONCE = 256
_NET = ("0.weight", "0.bias", "2.weight", "2.bias")


@dataclass(frozen=True)
class CoCoOp(CoOp):
    """Context words conditioned on the image.

    Parameters
    ----------
    reduction
        D over the width of the net's hidden layer.
    """

    init: str = "a photo of a"
    epochs: int | None = 10
    batch_size: int = 1
    reduction: int = 16

    name: ClassVar[str] = "cocoop"
    summary: ClassVar[str] = "CoOp, its words shifted by a small net for each image"
    size: ClassVar[str] = "M x De + (D + De + 1) D / 16 + De"

    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> Conditional:
        """Learn the context and the net."""
        started = time.perf_counter()
        problem = Problem.of(self, task)
        net = self._net(problem)

        def loss(batch: Batch) -> Tensor:
            z = problem.images[batch.epoch % len(problem.images), batch.images]
            logits = conditional_logits(problem.prompts, problem.context, net, z, problem.task.scale)
            return nn.functional.cross_entropy(logits, problem.labels[batch.images])

        trained = {"context": problem.context, **{f"net.{name}": p for name, p in net.named_parameters()}}
        figures = self.train(problem.task, problem.prompts.towers, trained, loss, progress)
        info = self.report(problem.task, started, prompt=problem.described(self), **figures)
        net.requires_grad_(False)
        return Conditional(
            problem.task.linear,
            problem.task.text,
            problem.task.scale,
            problem.context.detach().cpu(),
            {name: net.get_parameter(name).cpu() for name in _NET},
            problem.prompts,
            problem.task.encoder,
            info,
        )

    def parameters(self, task: Task) -> int:
        """Context and net."""
        problem = Problem.of(self, task)
        return problem.context.numel() + sum(p.numel() for p in self._net(problem).parameters())

    def _net(self, problem: Problem) -> nn.Sequential:
        dim, width = problem.images.shape[2], problem.context.shape[-1]
        return make_net(dim, max(1, dim // self.reduction), width, self.seed).to(problem.device)


def make_net(dim: int, hidden: int, width: int, seed: int) -> nn.Sequential:
    """Linear, ReLU, Linear, from torch's own initial values."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, width))


def conditional_logits(prompts: Prompts, context: Tensor, net: nn.Module, z: Tensor, scale: float) -> Tensor:
    """Scores [B, K] of unit embeddings z [B, D], each against text rows of its own."""
    shift = net(z)[:, None, None, :]  # [B, 1, 1, De]
    rows = prompts.embed(context + shift)  # [B, K, D]
    return scale * torch.einsum("bkd,bd->bk", rows, z.to(rows.dtype))


@dataclass(frozen=True, eq=False)
class Conditional(Fitted):
    """Classes worded anew for each image; needs the text tower to predict."""

    kind: ClassVar[str] = "conditional"

    head: Head
    text: Text  # hand-written, for their names
    scale: float
    context: Tensor
    net: dict[str, Tensor]
    prompts: Prompts | None = None
    encoder: Encoder | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K], a few images at a time."""
        prompts = self._prompts()
        assert self.encoder is not None
        device = self.encoder.device
        net = make_net(self.net["0.weight"].shape[1], len(self.net["0.weight"]), len(self.net["2.weight"]), 0)
        net.load_state_dict(self.net)
        net.to(device)
        z = unit_rows(self.head(as_features(x, "features"))).to(device)
        context = self.context.to(device)
        size = max(1, _PROMPTS_AT_ONCE // len(self.text))
        scores = [conditional_logits(prompts, context, net, part, self.scale) for part in z.split(size)]
        return torch.cat(scores).cpu()

    def _prompts(self) -> Prompts:
        return self.prompts or prompts_of(self, other_names(self, self.text))

    def with_text(self, text: Any) -> Conditional:
        """The same context and net around other class names."""
        return replace(self, prompts=prompts_of(self, other_names(self, text)), text=text)

    def bind(self, encoder: Encoder) -> Conditional:
        """Beside the encoder, whose text tower reads the prompts."""
        bound = replace(self, encoder=encoder)
        return replace(bound, prompts=bound._prompts())

    def tensors(self) -> dict[str, Tensor]:
        """Context and net."""
        return {"context": self.context.float(), **{f"net.{name}": p for name, p in self.net.items()}}

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Conditional:
        """Around the class names of `text`; it can predict once it is bound to an encoder."""
        net = {name: tensors[f"net.{name}"] for name in _NET}
        return cls(head, text, scale, tensors["context"], net, info=info)
