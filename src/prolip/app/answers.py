"""Errors as answers, work in a pool with a bound, and events to open pages: what both servers share."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from prolip.app.batcher import Busy
from prolip.app.edits import Gone
from prolip.app.guard import TooLarge, TooSlow, read_body
from prolip.app.pictures import LARGE_PIXELS, PIXEL_LIMIT, LargePicture
from prolip.core import InputError, ProlipError, UsageError
from prolip.features import BadImage
from prolip.io.environment import cores
from prolip.io.reading import parse_json

T = TypeVar("T")

JSON_LIMIT = 4 << 20
HEARTBEAT = 15.0  # seconds between signs of life on a stream of events
BACKLOG = 256  # events that a page may be behind; beyond them it is disconnected, and reads everything anew

CLOSE = {"connection": "close"}  # the rest of a body would be taken for the next request
_STATUS: dict[type[Exception], int] = {
    Busy: 503, Gone: 409, InputError: 422, UsageError: 400, ProlipError: 500, TooLarge: 413, TooSlow: 408,
}  # fmt: skip


def error_answer(request: Request, error: Exception) -> Response:
    """An error of ours as a status and a sentence."""
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    headers = {503: {"retry-after": "1"}, 413: CLOSE, 408: CLOSE}.get(status)
    message = f"cannot read it: {error.reason}" if isinstance(error, BadImage) else str(error)
    return JSONResponse({"error": message}, status, headers)


def http_error_answer(request: Request, error: Exception) -> Response:
    """What Starlette raises itself: no such path, no such method, a body that is no form."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def hung_up(request: Request, error: Exception) -> Response:
    """The caller left before its request was whole; nobody reads this."""
    return Response(status_code=400)


ERRORS: dict[Any, Callable[[Request, Exception], Response]] = {
    ProlipError: error_answer,
    TooLarge: error_answer,
    TooSlow: error_answer,
    HTTPException: http_error_answer,
    ClientDisconnect: hung_up,
}


async def read_object(request: Request, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """The JSON object that a request brings."""
    try:
        value = parse_json((await read_body(request, limit)).decode())
    except ValueError as error:
        raise InputError(f"the request is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError("the request must be a JSON object")
    return value


def text_field(value: dict[str, Any], name: str) -> str | None:
    """A field that is text, or left out."""
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise InputError(f"{name} must be text")
    return found


def list_field(value: dict[str, Any], name: str) -> list[str]:
    """A field that is a list of texts."""
    found = value.get(name)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InputError(f"{name} must be a list of texts")
    return found


class Pool:
    """Threads for what would hold up the server; where too much waits, the next is told to come back."""

    def __init__(self, room: int = 64) -> None:
        self._threads = ThreadPoolExecutor(max(2, cores()), thread_name_prefix="prolip-work")
        self._room, self._inside = room, 0

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of work in a thread."""
        if self._inside >= self._room:
            raise Busy("the server has too much to do: try again in a second")
        self._inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        finally:
            self._inside -= 1

    def close(self) -> None:
        """Finish what is under way."""
        self._threads.shutdown()


class Turns:
    """Large pictures one at a time: never do they take all threads, or the memory of all others."""

    def __init__(self, room: int = 16) -> None:
        self._turn, self._room, self._waiting = asyncio.Lock(), room, 0

    async def run(self, work: Callable[[int], Awaitable[T]]) -> T:
        """The result of work that gets the number of pixels that a picture may have at present."""
        try:
            return await work(LARGE_PIXELS)
        except LargePicture:
            if self._waiting >= self._room:
                raise Busy("too many large pictures are waiting: try again in a second") from None
        self._waiting += 1
        try:
            async with self._turn:
                return await work(PIXEL_LIMIT)
        finally:
            self._waiting -= 1


class Events:
    """Server-sent events: what any thread publishes goes to every open page, in order."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pages: set[asyncio.Queue[str | None]] = set()

    def attach(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()

    def publish(self, event: dict[str, Any]) -> None:
        """Send an event; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, f"data: {json.dumps(event)}\n\n")

    def close(self) -> None:
        """End all streams; from any thread, or a signal's handler."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, None)

    def _send(self, line: str | None) -> None:
        for page in list(self._pages):
            ends = line is None or page.qsize() >= BACKLOG
            if ends:
                self._pages.discard(page)
            page.put_nowait(None if ends else line)

    async def stream(self) -> AsyncIterator[str]:
        """The events from now on, for one page."""
        page: asyncio.Queue[str | None] = asyncio.Queue()
        self._pages.add(page)
        try:
            yield ": hello\n\n"
            while True:
                try:
                    line = await asyncio.wait_for(page.get(), HEARTBEAT)
                except (TimeoutError, asyncio.TimeoutError):
                    line = ": still here\n\n"
                if line is None:
                    return
                yield line
        finally:
            self._pages.discard(page)
