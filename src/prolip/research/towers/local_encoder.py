"""An encoder of local features: an embedding for each region of an image."""

from collections.abc import Sequence

import numpy as np

from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.encoders.base import Encoder


class LocalEncoder(Encoder):
    """Local embeddings [regions, D] of each image, flattened to one row of features.

    The head is applied already: it is frozen wherever local features are used, and D is smaller than Do.
    With `pooled` the embedding of the whole image precedes them, as a further region.
    """

    def __init__(self, base: Encoder, pooled: bool = False) -> None:
        self.base, self.pooled, self.name = base, pooled, base.name
        self.head, self.preprocess = base.head, base.preprocess
        self.device, self.batch_size = base.device, base.batch_size

    @property
    def width(self) -> int:
        """The number of columns: regions x D."""
        size = self.preprocess.size
        return len(self.encode(np.zeros((1, size, size, 3), np.uint8))[0])

    def encode(self, pixels: Array) -> Array:
        """Compute local embeddings [B, regions x D] of uint8 pixels [B, S, S, 3]."""
        import torch

        towers = self.base.towers()
        assert towers.embed_local is not None  # the method requires it
        with torch.no_grad():
            normalised = self.preprocess.normalise(to_torch(pixels, self.device))
            local = towers.embed_local(normalised)
            if self.pooled:
                local = torch.cat([towers.embed_image(normalised)[:, None], local], dim=1)
        return to_numpy(local.float().flatten(1))

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Encode prompts with the base encoder."""
        return self.base.encode_text(prompts)
