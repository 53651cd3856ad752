"""Fine-tuning some parameters of the towers: one loop, and a method is the choice of parameters.

    mean_i CE( s * normalize(f(image_i)) T', y_i )  +  lam * sum_p |p - p0|^2

f is the whole image tower with its projection. T are the class texts, frozen, or made anew at each step where
parameters of the text tower are trained. Every epoch shows each image once, in a new random crop; a last
batch that is not full is kept, as in the authors' programs. Batch norms keep their statistics. With a
validation set the best epoch is kept.

Differences from the authors' program for full and last-layer fine-tuning: there the image embeddings are not
normalised in the loss (nor, on ten of the datasets, at test time), so that it trains and measures something
else than CLIP's cosine; and its pull to the pretrained weights, of last-layer tuning, is computed on detached
tensors and has no gradient. Here embeddings are normalised, and the pull works; as the paper describes
none, it is off unless `lam` is given.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip import solvers
from prolip.core import Task
from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.encoders import Encoder
from prolip.encoders.trainable_towers import IMAGE, Tokens, Towers
from prolip.io.files import sha256_tensors
from prolip.methods.common.method import Progress
from prolip.research.towers.tower_method import Batches, TowerMethod, TowerTask
from prolip.research.towers.tuned_towers import Tuned

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.research.towers.training import Batch


@dataclass(frozen=True)
class FineTuning(TowerMethod):
    """Options of fine-tuning.

    Parameters
    ----------
    lr, epochs, batch_size
        Of Adam, along a cosine.
    lam
        Weight of the pull to the pretrained parameters: "auto" is none, as in the paper; "1/N", "1/N^2" or a
        number.
    view_area
        The least share of a picture that a random crop shows.
    recompute
        Keep less in memory on the way forth and compute it again on the way back; for large towers.
    checkpoint
        A folder that an interrupted run goes on from.
    """

    lr: float = 1e-5
    epochs: int = 300
    batch_size: int = 16
    lam: str | float = "auto"
    view_area: float = 0.5
    recompute: bool = False
    seed: int = 0
    checkpoint: str | None = None

    open_class: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = (IMAGE,)
    reads_images: ClassVar[bool] = True

    def __post_init__(self) -> None:
        solvers.check_lam(self.lam)

    @abstractmethod
    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """The parameters to train, by name."""

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Tuned:
        """Train a copy of the towers; the encoder itself stays as it was."""
        started = self.begin(task, validation)
        task, encoder, towers = self.open(task, copy=True)
        trained = self.choose(towers)
        for parameter in trained.values():
            parameter.requires_grad_(True)
        figures = self.run(task, encoder, towers, trained, progress, validation)
        changed = {name: np.array(to_numpy(parameter), order="C") for name, parameter in trained.items()}
        fitted = self.tuned(task, encoder, towers, changed)
        if trains_text(towers, trained) and task.text.classes is not None:
            text = fitted.encoder_for(encoder).text(task.text.classes, task.templates)
            fitted = replace(fitted, text=text)
        return self.finish(fitted, task, started, **figures)

    def tuned(self, task: TowerTask, encoder: Encoder, towers: Towers, changed: dict[str, Array]) -> Tuned:
        """The towers as they are now, in the encoder's place."""
        adapted = encoder.with_model(towers.model, sha256_tensors(changed.items()))
        return Tuned(task.text, task.scale, changed, encoder=adapted)

    def run(
        self,
        task: TowerTask,
        encoder: Encoder,
        towers: Towers,
        trained: dict[str, nn.Parameter],
        progress: Progress | None,
        validation: Task | None = None,
    ) -> dict[str, Any]:
        """Train the chosen parameters; what comes back are figures of the run."""
        import torch
        from torch.nn.functional import cross_entropy, normalize

        device = encoder.device
        labels, fixed = to_torch(task.y, device), to_torch(task.text.rows, device)
        tokens = _tokens(task, encoder) if trains_text(towers, trained) else None
        lam = 0.0 if self.lam == "auto" else solvers.lam_value(self.lam, task)
        start = {name: p.detach().clone() for name, p in trained.items()} if lam else {}
        preprocess = replace(encoder.preprocess, view_area=self.view_area)
        if device == "cpu":
            towers.model.to(memory_format=torch.channels_last)  # half again as fast for convolutions
        with Batches(task.pictures, preprocess, self.seed) as batches:

            def logits(pixels: Array) -> Tensor:
                seen = towers.embed_image(preprocess.normalise(to_torch(pixels, device)))
                rows = fixed if tokens is None else class_rows(towers, tokens, len(fixed))
                return task.scale * normalize(seen.float(), dim=1) @ rows.T

            def loss(batch: Batch) -> Tensor:
                value = cross_entropy(logits(batches.of(batch)), labels[batch.images])
                for name, before in start.items():
                    value = value + lam * (trained[name] - before).square().sum()
                return value

            def asked(pixels: Array) -> Tensor:
                with without_dropout(towers.model):
                    return logits(pixels)

            judge = self.judge_pictures(validation, preprocess, asked)
            figures = self.train(task, towers, trained, loss, progress, judge=judge)
        towers.model.to(memory_format=torch.contiguous_format)
        return figures

    def schedule(self, task: Task) -> dict[str, Any]:
        """Adam with the authors' eps, the rate falling at each step."""
        return {"optimizer": "adam", "eps": 1e-4, "drop_last": False, "per_step": True}

    def parameters(self, task: Task) -> int:
        """Those that are trained."""
        _, _, towers = self.open(task)
        return sum(parameter.numel() for parameter in self.choose(towers).values())


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """The model as it predicts, while it is being trained."""
    active = [module for module in model.modules() if module.training and not list(module.children())]
    for module in active:
        module.eval()
    try:
        yield
    finally:
        for module in active:
            module.train()


def trains_text(towers: Towers, trained: dict[str, nn.Parameter]) -> bool:
    """Whether any parameter is outside the image tower."""
    return any(not name.startswith(towers.image_prefixes) for name in trained)


def class_rows(towers: Towers, tokens: Tokens, classes: int) -> Tensor:
    """Unit class rows [K, D] of prompts in the order of templates, then classes."""
    from torch.nn.functional import normalize

    each = normalize(towers.embed_text(tokens).float(), dim=1).unflatten(0, (-1, classes))
    return normalize(each.mean(dim=0), dim=1)


def _tokens(task: TowerTask, encoder: Encoder) -> Tokens:
    assert task.text.classes is not None
    return encoder.tokens([t.format(name) for t in task.templates for name in task.text.classes])
