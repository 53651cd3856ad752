"""Full fine-tuning: every parameter of the image tower, its projection included.

38.32M of them for CLIP's ResNet-50, where ProLIP trains 2.10M. Adam at 1e-5 in batches of 16, 300 epochs, as
in the paper; it overfits few shots, and the paper shows how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.encoders.trainable_towers import Towers
from prolip.methods.common.fine_tuning import FineTuning

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
