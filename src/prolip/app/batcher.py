"""Single pictures of many callers, encoded together.

While a batch is in the tower, what arrives waits; the next batch takes all of it, up to the encoder's batch
size. So a lone caller never waits for company, and eight callers share four or eight to a batch.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future
from threading import Thread

import numpy as np

from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.encoders import Encoder


class Busy(ProlipError):  # noqa: N818 - reads as what it is where it is caught
    """More is asked for than can be answered soon."""


class Batcher:
    """A thread that runs a tower.

    Parameters
    ----------
    encoder
        The tower.
    room
        Pictures that may wait; beyond them `submit` raises `Busy`.
    """

    def __init__(self, encoder: Encoder, room: int = 256) -> None:
        self.encoder = encoder
        self._waiting: queue.Queue[tuple[Array, Future[Array]] | None] = queue.Queue(room)
        self._thread = Thread(target=self._run, name="prolip-tower", daemon=True)
        self._thread.start()

    def submit(self, pixels: Array) -> Future[Array]:
        """Features [width], some time from now, of pixels uint8 [S, S, 3]."""
        future: Future[Array] = Future()
        try:
            self._waiting.put_nowait((pixels, future))
        except queue.Full:
            raise Busy("too many pictures are waiting: try again in a second") from None
        return future

    def waiting(self) -> int:
        """Pictures that no batch has taken yet."""
        return self._waiting.qsize()

    def close(self) -> None:
        """Finish what waits, and stop."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            batch = [self._waiting.get()]
            while len(batch) < self.encoder.batch_size and batch[-1] is not None:
                try:
                    batch.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            going = batch[-1] is not None
            self._encode([one for one in batch if one is not None])

    def _encode(self, batch: list[tuple[Array, Future[Array]]]) -> None:
        live = [(pixels, future) for pixels, future in batch if future.set_running_or_notify_cancel()]
        if not live:
            return
        try:
            rows = self.encoder.encode(np.stack([pixels for pixels, _ in live]))
        except Exception as error:
            for _, future in live:
                future.set_exception(error)
            return
        for (_, future), row in zip(live, rows, strict=True):
            future.set_result(row)
