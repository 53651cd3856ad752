"""CoOp: learn the words around the class name (Zhou et al., 2022).

The prompt of class k is [w]_1 ... [w]_M [name k], its M words free vectors. Through the frozen text tower it
gives the row t_k(w), and the words minimise the cross-entropy of

    s * normalize(x W0 + b) T(w)'

The image tower is not touched, so its features are cached (one view of each image per epoch), and gradients
flow through the text tower alone.

Defaults are the authors': 16 words from N(0, 0.02), shared by all classes, in front of the name; SGD with
momentum at 0.002, weight decay 5e-4, batches of 32; 50, 100 or 200 epochs for 1, 2 to 4, or more shots; a
warm-up epoch, then a cosine. The paper's parameter count K x M x De is that of `class_specific=True`.

Differences from their program: float32 (or bfloat16 on a GPU) instead of float16; views come from the cache.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prolip.core import Fitted, Task, Text
from prolip.core.arrays import unit_rows
from prolip.encoders.towers import WORDS
from prolip.methods.base import Progress
from prolip.methods.prompts.fitted import Prompted
from prolip.methods.prompts.words import Prompts, check_position, start_context
from prolip.methods.towers import TowerMethod, TowerTask
from prolip.methods.training import Batch, Gradient, Recipe, train


@dataclass(frozen=True)
class CoOp(TowerMethod):
    """Learned context words.

    Parameters
    ----------
    contexts
        M. None is 16, or the length of the phrase in `init`.
    init
        "random", or a phrase like "a photo of a".
    class_specific
        A context for each class, instead of one for all.
    position
        Where the class name stands among the words: "end", "middle" or "front".
    epochs
        None: by the number of shots, as the authors do.
    recompute
        Keep less in memory on the way forth and compute it again on the way back, for thousands of classes.
    checkpoint
        A folder that an interrupted run goes on from.
    """

    contexts: int | None = None
    init: str = "random"
    class_specific: bool = False
    position: str = "end"
    lr: float = 0.002
    epochs: int | None = None
    batch_size: int = 32
    weight_decay: float = 5e-4
    recompute: bool = False
    seed: int = 0
    checkpoint: str | None = None

    name: ClassVar[str] = "coop"
    summary: ClassVar[str] = "learn the words around the class name, through the text tower"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "M x De, or K x M x De class-specific"
    needs: ClassVar[tuple[str, ...]] = (WORDS,)

    def __post_init__(self) -> None:
        check_position(self.position)

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Learn the context on cached image features."""
        started = time.perf_counter()
        problem = Problem.of(self, task)
        recipe = self.recipe(problem.task)
        with self.memory(problem.prompts.towers):
            figures = train(
                {"context": problem.context},
                lambda batch: self.loss(problem, batch),
                problem.task.n,
                recipe,
                problem.device,
                progress,
                identity=problem.identity(self),
                gradient=self.gradient(problem),
            )
        context = problem.context.detach()
        with torch.no_grad():
            rows = problem.prompts.embed(context).cpu()
        described = {"contexts": int(problem.prompts.slots.shape[1]), "position": self.position}
        info = self.report(problem.task, started, prompt=described, **figures)
        text, encoder = Text(rows, problem.task.text.classes), problem.task.encoder
        return Prompted(problem.task.linear, text, problem.task.scale, context.cpu(), encoder, info)

    def loss(self, problem: Problem, batch: Batch) -> Tensor:
        """Cross-entropy of a batch."""
        return problem.cross_entropy(problem.prompts.embed(problem.context), batch)

    def gradient(self, problem: Problem) -> Gradient | None:
        """The loss's own."""
        return None

    def recipe(self, task: Task) -> Recipe:
        """Steps and rates, for a support set of this size."""
        return Recipe(
            self.lr,
            epochs_for(task) if self.epochs is None else self.epochs,
            self.batch_size,
            weight_decay=self.weight_decay,
            warm_up=1,
            seed=self.seed,
            checkpoint=self.checkpoint,
        )

    def parameters(self, task: Task) -> int:
        """The size of the context."""
        return Problem.of(self, task).context.numel()


def epochs_for(task: Task) -> int:
    """Epochs by shots: 50 for one, 100 for up to four, 200 for more."""
    return 50 if task.shots < 2 else 100 if task.shots <= 4 else 200


@dataclass(frozen=True, eq=False)
class Problem:
    """Cached image embeddings, prompts, and the context to be learned, on the encoder's device."""

    task: TowerTask
    prompts: Prompts
    context: nn.Parameter  # [M, De] or [K, M, De]
    images: Tensor  # unit embeddings [V, n, D]
    labels: Tensor
    teacher: Tensor  # hand-written text rows [K, D]
    device: torch.device

    @classmethod
    def of(cls, method: CoOp, task: Task) -> Problem:
        """What a method has to solve."""
        task, encoder, towers = method.open(task)
        names = task.text.classes
        assert names is not None
        start = start_context(encoder, towers, names[0], method.contexts, method.init, method.seed)
        if method.class_specific:
            start = start.expand(len(names), -1, -1)
        prompts = Prompts.build(encoder, towers, names, start.shape[-2], method.position)
        device = encoder.device
        return cls(
            task,
            prompts,
            nn.Parameter(start.clone()),
            unit_rows(task.embeddings()).to(device),
            task.y.to(device),
            task.text.rows.to(device),
            device,
        )

    def logits(self, rows: Tensor, batch: Batch) -> Tensor:
        """Scores [B, K] of a batch, in the view that is its epoch's turn."""
        view = self.images[batch.epoch % len(self.images), batch.images]
        return self.task.scale * view.to(rows.dtype) @ rows.T

    def cross_entropy(self, rows: Tensor, batch: Batch) -> Tensor:
        """Of a batch."""
        return nn.functional.cross_entropy(self.logits(rows, batch), self.labels[batch.images])

    def identity(self, method: Any) -> str:
        """What makes a run on this problem what it is."""
        assert self.task.encoder is not None
        return f"{method} {self.task.encoder.fingerprint} {self.task.text.classes} {self.task.y.tolist()}"
