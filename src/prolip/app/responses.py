"""Error responses and the JSON fields of requests, for both servers."""

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from prolip.app.batcher import Busy
from prolip.app.edits import RemovedElsewhere
from prolip.app.guard import BodyTimeout, BodyTooLarge, read_body
from prolip.core import InputError, ProlipError, UsageError
from prolip.features import ImageError
from prolip.io.reading import parse_json

JSON_LIMIT = 4 << 20

_CLOSE = {"connection": "close"}  # the rest of the body would be read as the next request
_STATUS: dict[type[Exception], int] = {
    Busy: 503,
    RemovedElsewhere: 409,
    InputError: 422,
    UsageError: 400,
    ProlipError: 500,
    BodyTooLarge: 413,
    BodyTimeout: 408,
}


def error_response(request: Request, error: Exception) -> Response:
    """The status and message of an error of ours."""
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    headers = {503: {"retry-after": "1"}, 413: _CLOSE, 408: _CLOSE}.get(status)
    return JSONResponse({"error": image_error(error) or str(error)}, status, headers)


def image_error(error: Exception) -> str | None:
    """Why an image of a request cannot be read; None for any other error."""
    return f"cannot read it: {error.reason}" if isinstance(error, ImageError) else None


def http_error_response(request: Request, error: Exception) -> Response:
    """The response to an error that Starlette raises: unknown path, wrong method, a malformed form."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def disconnected_response(request: Request, error: Exception) -> Response:
    """A response that is never read: the client disconnected while it sent its request."""
    return Response(status_code=400)


EXCEPTION_HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {
    ProlipError: error_response,
    BodyTooLarge: error_response,
    BodyTimeout: error_response,
    HTTPException: http_error_response,
    ClientDisconnect: disconnected_response,
}


async def read_object(request: Request, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """Read the JSON object in a request's body."""
    try:
        value = parse_json((await read_body(request, limit)).decode())
    except ValueError as error:
        raise InputError(f"the request is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError("the request must be a JSON object")
    return value


def text_field(value: dict[str, Any], name: str) -> str | None:
    """Return an optional field that must be a string."""
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise InputError(f"{name} must be a string")
    return found


def list_field(value: dict[str, Any], name: str) -> list[str]:
    """Return a field that must be a list of strings."""
    found = value.get(name)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InputError(f"{name} must be a list of strings")
    return found
