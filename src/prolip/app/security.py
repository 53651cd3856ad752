"""Who may call a server, checked before any handler runs, and a limit for the bytes of a request.

- Host: only names under which the server is meant to be reached, so that a name of another site that
  resolves to this machine (DNS rebinding) reaches nothing. Starlette's `TrustedHostMiddleware` cannot read
  addresses of IPv6.
- Origin: pages of other sites are refused, except those of allowed origins.
- Token: everything but open paths needs it, in an Authorization header or a cookie.

Every response carries headers by which the browser itself loads, sends and frames nothing of other sites.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
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
    "cross-origin-resource-policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")  # which only this machine can reach
ANYWHERE = ("0.0.0.0", "::", "[::]")


class Access:
    """The rules of a server that listens at `host`.

    Without a `token` none is needed. `open_paths` are prefixes of paths that need none, `origins` other sites
    whose pages may send requests ("*": all), and `allowed_hosts` further names of the server.
    """

    def __init__(
        self,
        host: str,
        token: str | None,
        open_paths: tuple[str, ...] = (),
        origins: Sequence[str] = (),
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        self.token, self.open_paths = token, open_paths
        self.origins = [origin.lower().rstrip("/") for origin in origins]
        # A server that listens on every address has any name, and the token alone decides.
        names = {*LOOPBACK, host, *allowed_hosts}
        self.hosts = None if host in ANYWHERE else {_without_port(name) for name in names}
        # Only someone with the token can compute the session. Its name keeps servers on other ports apart.
        self.session = hashlib.sha256(f"prolip session: {token}".encode()).hexdigest()
        self.cookie = f"prolip-{self.session[:8]}"

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused, None if it is allowed."""
        headers, path = Headers(scope=scope), scope["path"].removeprefix(scope.get("root_path", ""))
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        if self.hosts is not None and _without_port(host) not in self.hosts:
            return 421, f"this server is not called {host[:80]!r}: --allow-host allows another name"
        if origin and not {origin, "*"} & {f"http://{host}", f"https://{host}", *self.origins}:
            return 403, "requests from pages of other sites are refused"
        if self.token is None or path == "/" or path.startswith(self.open_paths):
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(token.strip()):
            return None
        if _equal(self.session, HTTPConnection(scope).cookies.get(self.cookie, "")):
            return None
        return 401, (
            "the token is missing or wrong: send the header Authorization: Bearer TOKEN; a browser gets it "
            "from the address that the program printed"
        )

    def is_token(self, text: str) -> bool:
        """Compare with the token, in constant time."""
        return self.token is not None and _equal(self.token, text)


class AccessMiddleware:
    """Apply access rules, and limit the bytes of a body."""

    def __init__(self, app: ASGIApp, access: Access, body_limit: int) -> None:
        self.app, self.access, self.body_limit = app, access, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it."""
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.body_limit:  # the rest of the body is not read
                reason = f"the request is larger than {self.body_limit >> 20} MB, the limit"
                raise HTTPException(413, reason, {"connection": "close"})
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http" and (refusal := self.access.refusal(scope)):
            status, reason = refusal
            await JSONResponse({"error": reason}, status)(scope, receive, send_with_headers)
        else:
            await self.app(scope, limited_receive, send_with_headers)


def _without_port(host: str) -> str:
    """Return a host without its port, in lower case; an address of IPv6 has brackets."""
    host = host.lower()
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else re.sub(r":\d+$", "", host)


def _equal(expected: str, text: str) -> bool:
    return secrets.compare_digest(expected.encode(), text.encode("utf-8", "surrogatepass"))


def require_token(host: str, token: str | None) -> str | None:
    """Return the token that a server at this address needs; a random one if others can reach it."""
    if token is None:
        return None if host in LOOPBACK else secrets.token_urlsafe(24)
    if not re.fullmatch(r"[\w.~+/=-]{16,}", token, re.ASCII):
        raise UsageError(
            "token must have at least 16 letters, digits or -._~+/=: leave it out for a random one"
        )
    return token
