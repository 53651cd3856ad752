"""Serve an ASGI application over HTTP with uvicorn: the socket, idle connections, a clean shutdown."""

from __future__ import annotations

import asyncio
import copy
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
HEADER_LIMIT = 1 << 18  # bytes; browsers send the cookies of every program on this machine


class Connection(H11Protocol):
    """A connection of uvicorn's that is closed if the headers of its next request do not arrive in time.

    uvicorn itself stops waiting for that with the first byte. Bodies that stall are the guard's (`guard.py`).
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._cancel_deadline()
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

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(IDLE_SECONDS, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


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
        raise ProlipError(
            f"cannot listen at {host}, port {port}: {reason}; choose another port, such as {port + 1}"
        ) from error
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
