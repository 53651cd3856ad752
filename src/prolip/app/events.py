"""Server-sent events: an event that any thread publishes goes to every open page, in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

HEARTBEAT = 15.0  # seconds between comments on an idle stream, which a proxy would close


class Events:
    """The streams of all open pages."""

    def __init__(self) -> None:
        self._streams: dict[asyncio.Queue[str], asyncio.AbstractEventLoop] = {}

    def publish(self, event: dict[str, Any]) -> None:
        """Send an event; any thread may call this."""
        self._send(f"data: {json.dumps(event)}\n\n")

    def close(self) -> None:
        """End all streams; any thread or a signal handler may call this."""
        self._send("")

    def _send(self, text: str) -> None:
        for queue, loop in list(self._streams.items()):
            loop.call_soon_threadsafe(queue.put_nowait, text)

    async def stream(self) -> AsyncIterator[str]:
        """Yield the events from now on, for one page."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._streams[queue] = asyncio.get_running_loop()
        try:
            text = ": connected\n\n"
            while text:
                yield text
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT)
                except (TimeoutError, asyncio.TimeoutError):
                    text = ": heartbeat\n\n"
        finally:
            del self._streams[queue]
