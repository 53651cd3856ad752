"""Blocking work of a server, in bounded amounts: `Busy` is raised when too much waits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from prolip.app.batcher import Busy
from prolip.io.environment import cores

MAX_PENDING = 64  # calls that run or wait
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
