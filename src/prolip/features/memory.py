"""One memory budget for all images that are decoded in this process, on any number of threads."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Lock

from prolip.core.errors import UsageError

VARIABLE = "PROLIP_IMAGE_MEMORY"
LIMIT = 800  # megabytes: with the towers a process stays below 1.5 GB, and 178 million pixels of RGBA fit
_LARGE = 64 * 10**6  # bytes; returning less to the system is not worth the milliseconds it takes


def _trim() -> None:
    """Return free memory to the system; glibc keeps it for the thread that used it."""
    with suppress(OSError, AttributeError, TypeError):  # another C library; Windows
        ctypes.CDLL(None).malloc_trim(0)


class MemoryBudget:
    """Bytes that images may take together. A thread that needs more than is left waits."""

    def __init__(self) -> None:
        self._held = 0
        self._turn, self._released = Lock(), Condition()

    @property
    def limit(self) -> int:
        """The bytes that images may take together: the environment's setting, or LIMIT."""
        megabytes = os.environ.get(VARIABLE) or str(LIMIT)
        if not megabytes.isdecimal() or not int(megabytes):
            raise UsageError(f"{VARIABLE} must be a number of megabytes, got {megabytes!r}")
        return int(megabytes) * 10**6

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Reserve bytes, at most the limit, for the time of the context."""
        with self._turn, self._released:  # held while waiting, so that small images do not overtake
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


IMAGE_MEMORY = MemoryBudget()
