"""From an address to a running server."""

import asyncio
import html
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from prolip.app.connections import HEAD_LIMIT, IDLE_SECONDS, Connection
from prolip.core import ProlipError, UsageError

PATIENCE = 10  # seconds that a shutdown waits for answers under way
TOKEN_LENGTH = 16  # characters at least, where others can reach the server


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse to open a server to others without a token, and a token that a request cannot bring."""
    if not host.strip():
        raise UsageError("host must be an address or a name, got an empty text: leave it out for 127.0.0.1")
    if token is not None and (not token or token != token.strip() or not token.isprintable()):
        raise UsageError(
            "a token needs printable characters, and no space at its ends, or no request could bring it: "
            "name another, or none"
        )
    if is_loopback(host):
        return
    if token is None:
        raise UsageError(f"others can reach {host}: name a token too, which every request must then bring")
    if len(token) < TOKEN_LENGTH:
        raise UsageError(
            f"a token that others may guess at needs {TOKEN_LENGTH} characters, got {len(token)}"
        )


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once; they wait 40 ms for company otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Windows lets two programs share a port under SO_REUSEADDR.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
        listening.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ProlipError(f"cannot listen at {host}, port {port}: {reason}; name another port") from error
    return listening


def address(host: str, port: int) -> str:
    """What to open in a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@contextmanager
def redirect_file(link: str, folder: Path) -> Iterator[Path]:
    """A page that leads to a link, and that only this user can read; it is removed at the end.

    The link holds the token, and what a browser is started with can be seen by every user of the machine.
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


class _Server(uvicorn.Server):
    """Says when it is told to stop, and when it has begun; closes the application even when hurried."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._began, self._ending = started, ending
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._began()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # what is being written to disk is finished all the same
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)
        if self.force_exit and self._loop is not None:
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        """End answers under way and their connections, which a server waits for from Python 3.12 on."""
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.transport.abort()


def _not_given_up(record: logging.LogRecord) -> bool:
    """Whether a line of the log is more than an answer that was given up."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def config(app: Any) -> uvicorn.Config:
    """How an application is served."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=HEAD_LIMIT,
        timeout_graceful_shutdown=PATIENCE,
        timeout_keep_alive=int(IDLE_SECONDS),
        lifespan="on",
    )


def run(
    app: Any, listening: socket.socket, started: Callable[[], None], ending: Callable[[], None] = lambda: None
) -> None:
    """Serve until a signal; answers under way are finished first, or given up at a second Ctrl-C.

    `started` is called when requests are answered, `ending` when the signal comes.
    """
    logging.getLogger("uvicorn.error").addFilter(_not_given_up)
    try:
        _Server(config(app), started, ending).run([listening])
    except KeyboardInterrupt:  # raised again by uvicorn once all is closed
        return
