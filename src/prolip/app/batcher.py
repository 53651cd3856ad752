"""Encode images of concurrent requests together.

Images are decoded in a few threads. Whoever has a decoded image and gets one of the slots for running the
tower encodes all images that are ready, a micro batch at a time, until its own is done. So a lone request
never waits for others, and eight requests share batches of four.
"""

import asyncio

import anyio.to_thread
import numpy as np

from prolip.app.images import read_pixels
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.io.environment import cores


class Batcher:
    """The queue of one encoder; it is used in one event loop."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._decoders = anyio.CapacityLimiter(max(2, cores()))
        self._slots = asyncio.Semaphore(encoder.max_parallel_batches)
        self._ready: list[tuple[Array, asyncio.Future[Array]]] = []  # pixels of an image, and its features

    async def encode(self, data: bytes) -> Array:
        """Return the features [width] of an uploaded image, or raise an `ImageError`."""
        preprocess = self.encoder.preprocess
        pixels = await anyio.to_thread.run_sync(read_pixels, data, preprocess, limiter=self._decoders)
        features: asyncio.Future[Array] = asyncio.get_running_loop().create_future()
        self._ready.append((pixels, features))
        async with self._slots:
            while self._ready and not features.done():
                await self._encode_batch()
        return await features

    async def _encode_batch(self) -> None:
        batch = self._ready[: self.encoder.micro_batch_size]
        del self._ready[: len(batch)]
        try:
            stacked = np.stack([pixels for pixels, _ in batch])
            rows = await anyio.to_thread.run_sync(self.encoder.encode, stacked)
        except Exception as error:
            for _, features in batch:
                features.set_exception(error)
            return
        for (_, features), row in zip(batch, rows, strict=True):
            if not features.done():  # its request may be cancelled
                features.set_result(row)
