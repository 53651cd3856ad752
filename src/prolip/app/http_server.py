"""Serve an ASGI application with uvicorn: the socket, the address, a clean shutdown."""

from __future__ import annotations

import copy
import errno
import html
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from prolip.core import ProlipError

MAX_CONNECTIONS = 256  # more get 503
IDLE_SECONDS = 30  # after which a connection without a further request is closed
SHUTDOWN_SECONDS = 5  # in which responses under way may be completed
HEADER_LIMIT = 1 << 18  # bytes; browsers send the cookies of every program on this machine
PORTS_TRIED = 20  # if the first ones are in use


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to this port, or to the next free one; 0 is any."""
    for attempt in range(port, min(port + PORTS_TRIED, 65536) if port else 1):
        # Only if the protocol is given, asyncio sends small responses at once; otherwise they wait 40 ms.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Windows lets two programs share a port under SO_REUSEADDR.
            option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
            bound.bind((host.strip("[]"), attempt))
            return bound
        except OSError as error:
            bound.close()
            failure = error
            if error.errno != errno.EADDRINUSE:
                break
    reason = failure.strerror or str(failure)
    raise ProlipError(f"cannot listen at {host}, port {port}: {reason}") from failure


def local_url(host: str, port: int) -> str:
    """Return the address to open in a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@contextmanager
def redirect_file(link: str, path: Path) -> Iterator[None]:
    """Write a page that redirects to a link and that only this user can read; remove it at the end.

    The link has the token in it, and every user of the machine can see what a browser is started with.
    """
    url = html.escape(link)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><title>prolip</title>'
            f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open the page</a>\n'
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def redirect_target(path: Path) -> str:
    """Return the link of a page that `redirect_file` wrote."""
    link = re.search(r'href="([^"]*)"', path.read_text("utf-8"))
    return html.unescape(link[1]) if link else ""


class _Server(uvicorn.Server):
    """Calls back when it accepts requests, and at the first signal; further ones change nothing."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_start, self._on_stop = on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self._on_stop()
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # not that requests are cancelled
            super().handle_exit(sig, frame)


def config(app: Any, access_log: bool = False, root_path: str = "") -> uvicorn.Config:
    """Return uvicorn's configuration for an application; an access log has a line for each request."""
    logs = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    logs["formatters"]["access"]["fmt"] = '%(asctime)s %(client_addr)s "%(request_line)s" %(status_code)s'
    logs["loggers"]["uvicorn.error"]["level"] = "WARNING"
    return uvicorn.Config(
        app,
        log_config=logs,
        access_log=access_log,
        server_header=False,
        ws="none",
        root_path=root_path,
        h11_max_incomplete_event_size=HEADER_LIMIT,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )


def run(
    config: uvicorn.Config,
    bound: socket.socket,
    on_start: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal; responses under way are completed first, if they do not take long.

    `on_start` is called when requests are accepted, `on_stop` when the signal arrives.
    """
    if threading.current_thread() is threading.main_thread():  # uvicorn raises a signal again at its end
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        _Server(config, on_start, on_stop).run([bound])
