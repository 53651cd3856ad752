"""Last-layer fine-tuning: the attention pooling of CLIP's ResNets, or a transformer's last block.

14.79M parameters for ResNet-50: the pooling holds the projection that ProLIP tunes, and six times as much
besides. On `offline`, the last convolution with its norm, and the projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.encoders.trainable_towers import Towers
from prolip.methods.common.fine_tuning import FineTuning

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LastLayer(FineTuning):
    """The image tower's last layer."""

    name: ClassVar[str] = "last_layer"
    summary: ClassVar[str] = "fine-tune the attention pooling, or the last block of the image tower"
    size: ClassVar[str] = "the last layer"

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """The last layer, as the encoder names it."""
        return towers.parameters(towers.last_layer_prefixes)
