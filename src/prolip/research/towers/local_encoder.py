"""An encoder of local features: an embedding for each region of an image."""

from collections.abc import Sequence

import numpy as np

from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.core.errors import ModelError
from prolip.encoders.base import Encoder


class LocalEncoder(Encoder):
    """Local embeddings [regions, D] of each image, flattened to one row of features.

    The head is applied already: it is frozen wherever local features are used, and D is smaller than Do.
    With `pooled` the embedding of the whole image precedes them, as a further region.
    """

    def __init__(self, base: Encoder, pooled: bool = False) -> None:
        towers = base.towers()
        if towers.embed_local is None:
            raise ModelError(f"{base.name} does not offer local features")
        self._embed, self._pool = towers.embed_local, towers.embed_image if pooled else None
        self.base = base
        self.name, self.fingerprint = base.name, f"{base.fingerprint}-local{'-pooled' * pooled}"
        self.head, self.text_head, self.scale = base.head, base.text_head, base.scale
        self.preprocess, self.device, self.batch_size = base.preprocess, base.device, base.batch_size
        self.licence, self.revision = base.licence, base.revision
        size = base.preprocess.size
        self._width: int = self.encode(np.zeros((1, size, size, 3), np.uint8)).shape[1]

    @property
    def width(self) -> int:
        """The number of columns: regions x D."""
        return self._width

    def encode(self, pixels: Array) -> Array:
        """Compute local embeddings [B, regions x D] of uint8 pixels [B, S, S, 3]."""
        import torch

        with torch.no_grad():
            normalised = self.preprocess.normalise(to_torch(pixels, self.device))
            local = self._embed(normalised)
            if self._pool is not None:
                local = torch.cat([self._pool(normalised)[:, None], local], dim=1)
        return to_numpy(local.float().flatten(1))

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Encode prompts with the base encoder."""
        return self.base.encode_text(prompts)

    def unflatten(self, x: Array) -> Array:
        """Reshape rows [.., regions x D] to [.., regions, D]."""
        return x.reshape(*x.shape[:-1], -1, self.head.dim)
