"""Single pictures of many callers, decoded and encoded a few at a time.

Each thread does whatever is next: it decodes while too few pictures are ready for the tower, or while the
tower has all that it can take side by side; else it takes what is ready through the tower. So a lone caller
never waits for company, eight callers share four to a run, and a picture is answered by the thread that ran
it. What is made of the features is made for the whole run too: a head is read from memory once, not once a
picture.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

import numpy as np

from prolip.app.pictures import PIXEL_LIMIT, decode
from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.io.environment import cores


class Busy(ProlipError):  # noqa: N818 - reads as what it is where it is caught
    """More is asked for than can be answered soon."""


Finish = Callable[[Array], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class _Picture:
    """The bytes of a picture that waits, what to make of its features, and where the result goes."""

    data: bytes
    finish: Finish
    max_pixels: int
    result: Future[Any] = field(default_factory=Future)


class Batcher:
    """Threads that run a tower; where `room` pictures are not answered yet, `submit` raises `Busy`."""

    def __init__(self, encoder: Encoder, room: int = 256) -> None:
        self.encoder, self._room = encoder, room
        self._change = Condition()
        self._waiting: deque[_Picture] = deque()
        self._ready: deque[tuple[_Picture, Array]] = deque()  # with their pixels
        self._runs, self._unanswered, self._open = 0, 0, True
        threads = max(2, cores())  # one to decode while the other is in the tower
        self._threads = [Thread(target=self._work, name="prolip-tower", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, data: bytes, finish: Finish, max_pixels: int = PIXEL_LIMIT) -> Future[Any]:
        """What `finish` makes of a picture's features, or a `BadImage`, some time from now.

        It gets the features [b, width] of pictures that ran together, and returns a result for each. A
        picture of more than `max_pixels` is a `LargePicture`.
        """
        picture = _Picture(data, finish, max_pixels)
        with self._change:
            if not self._open:
                raise Busy("the server is stopping")
            held = len(self._waiting) + len(self._ready)  # of callers who left, too
            if max(self._unanswered, held) >= self._room:
                raise Busy("too many pictures are waiting: try again in a second")
            self._unanswered += 1
            self._waiting.append(picture)
            self._change.notify()
        picture.result.add_done_callback(self._answered)
        return picture.result

    def close(self) -> None:
        """Finish what waits, and stop."""
        with self._change:
            self._open = False
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def _answered(self, result: Future[Any]) -> None:
        with self._change:
            self._unanswered -= 1

    def _work(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        """What a thread is to do: wait for it; None when all is done."""
        with self._change:
            while True:
                full = self._runs >= self.encoder.runs
                if self._waiting and (full or len(self._ready) < self.encoder.run_size):
                    picture = self._waiting.popleft()
                    return lambda: self._decode(picture)
                if self._ready and not full:
                    count = min(len(self._ready), self.encoder.run_size)
                    batch = [self._ready.popleft() for _ in range(count)]
                    self._runs += 1
                    return lambda: self._run(batch)
                if not (self._open or self._waiting or self._ready):
                    self._change.notify_all()  # who still waits is to see it too
                    return None
                self._change.wait()

    def _decode(self, picture: _Picture) -> None:
        if not picture.result.set_running_or_notify_cancel():
            return
        try:
            preprocess = self.encoder.preprocess
            pixels = preprocess.centre(decode(picture.data, preprocess.shrink, picture.max_pixels))
        except BaseException as error:
            picture.result.set_exception(error)
            return
        with self._change:
            self._ready.append((picture, pixels))

    def _run(self, batch: list[tuple[_Picture, Array]]) -> None:
        try:
            features = self.encoder.encode(np.stack([pixels for _, pixels in batch]))
        except BaseException as error:
            for picture, _ in batch:
                picture.result.set_exception(error)
            return
        finally:
            with self._change:
                self._runs -= 1
                self._change.notify()
        groups: dict[Finish, list[int]] = {}
        for i, (picture, _) in enumerate(batch):
            groups.setdefault(picture.finish, []).append(i)
        for finish, places in groups.items():
            _finish(finish, features[places], [batch[i][0].result for i in places])


def _finish(finish: Finish, features: Array, results: list[Future[Any]]) -> None:
    try:
        pairs = list(zip(results, finish(features), strict=True))
    except BaseException as error:
        for result in results:
            result.set_exception(error)
        return
    for result, value in pairs:
        result.set_result(value)
