"""From an address to a running server."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from prolip.core import ProlipError, UsageError

CONNECTIONS = 256  # beyond which a caller gets 503
PATIENCE = 10  # seconds that a shutdown waits for answers under way


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse to open a server to others without a token."""
    if is_loopback(host):
        return
    if token is None:
        raise UsageError(f"others can reach {host}: name a token too, which every request must then bring")
    if len(token) < 16:
        raise UsageError(f"a token that others may guess at needs 16 characters, got {len(token)}")


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once; they wait 40 ms for company otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


class _Server(uvicorn.Server):
    """Says when it is told to stop, and when it has begun; closes the application even when hurried."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._began, self._ending = started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._began()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # a second Ctrl-C: answers under way are given up, what is being kept is not
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)


def _not_given_up(record: logging.LogRecord) -> bool:
    """Whether a line of the log is more than an answer that was given up."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def run(
    app: Any, listening: socket.socket, started: Callable[[], None], ending: Callable[[], None] = lambda: None
) -> None:
    """Serve until a signal; answers under way are finished first, or given up at a second Ctrl-C.

    `started` is called when requests are answered, `ending` when the signal comes.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=PATIENCE,
        timeout_keep_alive=30,
        lifespan="on",
    )
    logging.getLogger("uvicorn.error").addFilter(_not_given_up)
    try:
        _Server(config, started, ending).run([listening])
    except KeyboardInterrupt:  # raised again by uvicorn once all is closed
        return
