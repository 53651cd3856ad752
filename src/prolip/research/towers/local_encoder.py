"""An encoder that looks at places: the embedding of each part of a picture, instead of one of the whole."""

from collections.abc import Sequence

import numpy as np

from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.core.errors import ModelError
from prolip.encoders.base import Encoder
from prolip.encoders.trainable_towers import LOCAL


class LocalEncoder(Encoder):
    """Local embeddings [places, D] of each picture, laid out as one row of features.

    The head is already in them: it is frozen wherever local features are used, and D is smaller than Do.
    With `pooled` the embedding of the whole picture stands before them, as a place of its own.
    """

    def __init__(self, base: Encoder, pooled: bool = False) -> None:
        towers = base.towers()
        if towers.embed_local is None:
            raise ModelError(f"{base.name} does not offer {LOCAL}")
        self._embed, self._pool = towers.embed_local, towers.embed_image if pooled else None
        self.base = base
        self.name, self.fingerprint = base.name, f"{base.fingerprint}-local{'-pooled' * pooled}"
        self.head, self.text_head, self.scale = base.head, base.text_head, base.scale
        self.preprocess, self.device, self.batch_size = base.preprocess, base.device, base.batch_size
        self.licence, self.revision = base.licence, base.revision
        size = base.preprocess.size
        self._width = self.encode(np.zeros((1, size, size, 3), np.uint8)).shape[1]

    @property
    def width(self) -> int:
        """Columns of a row: places x D."""
        return self._width

    def encode(self, pixels: Array) -> Array:
        """Local embeddings [B, places x D] of uint8 pixels [B, S, S, 3]."""
        import torch

        with torch.no_grad():
            normalised = self.preprocess.normalise(to_torch(pixels, self.device))
            local = self._embed(normalised)
            if self._pool is not None:
                local = torch.cat([self._pool(normalised)[:, None], local], dim=1)
        return to_numpy(local.float().flatten(1))

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """As the encoder itself does it."""
        return self.base.encode_text(prompts)

    def places(self, x: Array) -> Array:
        """Rows [.., places x D] as [.., places, D]."""
        return x.reshape(*x.shape[:-1], -1, self.head.dim)
