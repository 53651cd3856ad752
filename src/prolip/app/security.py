"""Who may call a server, checked before any handler runs, and limits for the body of a request.

- Host: only names under which the server is meant to be reached, with its port, so that a name of another
  site that resolves to this machine (DNS rebinding) reaches nothing. Starlette's `TrustedHostMiddleware`
  does not compare the port.
- Origin: pages of other sites are refused, except those of allowed origins; browsers say where a request
  comes from.
- Token: everything but open paths needs it, in a cookie or an Authorization header.

Every response carries headers by which the browser itself loads, sends and frames nothing of other sites.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prolip.core import UsageError

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' "
        "blob:; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}
BODY_TIMEOUT = 20.0  # seconds in which more of a body must arrive
TOKEN_LENGTH = 16  # characters at least, if others can reach the server
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANYWHERE = ("0.0.0.0", "::", "[::]")


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
        cls,
        host: str,
        port: int,
        token: str | None,
        open_paths: tuple[str, ...],
        origins: Sequence[str] = (),
        allowed_hosts: Sequence[str] = (),
    ) -> Access:
        """Return the access rules of a server at this address; allowed hosts count with any port."""
        named = f"[{host}]" if ":" in host and not host.startswith("[") else host
        names = {*LOOPBACK, named.lower()}
        hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        hosts |= set(map(_host_name, allowed_hosts))
        allowed = None if host in ANYWHERE else frozenset(hosts)
        return cls(allowed, token, f"prolip-{port}", open_paths, tuple(map(_origin, origins)))

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused, None if it is allowed."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self.hosts is not None and not self.hosts & {host, re.sub(r":\d+$", "", host)}:
            return 421, f"this server is not called {host[:80]!r}: --allow-host allows another name"
        origin, path = headers.get("origin"), scope["path"].removeprefix(scope.get("root_path", ""))
        if origin is None or not {origin, "*"} & set(self.origins):
            if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
                return 403, "requests from pages of other sites are refused"
            is_link = path == "/" and headers.get("sec-fetch-mode") == "navigate"
            if not is_link and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
                return 403, "requests from pages of other sites are refused"
        is_open = path == "/" or path.startswith(self.open_paths)
        if self.token is None or is_open or self._has_token(headers):
            return None
        return 401, (
            "the token is missing or wrong: send the header Authorization: Bearer TOKEN; a browser gets it "
            "from the address that the program printed"
        )

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


class AccessMiddleware:
    """Apply access rules, and limit the bytes of a body and the time for which it may stall."""

    def __init__(self, app: ASGIApp, access: Access, body_limit: int) -> None:
        self.app, self.access, self.body_limit = app, access, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received, complete = 0, False

        async def limited_receive() -> Message:
            nonlocal received, complete
            try:  # all that can follow a complete body is a disconnect
                message = await asyncio.wait_for(receive(), None if complete else BODY_TIMEOUT)
            except (TimeoutError, asyncio.TimeoutError):
                raise _closing(408, "the rest of the request did not arrive: send it again") from None
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            self._check_size(received)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            if refusal := self.access.refusal(scope):
                raise HTTPException(*refusal)
            length = Headers(scope=scope).get("content-length", "0")
            self._check_size(int(length) if length.isdecimal() else 0)
        except HTTPException as error:
            response = JSONResponse({"error": error.detail}, error.status_code, error.headers)
            await response(scope, receive, send_with_headers)
        else:
            await self.app(scope, limited_receive, send_with_headers)

    def _check_size(self, size: int) -> None:
        if size > self.body_limit:
            raise _closing(413, f"the request is larger than {self.body_limit >> 20} MB, the limit")


def _closing(status: int, reason: str) -> HTTPException:
    """An error after which the rest of the body is not read."""
    return HTTPException(status, reason, {"connection": "close"})


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:]+\]", text):
        raise UsageError(f"a host is a name like proxy.example, without a port, got {text[:80]!r}")
    return text.lower()


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


def check_root_path(path: str) -> None:
    """Check the path at which a proxy has a server."""
    if path and not re.fullmatch(r"(/[\w.~-]+)+", path):
        raise UsageError(f"root_path must be like /prolip, got {path[:80]!r}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> str | None:
    """Return the token that a server at this address needs; a random one if others can reach it."""
    if not host.strip():
        raise UsageError("host must be an address or a name, got an empty string: omit it for 127.0.0.1")
    if token is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if not token or token != token.strip() or not token.isprintable():
        raise UsageError(
            "token must have printable characters and no space at its ends, or no request could send it: "
            "use another one, or none"
        )
    if not is_loopback(host) and len(token) < TOKEN_LENGTH:
        raise UsageError(
            f"token must have at least {TOKEN_LENGTH} characters, since others can reach {host}, "
            f"got {len(token)}: leave it out for a random one"
        )
    return token
