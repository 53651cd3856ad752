"""Server-sent events: an event that any thread publishes goes to every open page, in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

HEARTBEAT = 15.0  # seconds between comments on an idle stream
MAX_BACKLOG = 256  # events; a page that falls behind by more is disconnected, and reloads everything


class Events:
    """The streams of all open pages."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: set[asyncio.Queue[str | None]] = set()

    def attach(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()

    def publish(self, event: dict[str, Any]) -> None:
        """Send an event; any thread may call this."""
        self._send_soon(f"data: {json.dumps(event)}\n\n")

    def close(self) -> None:
        """End all streams; any thread or a signal handler may call this."""
        self._send_soon(None)

    def _send_soon(self, line: str | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, line)

    def _send(self, line: str | None) -> None:
        for queue in list(self._queues):
            ends = line is None or queue.qsize() >= MAX_BACKLOG
            if ends:
                self._queues.discard(queue)
            queue.put_nowait(None if ends else line)

    async def stream(self) -> AsyncIterator[str]:
        """Yield the events from now on, for one page."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield ": connected\n\n"
            while True:
                try:
                    line = await asyncio.wait_for(queue.get(), HEARTBEAT)
                except (TimeoutError, asyncio.TimeoutError):
                    line = ": heartbeat\n\n"
                if line is None:
                    return
                yield line
        finally:
            self._queues.discard(queue)
