"""Error responses and JSON objects of requests, for both servers."""

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from prolip.app.edits import RemovedElsewhereError
from prolip.core import InputError, ProlipError, UsageError
from prolip.features import ImageError

_STATUS: dict[type[Exception], int] = {RemovedElsewhereError: 409, InputError: 422, UsageError: 400}


def error_response(request: Request, error: Exception) -> Response:
    """The status and message of an error of ours."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": image_error(error) or str(error)}, status)


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
    HTTPException: http_error_response,
    ClientDisconnect: disconnected_response,
}


async def read_object(request: Request) -> dict[str, Any]:
    """Read the JSON object in a request's body."""
    try:
        value = await request.json()
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError("the request must be a JSON object")
    return value
