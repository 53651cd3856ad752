"""Fine-tuning some parameters of the towers; a method is a choice of parameters.

    mean_i CE( s * normalize(f(image_i)) T', y_i )  +  lam * sum_p |p - p0|^2

f is the whole image tower with its projection. T are the class texts: frozen, or recomputed at each step
where parameters of the text tower are trained. Every epoch shows each image once, in a new random crop; a
last batch that is not full is used too, as in the authors' programs. The statistics of batch norms do not
change.

    full          every parameter of the image tower, its projection included: 38.32M of them for CLIP's
                  ResNet-50, where ProLIP trains 2.10M. It overfits few shots, as the paper shows
    last_layer    the attention pooling of CLIP's ResNets, or a transformer's last block: 14.79M parameters
                  for ResNet-50, as the pooling holds the projection that ProLIP tunes, and six times as many
                  others. On `offline`, the last convolution with its norm, and the projection
    norm_tuning   scale and shift of every norm, nothing else: batch norms of a convolutional image tower
                  (53,248 parameters for CLIP's ResNet-50), or layer norms of both towers (65,536 for
                  ViT-B/16), the counts of the paper's table, 0.05M and 0.07M

Adam at 1e-5 in batches of 16, 300 epochs, as in the paper. It gives no learning rate for norm_tuning; 1e-3
and 50 epochs are ours.

Differences from the authors' program for full and last-layer fine-tuning: there the image embeddings are not
normalised in the loss (nor, on ten of the datasets, at test time), so that it trains and measures something
else than CLIP's cosine; and its penalty, of last-layer tuning, is computed on detached tensors and has no
gradient. Here embeddings are normalised, and the penalty works; as the paper describes none, it is off unless
`lam` is given.

The trained copy of the base model has its own fingerprint, so that its features are never confused with
those of the base model.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from prolip import solvers
from prolip.core import Task, Text
from prolip.core.arrays import to_torch
from prolip.core.capabilities import Capability
from prolip.encoders.trainable_towers import Towers
from prolip.io.files import sha256_tensors
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.tower_method import TowerFitted, TowerMethod
from prolip.solvers.adam import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class FineTuning(TowerMethod):
    """Options of fine-tuning.

    Parameters
    ----------
    lr, epochs, batch_size
        Learning rate (falling along a cosine), epochs and batch size of Adam.
    lam
        Weight of the penalty on the distance from the pretrained parameters: "auto" is none, as in the paper;
        "1/N", "1/N^2" or a number.
    view_area
        Minimum share of an image that a random crop shows.
    seed
        Random seed for batches and crops.
    """

    lr: float = 1e-5
    epochs: int = 300
    batch_size: int = 16
    lam: str | float = "auto"
    view_area: float = 0.5
    seed: int = 0

    open_class: ClassVar[bool] = True
    needs: ClassVar[Capability] = Capability.IMAGE_TOWER
    reads_images: ClassVar[bool] = True

    def __post_init__(self) -> None:
        solvers.check_lam(self.lam)

    @abstractmethod
    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Return the parameters to train, by name."""

    def solve(self, task: Task, context: FitContext) -> TowerFitted:
        """Train a copy of the towers; the encoder itself does not change."""
        task, towers = self.open(task, copy=True)

        import torch
        from torch.nn.functional import normalize

        encoder, trained = task.encoder, self.choose(towers)
        trains_text = any(not name.startswith(towers.image_prefixes) for name in trained)
        fixed = to_torch(task.text.rows, encoder.device)
        tokens = encoder.tokens([prompt.format(name) for prompt in task.templates for name in task.names])
        lam = 0.0 if self.lam == "auto" else solvers.lam_value(self.lam, task)
        start = {name: p.requires_grad_(True).detach().clone() for name, p in trained.items()}

        def rows() -> Tensor:
            if not trains_text:
                return fixed
            prompts = normalize(towers.embed_text(tokens).float(), dim=1).unflatten(0, (-1, len(fixed)))
            return normalize(prompts.mean(dim=0), dim=1)

        def penalty() -> Tensor:
            moved = [(trained[name] - before).square().sum() for name, before in start.items()]
            return lam * torch.stack(moved).sum()

        if encoder.device == "cpu":
            towers.model.to(memory_format=torch.channels_last)  # 1.5 times as fast for convolutions
        progress = context.progress
        figures = self.train_on_images(task, towers, trained, rows, progress, penalty if lam else None)
        towers.model.to(memory_format=torch.contiguous_format)
        tuned = encoder.with_model(towers.model, sha256_tensors(trained.items()))

        def fitted(text: Text) -> TowerFitted:
            if trains_text and text.classes is not None:
                text = tuned.text(text.classes, task.templates)
            return TowerFitted(tuned.head, text, task.scale, fitted, tuned)

        return replace(fitted(task.text), report=figures)

    def steps(self, task: Task) -> Steps:
        """Return Adam with the authors' eps, and a rate that falls at each step."""
        return Steps(self.lr, self.epochs, batch=self.batch_size, seed=self.seed)


@register
@dataclass(frozen=True)
class FullFineTuning(FineTuning):
    """Fine-tune the whole image tower."""

    name: ClassVar[str] = "full"
    summary: ClassVar[str] = "fine-tune the whole image tower"
    size: ClassVar[str] = "the image tower"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Return every parameter of the image tower."""
        return towers.parameters(towers.image_prefixes)


@register
@dataclass(frozen=True)
class LastLayer(FineTuning):
    """Fine-tune the image tower's last layer."""

    name: ClassVar[str] = "last_layer"
    summary: ClassVar[str] = "fine-tune the attention pooling, or the last block of the image tower"
    size: ClassVar[str] = "the last layer"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Return the last layer, as the encoder names it."""
        return towers.parameters(towers.last_layer_prefixes)


@register
@dataclass(frozen=True)
class NormTuning(FineTuning):
    """Fine-tune the affine parameters of normalisation layers."""

    lr: float = 1e-3
    epochs: int = 50
    batch_size: int = 32

    name: ClassVar[str] = "norm_tuning"
    summary: ClassVar[str] = "fine-tune scale and shift of the batch norms, or of the layer norms"
    size: ClassVar[str] = "2 x the width of each norm"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Return the norms of the image tower, or of both towers."""
        return towers.norms()
