"""Access checks and limits around an ASGI application, before any handler runs.

- Host: only the names under which the server is meant to be reached, with its port, so that a name of another
  site that resolves to this machine (DNS rebinding) reaches nothing. Starlette's `TrustedHostMiddleware` does
  not compare the port, and cannot read an IPv6 address.
- Origin: pages of other sites are refused, but for those of allowed origins; browsers say where a request
  comes from.
- Token: everything but open paths needs it, in a cookie or an Authorization header.
- Body: the bytes that arrive are counted, whatever the headers claim, per request and for all requests
  together. A body that stalls is given up.

Every response carries headers by which the browser itself loads, sends and frames nothing of other sites.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse

from prolip.app.batcher import Busy
from prolip.core import UsageError

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
MAX_BODIES = 4  # bodies of the maximum size that fit into memory together
MAX_REQUESTS = 256  # handled at once; more get 503
BODY_SECONDS = 20.0  # in which a body must arrive, plus a second per BODY_RATE bytes
BODY_RATE = 20_000
TOKEN_LENGTH = 16  # characters at least, if others can reach the server
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANYWHERE = ("0.0.0.0", "::", "[::]")


class BodyTooLarge(Exception):  # noqa: N818 - a response to a request, not a failure
    """The body of a request exceeds the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request is larger than {limit >> 20} MB, the limit")


class BodyTimeout(Exception):  # noqa: N818
    """The body of a request does not arrive."""


@dataclass(frozen=True)
class Access:
    """Which requests are allowed."""

    # Accepted Host headers; None if the server listens on every address, and the token alone decides.
    hosts: frozenset[str] | None
    token: str | None  # required except for open paths; None: not required
    cookie: str = "prolip"  # name of the session cookie; it has the port in it, as cookies ignore ports
    open_paths: tuple[str, ...] = ()  # prefixes of paths that need no token
    origins: tuple[str, ...] = ()  # other sites whose pages may send requests; "*" is all of them

    @classmethod
    def at(
        cls, host: str, port: int, token: str | None, open_paths: tuple[str, ...], origins: Sequence[str] = ()
    ) -> Access:
        """Return the access rules of a server at this address."""
        named = f"[{host}]" if ":" in host and not host.startswith("[") else host
        names = {*LOOPBACK, named.lower()}
        hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        allowed = None if host in ANYWHERE else frozenset(hosts)
        return cls(allowed, token, f"prolip-{port}", open_paths, tuple(map(_origin, origins)))

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused, None if it is allowed."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self.hosts is not None and host not in self.hosts:
            return 421, "this server has another host name"
        origin, path = headers.get("origin"), scope["path"]
        if origin is None or not {origin, "*"} & set(self.origins):
            if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
                return 403, "requests from pages of other sites are refused"
            is_link = path == "/" and headers.get("sec-fetch-mode") == "navigate"
            if not is_link and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
                return 403, "requests from pages of other sites are refused"
        is_open = path == "/" or path.startswith(self.open_paths)
        if self.token is None or is_open or self._has_token(headers):
            return None
        return 401, "the token is missing or from an earlier run: open the address that the program printed"

    def is_token(self, text: str) -> bool:
        """Compare with the token, in constant time."""
        return _equal(self.token or "", text)

    @property
    def session(self) -> str:
        """Value of the session cookie: a digest that only someone with the token can compute."""
        return hashlib.sha256(b"prolip session: " + _bytes(self.token or "")).hexdigest()

    def _has_token(self, headers: Headers) -> bool:
        """Whether a request has the token, or the cookie of a session that began with it."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            sent = bearer.strip(" ").encode("latin-1")  # as Starlette decodes headers
            if self.is_token(sent.decode("utf-8", "replace")) or self.is_token(bearer):
                return True
        # Browsers send the cookies of all programs on this machine, in any syntax.
        pairs = (
            pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";")
        )
        return any(name == self.cookie and _equal(self.session, value) for name, _, value in pairs)


def _origin(text: str) -> str:
    """Check an origin: "*", or what a browser sends, like https://example.org."""
    parts = urlsplit(text.lower())
    if text != "*" and (
        parts.scheme not in ("http", "https") or text.lower() != f"{parts.scheme}://{parts.netloc}"
    ):
        raise UsageError(f"an origin is like https://example.org, or *, got {text!r}")
    return text.lower()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _equal(expected: str, text: str) -> bool:
    return secrets.compare_digest(_bytes(expected), _bytes(text))


class Guard:
    """ASGI middleware that applies the checks and limits."""

    def __init__(self, app: Application, access: Access, limit: int) -> None:
        self.app, self.access, self.limit = app, access, limit
        self._body_bytes = 0  # in memory, of all requests
        self._requests = 0  # being handled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        refused = self.access.refusal(scope)
        if refused is None and _content_length(scope) > self.limit:
            refused = 413, str(BodyTooLarge(self.limit))
        if refused is None and self._requests >= MAX_REQUESTS:
            refused = 503, "too many requests at once: try again in a second"
        if refused is not None:
            status, reason = refused
            # A body that is not read would be read as the next request.
            headers = {413: {"connection": "close"}, 503: {"retry-after": "1"}}.get(status)
            await JSONResponse({"error": reason}, status, headers)(scope, receive, guarded_send)
            return
        received, complete, started = 0, False, time.monotonic()

        async def counted_receive() -> Message:
            nonlocal received, complete
            if complete:  # all that can follow is a disconnect
                return await receive()
            patience = started + BODY_SECONDS + received / BODY_RATE - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), patience)
            except (TimeoutError, asyncio.TimeoutError):
                raise BodyTimeout("the rest of the request did not arrive: send it again") from None
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            self._body_bytes += len(message.get("body", b""))
            if received > self.limit:
                raise BodyTooLarge(self.limit)
            if self._body_bytes > MAX_BODIES * self.limit:
                raise Busy("too much is being uploaded at once: try again in a second")
            return message

        self._requests += 1
        try:
            await self.app(scope, counted_receive, guarded_send)
        finally:
            self._requests -= 1
            self._body_bytes -= received


def _content_length(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isdecimal() else 0


async def read_body(request: Request, limit: int) -> bytes:
    """Read the body of a request, up to a limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise BodyTooLarge(limit)
        parts.append(part)
    return b"".join(parts)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse a server that others can reach without a token, and a token that no request can send."""
    if not host.strip():
        raise UsageError("host must be an address or a name, got an empty string: omit it for 127.0.0.1")
    if token is not None and (not token or token != token.strip() or not token.isprintable()):
        raise UsageError(
            "token must have printable characters and no space at its ends, or no request could send it: "
            "use another one, or none"
        )
    if is_loopback(host):
        return
    if token is None:
        raise UsageError(f"others can reach {host}: set a token too, which every request must then send")
    if len(token) < TOKEN_LENGTH:
        raise UsageError(f"token must have at least {TOKEN_LENGTH} characters here, got {len(token)}")
