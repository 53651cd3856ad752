"""Blocking work of a server, in bounded amounts: `Busy` is raised when too much waits."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from prolip.app.batcher import Busy
from prolip.app.images import LARGE_PIXELS, PIXEL_LIMIT, LargeImage
from prolip.io.environment import cores

MAX_PENDING = 64  # calls that run or wait
MAX_LARGE_PENDING = 16  # large images that wait
T = TypeVar("T")


class WorkerPool:
    """Threads for work that would block the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max(2, cores()), thread_name_prefix="prolip-worker")
        self._pending = 0

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work` in a thread and return its result."""
        if self._pending >= MAX_PENDING:
            raise Busy("the server has too much to do: try again in a second")
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Stop when the work under way is done."""
        self._threads.shutdown()


class LargeImageQueue:
    """Large images one at a time, so that they never occupy all threads, or several times the memory."""

    def __init__(self) -> None:
        self._lock, self._pending = asyncio.Lock(), 0

    async def run(self, work: Callable[[int], Awaitable[T]]) -> T:
        """Return the result of `work(max_pixels)`; it is called again, alone, if the image is a large one."""
        try:
            return await work(LARGE_PIXELS)
        except LargeImage:
            if self._pending >= MAX_LARGE_PENDING:
                raise Busy("too many large images are waiting: try again in a second") from None
        self._pending += 1
        try:
            async with self._lock:
                return await work(PIXEL_LIMIT)
        finally:
            self._pending -= 1
