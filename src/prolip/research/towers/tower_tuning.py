"""Fine-tuning inside the towers, with all their other parameters as they were.

    full          every parameter of the image tower, its projection included: 38.32M of them for CLIP's
                  ResNet-50, where ProLIP trains 2.10M. It overfits few shots, and the paper shows how
    last_layer    the attention pooling of CLIP's ResNets, or a transformer's last block: 14.79M parameters
                  for ResNet-50, as the pooling holds the projection that ProLIP tunes, and six times as much
                  besides. On `offline`, the last convolution with its norm, and the projection
    norm_tuning   scale and shift of every norm, nothing else: batch norms of a convolutional image tower
                  (53,248 parameters for CLIP's ResNet-50), or layer norms of both towers (65,536 for
                  ViT-B/16), the counts of the paper's table, 0.05M and 0.07M. The statistics of batch norms
                  stay as they are

Adam at 1e-5 in batches of 16, 300 epochs, as in the paper. It gives no learning rate for norm_tuning; 1e-3
and 50 epochs are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.encoders.trainable_towers import Towers
from prolip.research.towers.fine_tuning import FineTuning

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class FullFineTuning(FineTuning):
    """All of the image tower."""

    name: ClassVar[str] = "full"
    summary: ClassVar[str] = "fine-tune the whole image tower"
    size: ClassVar[str] = "the image tower"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Everything in the image tower."""
        return towers.parameters(towers.image_prefixes)


@dataclass(frozen=True)
class LastLayer(FineTuning):
    """The image tower's last layer."""

    name: ClassVar[str] = "last_layer"
    summary: ClassVar[str] = "fine-tune the attention pooling, or the last block of the image tower"
    size: ClassVar[str] = "the last layer"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """The last layer, as the encoder names it."""
        return towers.parameters(towers.last_layer_prefixes)


@dataclass(frozen=True)
class NormTuning(FineTuning):
    """Affine parameters of normalisation layers."""

    lr: float = 1e-3
    epochs: int = 50
    batch_size: int = 32

    name: ClassVar[str] = "norm_tuning"
    summary: ClassVar[str] = "fine-tune scale and shift of the batch norms, or of the layer norms"
    size: ClassVar[str] = "2 x the width of each norm"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """Norms of the image tower, or of both."""
        return towers.norms()
