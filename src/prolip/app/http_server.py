"""Serve an ASGI application over HTTP with uvicorn: the socket, idle connections, a clean shutdown."""

from __future__ import annotations

import asyncio
import copy
import errno
import html
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from prolip.core import ProlipError

SHUTDOWN_SECONDS = 5  # in which responses under way may be completed
IDLE_SECONDS = 30.0  # in which a connection must send the headers of its next request
WRITE_SECONDS = 60.0  # in which a client must read a megabyte of its response
MAX_IDLE_CONNECTIONS = 256  # the oldest one is closed when there are more
HEADER_LIMIT = 1 << 18  # bytes; browsers send the cookies of every program on this machine


class Connection(H11Protocol):
    """A connection of uvicorn's that is closed while it only occupies resources.

    It is idle before its first request, between two requests, and while the headers of a request are
    incomplete. Idle connections are closed after a while, and the oldest at once if there are too many. So
    are connections whose client does not read its response. Bodies that stall are the guard's (`guard.py`).
    """

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept the connection; the oldest idle one is closed if there are too many."""
        super().connection_made(transport)
        self._await_request()
        idle = [each for each in self.connections if isinstance(each, Connection) and each.is_idle]
        if len(idle) > MAX_IDLE_CONNECTIONS:
            min(idle, key=lambda each: each.closes_at).close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all deadlines."""
        self._cancel_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request; the deadline ends when its headers are complete."""
        super().data_received(data)
        if self._is_responding:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        if not (self._is_responding or self.transport.is_closing()):
            self._await_request()

    def pause_writing(self) -> None:
        """Wait for the client to read its response, for a while."""
        super().pause_writing()
        self._write_deadline = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue with a response."""
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
        super().resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether it is closed unless a request arrives."""
        return self._deadline is not None

    @property
    def closes_at(self) -> float:
        """When it is closed, in seconds of the event loop's clock."""
        return self._deadline.when() if self._deadline is not None else float("inf")

    def close(self) -> None:
        """Close an idle connection."""
        self._cancel_deadline()
        if self.transport.get_write_buffer_size():  # of a response that nobody reads
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(IDLE_SECONDS, self.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 means any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only if the protocol is given, asyncio sends small responses at once; otherwise they wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Windows lets two programs share a port under SO_REUSEADDR.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        advice = f"; choose another port, such as {port + 1}" if taken and port < 65535 else ""
        raise ProlipError(f"cannot listen at {host}, port {port}: {reason}{advice}") from error
    return bound


def local_url(host: str, port: int) -> str:
    """Return the address to open in a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@contextmanager
def redirect_file(link: str, folder: Path) -> Iterator[Path]:
    """Write a page that redirects to a link and that only this user can read; remove it at the end.

    The link has the token in it, and every user of the machine can see what a browser is started with.
    """
    path, url = folder / "open-page.html", html.escape(link)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><title>prolip</title>'
            f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open the page</a>\n'
        )
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


class _UvicornServer(uvicorn.Server):
    """Calls back when it has started and when it stops; a second signal changes nothing."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_start, self._on_stop = on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stop()
        if not self.should_exit:
            super().handle_exit(sig, frame)


def _is_news(record: logging.LogRecord) -> bool:
    """Filter what is logged of responses that take longer than a shutdown: they are cancelled."""
    cancelled = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and "timeout graceful shutdown" not in record.getMessage()


def config(app: Any, access_log: bool = False) -> uvicorn.Config:
    """Return uvicorn's configuration for an application; an access log has a line for each request."""
    logs = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    logs["formatters"]["access"]["fmt"] = '%(asctime)s %(client_addr)s "%(request_line)s" %(status_code)s'
    logs["loggers"]["uvicorn.error"]["level"] = "WARNING"
    return uvicorn.Config(
        app,
        log_config=logs,
        access_log=access_log,
        server_header=False,
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=HEADER_LIMIT,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        timeout_keep_alive=int(IDLE_SECONDS),
        lifespan="on",
    )


def run(
    app: Any,
    bound: socket.socket,
    on_start: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
    access_log: bool = False,
) -> None:
    """Serve until a signal; responses under way are completed first, if they do not take long.

    `on_start` is called when requests are accepted, `on_stop` when the signal arrives.
    """
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    try:
        _UvicornServer(config(app, access_log), on_start, on_stop).run([bound])
    except KeyboardInterrupt:  # raised again by uvicorn once everything is closed
        return
