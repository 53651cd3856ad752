"""Who may ask: checks that come before any handler, for the page and for the server alike.

- Host: only names under which this server is meant to be reached, so that a foreign name which resolves to
  this machine (DNS rebinding) reaches nothing.
- Origin: a page of another site may not call in; browsers say where a request comes from.
- Token: everything but the page's own files needs it, in a cookie or an Authorization header.
- A request's body is counted as it comes in, whatever it claims; and all that are in memory together. One
  that stalls is given up.

Every answer carries headers that tie the browser's hands: nothing is loaded from, sent to or framed by
anyone else.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse

from prolip.app.batcher import Busy

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}
BODIES = 4  # times the limit of one body that all of them may hold in memory
REQUESTS = 256  # being answered at once; more get 503
BODY_SECONDS = 20.0  # that a body may take, beside a second for each BODY_RATE bytes
BODY_RATE = 20_000
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANYWHERE = ("0.0.0.0", "::", "[::]")


class TooLarge(Exception):  # noqa: N818 - reads as what it is where it is caught
    """A body beyond the limit."""


class TooSlow(Exception):  # noqa: N818
    """A body that does not arrive."""


@dataclass(frozen=True)
class Access:
    """Who may ask for what."""

    # Host headers that are answered; None where the server listens on every address of the machine, and the
    # token alone decides.
    hosts: frozenset[str] | None
    token: str | None  # needed for all but open paths; None asks for none
    cookie: str = "prolip"  # the cookie that may hold it; browsers do not tell ports apart, so its name does
    open_paths: tuple[str, ...] = ()  # beginnings of paths that need no token

    @classmethod
    def at(cls, host: str, port: int, token: str | None, open_paths: tuple[str, ...]) -> Access:
        """Access to a server at this address."""
        named = f"[{host}]" if ":" in host and not host.startswith("[") else host
        names = {*LOOPBACK, named.lower()}
        hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        return cls(None if host in ANYWHERE else frozenset(hosts), token, f"prolip-{port}", open_paths)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason of a refusal, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self.hosts is not None and host not in self.hosts:
            return 421, "this server does not answer under that name"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return 403, "pages of other sites may not call this server"
        path = scope["path"]
        opens = path == "/" and headers.get("sec-fetch-mode") == "navigate"  # a link that leads to the page
        if not opens and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "pages of other sites may not call this server"
        is_open = path == "/" or path.startswith(self.open_paths)
        if self.token is None or is_open or self._knows(headers):
            return None
        return 401, "the token is missing or of another run: open the address that the program printed"

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return _same(self.token or "", given)

    @property
    def session(self) -> str:
        """What the cookie holds: letters and digits that only someone with the token can tell."""
        return hashlib.sha256(b"prolip session: " + _bytes(self.token or "")).hexdigest()

    def _knows(self, headers: Headers) -> bool:
        """Whether a request brings the token, or the cookie of someone who brought it before."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            sent = bearer.strip(" ").encode("latin-1")  # as Starlette decodes headers
            if _same(self.token or "", sent.decode("utf-8", "replace")) or _same(self.token or "", bearer):
                return True
        # Browsers send the cookies of all programs on this machine; others may look like anything.
        pairs = (
            pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";")
        )
        return any(name == self.cookie and _same(self.session, value) for name, _, value in pairs)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _same(expected: str, given: str) -> bool:
    return secrets.compare_digest(_bytes(expected), _bytes(given))


class Guard:
    """The checks around an application."""

    def __init__(self, app: Application, access: Access, limit: int) -> None:
        self.app, self.access, self.limit = app, access, limit
        self._held = 0  # bytes of bodies that are in memory
        self._requests = 0  # that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        refused = self.access.refusal(scope)
        if refused is None and _claimed(scope) > self.limit:
            refused = 413, f"{self.limit >> 20} MB are the limit"
        if refused is None and self._requests >= REQUESTS:
            refused = 503, "too many requests at once: try again in a second"
        if refused is not None:
            status, reason = refused
            # A body that is not read would be taken for the next request.
            headers = {413: {"connection": "close"}, 503: {"retry-after": "1"}}.get(status)
            await JSONResponse({"error": reason}, status, headers)(scope, receive, guarded_send)
            return
        received, whole, began = 0, False, time.monotonic()

        async def counted() -> Message:
            nonlocal received, whole
            if whole:  # what may still come is that the caller leaves
                return await receive()
            patience = began + BODY_SECONDS + received / BODY_RATE - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), patience)
            except (TimeoutError, asyncio.TimeoutError):
                raise TooSlow("the rest of the request did not arrive: send it again") from None
            whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            self._held += len(message.get("body", b""))
            if received > self.limit:
                raise TooLarge(f"{self.limit >> 20} MB are the limit")
            if self._held > BODIES * self.limit:
                raise Busy("too much is being sent at once: try again in a second")
            return message

        self._requests += 1
        try:
            await self.app(scope, counted, guarded_send)
        finally:
            self._requests -= 1
            self._held -= received


def _claimed(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isdecimal() else 0


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request, up to a limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(f"{limit >> 20} MB are the limit")
        parts.append(part)
    return b"".join(parts)
