"""CLIP-Adapter: a small network behind the embedding, mixed with it (Gao et al., 2024).

    z = alpha v + (1 - alpha) relu(relu(v W1) W2)        logits = s normalize(z) T'

W1 [D, D/4] and W2 [D/4, D] start random. alpha is the share of the pretrained embedding, as in the paper's
equation 6 (the official program writes the other share, 0.2). As the paper re-runs it: Adam (eps 1e-4), 300
full-batch epochs, a cosine, no penalty. The loss is not smooth and has no minimum near zero-shot, so the
recipe is the method.

alpha is searched over {0, 0.1, 0.3, 0.5, 0.7, 0.9} on a validation set or inside the support set, as the
paper's grid has it, at one learning rate, on one half against the other and with a tenth of the epochs; 0.8,
the official program's, where there is nothing to hold out.
It does not depend on the classes, so it stays open-class, but nothing holds it near the pretrained model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import Task, UsageError
from prolip.core.arrays import unit_rows
from prolip.methods import search
from prolip.methods.base import Progress, Shape
from prolip.methods.bias import Bias, BiasMethod, Sum
from prolip.methods.fitted import AdapterClassifier, adapt

ALPHAS = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)
DEFAULT = 0.8


class Adapter(Bias):
    """s (normalize(z) - normalize(v)) T', in W1 and W2."""

    smooth: ClassVar[bool] = False

    def __init__(self, task: Task, alpha: float, reduction: int, seed: int) -> None:
        x, _ = task.rows()
        self.task, self.alpha = task, alpha
        self.v = task.linear(x)
        self.unit = unit_rows(self.v)
        self.text = task.text.rows.to(self.v)
        dim = self.v.shape[1]
        hidden = max(1, dim // reduction)
        generator = torch.Generator().manual_seed(seed)
        shapes = ((dim, hidden), (hidden, dim))
        # Uniform within 1 / sqrt(inputs): how linear layers begin in PyTorch.
        self.start = tuple(
            ((2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(shape[0])).to(self.v)
            for shape in shapes
        )

    def __call__(self, parameters: Sequence[Tensor], rows: Any) -> Tensor:
        """What mixing in the network changes."""
        down, up = parameters
        z = unit_rows(adapt(self.v[rows], down, up, self.alpha))
        return self.task.scale * (z - self.unit[rows]) @ self.text.T

    def fitted(self, parameters: Sequence[Tensor], info: dict[str, Any]) -> AdapterClassifier:
        """The network behind the head."""
        task = self.task
        down, up = (tensor.detach() for tensor in parameters)
        info = info | {"chosen": {"alpha": self.alpha}}
        return AdapterClassifier(task.linear, task.text, task.scale, down, up, self.alpha, info)


@dataclass(frozen=True)
class CLIPAdapter(BiasMethod):
    """A two-layer adapter.

    Parameters
    ----------
    alpha
        Share of the pretrained embedding: "auto" (searched), or a number in 0 .. 1.
    reduction
        D over the width of the middle layer.
    lr, epochs
        Of Adam.
    seed
        Of the starting weights and the folds.
    """

    name: ClassVar[str] = "clip_adapter"
    summary: ClassVar[str] = "CLIP-Adapter: a two-layer network mixed with the embedding"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "2 x D/4 x D"

    alpha: str | float = "auto"
    reduction: int = 4
    lr: float = 1e-3
    epochs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if self.alpha != "auto" and not (isinstance(self.alpha, (int, float)) and 0 <= self.alpha <= 1):
            raise UsageError(f'alpha must be "auto" or a number from 0 to 1, got {self.alpha!r}')

    def fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> AdapterClassifier:
        """Search alpha where that is asked for, then train."""
        started = time.perf_counter()
        _, method, told = self.settle(task, validation)
        term = method.bias(task, exact=False)
        trained = Sum(task, [term]).adam(lr=self.lr, epochs=self.epochs, progress=progress)
        return term.fitted(trained.parameters[0], self.report(task, started, **told, **trained.report()))

    def settle(self, task: Task, validation: Task | None) -> tuple[Task, CLIPAdapter, dict[str, Any]]:
        """Choose alpha."""
        if self.alpha != "auto":
            return task, self, {}
        parts = search.splits(task, validation, seed=self.seed, folds=2)[:1]
        if not parts:
            told = {"option": "alpha", "on": "nothing to hold out: the fixed default"}
            return task, replace(self, alpha=DEFAULT), {"search": told}
        rough = max(1, self.epochs // 10)
        place, scores = search.choose([replace(self, alpha=a, epochs=rough) for a in ALPHAS], parts)
        source = "validation" if validation is not None else "support"
        told = search.report("alpha", ALPHAS, scores, source)
        return task, replace(self, alpha=ALPHAS[place]), {"search": told}

    def bias(self, task: Task, exact: bool) -> Adapter:
        """The network as a term."""
        return Adapter(task, float(self.alpha), self.reduction, self.seed)

    def count(self, shape: Shape) -> int:
        """2 x D/4 x D."""
        return 2 * shape.dim * max(1, shape.dim // self.reduction)
