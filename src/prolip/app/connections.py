"""Connections on which nothing moves are closed, so that they take nothing from anyone else.

A connection is idle while no request of it is being answered: before its first request, between two, and
while the head of a request is still incomplete. Idle ones are closed after a while, and the oldest of them at
once where there are many. So are those that do not read their answer. Bodies that stall are the guard's to
end (`guard.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_SECONDS = 30.0  # that a connection may take to send the head of its next request
WRITE_SECONDS = 60.0  # that a megabyte of an answer may take to be read
IDLE_CONNECTIONS = 256  # beyond which the oldest of them is closed
HEAD_LIMIT = 1 << 18  # bytes; browsers send the cookies of every program on this machine


class Connection(H11Protocol):
    """A connection of uvicorn's, with a deadline for each head of a request."""

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin; the oldest idle connection is closed where there are too many."""
        super().connection_made(transport)
        self._await_request()
        idle = [each for each in self.connections if isinstance(each, Connection) and each.is_idle]
        if len(idle) > IDLE_CONNECTIONS:
            min(idle, key=lambda each: each.closes_at).close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, with all deadlines."""
        self._cancel_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; it has no deadline any more once its head is complete."""
        super().data_received(data)
        if self._is_answering:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, or begin with it where it is there already."""
        super().on_response_complete()
        if not (self._is_answering or self.transport.is_closing()):
            self._await_request()

    def pause_writing(self) -> None:
        """Wait until the caller has read more of its answer, for a while."""
        super().pause_writing()
        self._write_deadline = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with an answer."""
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
        super().resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether it is closed unless a request comes."""
        return self._deadline is not None

    @property
    def closes_at(self) -> float:
        """When it is closed, in seconds of the loop's clock."""
        return self._deadline.when() if self._deadline is not None else float("inf")

    def close(self) -> None:
        """Close it at once; nothing is being answered."""
        self._cancel_deadline()
        if self.transport.get_write_buffer_size():  # of an answer that nobody reads
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(IDLE_SECONDS, self.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
