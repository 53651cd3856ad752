"""Single pictures of many callers, encoded together.

While a batch is in the tower, what arrives waits; the next batch takes all of it, up to the encoder's batch
size. So a lone caller never waits for company, and eight callers share four or eight to a batch. What is made
of the features is made for the whole batch too: a head is read from memory once, not once a picture.
"""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import numpy as np

from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.encoders import Encoder


class Busy(ProlipError):  # noqa: N818 - reads as what it is where it is caught
    """More is asked for than can be answered soon."""


Finish = Callable[[Array], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class _Picture:
    """Pixels that wait, what to make of their features, and where the result goes."""

    pixels: Array
    finish: Finish
    result: Future[Any] = field(default_factory=Future)


class Batcher:
    """A thread that runs a tower; where more than `room` pictures wait, `submit` raises `Busy`."""

    def __init__(self, encoder: Encoder, room: int = 256) -> None:
        self.encoder = encoder
        self._waiting: queue.Queue[_Picture | None] = queue.Queue(room)
        self._thread = Thread(target=self._run, name="prolip-tower", daemon=True)
        self._thread.start()

    def submit(self, pixels: Array, finish: Finish) -> Future[Any]:
        """What `finish` makes of pixels uint8 [S, S, 3], some time from now.

        It gets the features [b, width] of pictures submitted with it, and returns a result for each.
        """
        picture = _Picture(pixels, finish)
        try:
            self._waiting.put_nowait(picture)
        except queue.Full:
            raise Busy("too many pictures are waiting: try again in a second") from None
        return picture.result

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

    def _encode(self, batch: list[_Picture]) -> None:
        live = [picture for picture in batch if picture.result.set_running_or_notify_cancel()]
        if not live:
            return
        try:
            features = self.encoder.encode(np.stack([picture.pixels for picture in live]))
        except Exception as error:
            for picture in live:
                picture.result.set_exception(error)
            return
        groups: dict[Finish, list[int]] = {}
        for i, picture in enumerate(live):
            groups.setdefault(picture.finish, []).append(i)
        for finish, places in groups.items():
            _finish(finish, features[places], [live[i].result for i in places])


def _finish(finish: Finish, features: Array, results: list[Future[Any]]) -> None:
    try:
        found = finish(features)
    except Exception as error:
        for result in results:
            result.set_exception(error)
        return
    for result, value in zip(results, found, strict=True):
        result.set_result(value)
