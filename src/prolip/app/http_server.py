"""Serve an ASGI application with uvicorn: the socket, the address, a clean shutdown."""

from __future__ import annotations

import errno
import html
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from prolip.core import ProlipError

MAX_CONNECTIONS = 256  # more get 503
SHUTDOWN_SECONDS = 5  # in which responses under way may be completed
PORTS_TRIED = 20  # if the first ones are in use


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this port, or at the next free one; 0 is any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in range(port, min(port + PORTS_TRIED, 65536)):
        try:
            listening = socket.create_server((host.strip("[]"), attempt), family=family)
            # asyncio sets it only on sockets of a stated protocol; small responses would wait for 40 ms.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except OSError as error:
            failure = error
            if error.errno != errno.EADDRINUSE:
                break
    raise ProlipError(f"cannot listen at {host}, port {port}: {failure.strerror or failure}") from failure


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
        file.write(f'<title>prolip</title><meta http-equiv="refresh" content="0; url={url}">\n')
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def redirect_target(path: Path) -> str:
    """Return the link of a page that `redirect_file` wrote."""
    link = re.search(r'url=([^"]*)"', path.read_text("utf-8"))
    return html.unescape(link[1]) if link else ""


class _Server(uvicorn.Server):
    """Calls back at a signal, before it waits for the responses under way."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stop()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # not that requests are cancelled
        super().handle_exit(sig, frame)


def run(
    app: Any,
    listening: socket.socket,
    on_stop: Callable[[], None] = lambda: None,
    access_log: bool = False,
    root_path: str = "",
) -> None:
    """Serve until a signal; responses under way are completed first, if they do not take long."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises a signal again at its end
    server = _Server(config(app, access_log, root_path), on_stop)
    with suppress(KeyboardInterrupt):
        server.run([listening])


def config(app: Any, access_log: bool = False, root_path: str = "") -> uvicorn.Config:
    """Return uvicorn's configuration for an application; an access log has a line for each request."""
    settings = uvicorn.Config(
        app,
        access_log=access_log,
        server_header=False,
        ws="none",
        root_path=root_path,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return settings
