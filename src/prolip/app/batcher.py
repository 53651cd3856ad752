"""Batch single images of concurrent requests: decode them, encode a few at a time, postprocess the features.

Each thread does whatever is next: it decodes while fewer images than a micro batch are ready, or while the
tower runs as many batches as it can in parallel; otherwise it encodes what is ready. So a lone request never
waits for others, and eight requests share batches of four. Postprocessing is done per batch too: a head is
read from memory once, not once per image.

This is the only scheduler of a request: a batch of at most `micro_batch_size` images runs in the thread that
calls `encode`, not in the tower's own pool.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

import numpy as np

from prolip.app.images import decode
from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.io.environment import cores

Postprocess = Callable[[Array], Sequence[Any]]  # features [b, width] to a result for each image


class Busy(ProlipError):  # noqa: N818 - a response to a request, not a failure
    """The server has too much to do: the request can be repeated later."""


@dataclass(frozen=True, eq=False)
class _PendingImage:
    """The bytes of an image, how to postprocess its features, and the future of its result."""

    data: bytes
    postprocess: Postprocess
    result: Future[Any] = field(default_factory=Future)


class Batcher:
    """Threads that run an encoder; `submit` raises `Busy` while `max_pending` images wait for a result."""

    def __init__(self, encoder: Encoder, max_pending: int = 256) -> None:
        self.encoder, self._max_pending = encoder, max_pending
        self._changed = Condition()
        self._waiting: deque[_PendingImage] = deque()
        self._decoded: deque[tuple[_PendingImage, Array]] = deque()  # with their pixels
        self._running_batches, self._pending, self._open = 0, 0, True
        threads = max(2, cores())  # one decodes while the other encodes
        self._threads = [
            Thread(target=self._work, name="prolip-batcher", daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, data: bytes, postprocess: Postprocess) -> Future[Any]:
        """Encode an image; returns a future of what `postprocess` returns for it, or of a `ImageError`.

        `postprocess` gets the features [b, width] of images that were encoded together, and returns a result
        for each.
        """
        image = _PendingImage(data, postprocess)
        with self._changed:
            if not self._open:
                raise Busy("the server is stopping")
            in_memory = len(self._waiting) + len(self._decoded)  # including those of cancelled requests
            if max(self._pending, in_memory) >= self._max_pending:
                raise Busy("too many images are waiting: try again in a second")
            self._pending += 1
            self._waiting.append(image)
            self._changed.notify()
        image.result.add_done_callback(self._count_done)
        return image.result

    def close(self) -> None:
        """Stop when all submitted images are done."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _count_done(self, result: Future[Any]) -> None:
        with self._changed:
            self._pending -= 1

    def _work(self) -> None:
        while (step := self._next_step()) is not None:
            step()

    def _next_step(self) -> Callable[[], None] | None:
        """Wait for something to do; None when the batcher is closed and everything is done."""
        size = self.encoder.micro_batch_size
        with self._changed:
            while True:
                full = self._running_batches >= self.encoder.max_parallel_batches
                if self._waiting and (full or len(self._decoded) < size):
                    image = self._waiting.popleft()
                    return lambda: self._decode(image)
                if self._decoded and not full:
                    batch = [self._decoded.popleft() for _ in range(min(len(self._decoded), size))]
                    self._running_batches += 1
                    return lambda: self._encode(batch)
                if not (self._open or self._waiting or self._decoded):
                    self._changed.notify_all()  # so that the other threads see it too
                    return None
                self._changed.wait()

    def _decode(self, image: _PendingImage) -> None:
        if not image.result.set_running_or_notify_cancel():
            return
        try:
            with decode(image.data) as decoded:
                pixels = self.encoder.preprocess.centre(decoded)
        except BaseException as error:
            image.result.set_exception(error)
            return
        with self._changed:
            self._decoded.append((image, pixels))

    def _encode(self, batch: list[tuple[_PendingImage, Array]]) -> None:
        try:
            features = self.encoder.encode(np.stack([pixels for _, pixels in batch]))
        except BaseException as error:
            for image, _ in batch:
                image.result.set_exception(error)
            return
        finally:
            with self._changed:
                self._running_batches -= 1
                self._changed.notify()
        groups: dict[Postprocess, list[int]] = {}
        for i, (image, _) in enumerate(batch):
            groups.setdefault(image.postprocess, []).append(i)
        for postprocess, places in groups.items():
            _set_results(postprocess, features[places], [batch[i][0].result for i in places])


def _set_results(postprocess: Postprocess, features: Array, results: list[Future[Any]]) -> None:
    try:
        pairs = list(zip(results, postprocess(features), strict=True))
    except BaseException as error:
        for result in results:
            result.set_exception(error)
        return
    for result, value in pairs:
        result.set_result(value)
