"""One memory budget for all the pictures that are being decoded in this process, on however many threads."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Lock

from prolip.core.errors import UsageError

VARIABLE = "PROLIP_IMAGE_MEMORY"
LIMIT = 800  # megabytes: with the towers a process stays below 1.5 GB, and 178 million pixels of RGBA fit


_LARGE = 64 * 10**6  # bytes, from which on it is worth milliseconds to give them back


def _trim() -> None:
    """Give memory that is free back to the system; glibc keeps it for the thread that it was for."""
    with suppress(OSError, AttributeError, TypeError):  # another C library; Windows
        ctypes.CDLL(None).malloc_trim(0)


class MemoryBudget:
    """Bytes that pictures may take together. Who needs more than is left waits its turn."""

    def __init__(self) -> None:
        self._held = 0
        self._turn, self._released = Lock(), Condition()

    @property
    def limit(self) -> int:
        """The bytes that pictures may take together: the environment's setting, or LIMIT."""
        named = os.environ.get(VARIABLE) or str(LIMIT)
        if not named.isdecimal() or not int(named):
            raise UsageError(f"{VARIABLE} is a number of megabytes, got {named!r}")
        return int(named) * 10**6

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Take so many bytes, at most the limit, for a while."""
        with self._turn, self._released:  # the turn is kept while waiting: small ones do not slip past
            self._released.wait_for(lambda: self._held == 0 or self._held + size <= self.limit)
            self._held += size
        try:
            yield
        finally:
            if size >= _LARGE:
                _trim()
            with self._released:
                self._held -= size
                self._released.notify_all()


PICTURES = MemoryBudget()
