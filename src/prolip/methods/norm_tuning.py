"""Normalisation tuning: scale and shift of every norm, nothing else.

Batch norms of a convolutional image tower (53,248 parameters for CLIP's ResNet-50), or layer norms of both
towers (65,536 for ViT-B/16): the counts of the paper's table, 0.05M and 0.07M. The statistics of batch norms
stay as they are. The paper gives no learning rate for it; 1e-3 and 50 epochs are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.encoders.trainable_towers import Towers
from prolip.methods.common.fine_tuning import FineTuning

if TYPE_CHECKING:
    from torch import nn


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
