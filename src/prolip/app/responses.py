"""Static files, error responses and JSON objects of requests, for both servers."""

import sqlite3
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from prolip.app.edits import RemovedElsewhereError
from prolip.core import InputError, ProlipError, UsageError
from prolip.features import ImageError

STATIC = Path(__file__).parent / "static"
STATIC_ROUTES = [
    Mount("/static/lib", StaticFiles(directory=str(files("prolip").joinpath("static")))),  # as in reports
    Mount("/static", StaticFiles(directory=STATIC)),
]
_STATUS: dict[type[Exception], int] = {RemovedElsewhereError: 409, InputError: 422, UsageError: 400}


def _error_response(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    # An image of a request has no path.
    message = f"cannot read it: {error.reason}" if isinstance(error, ImageError) else str(error)
    return JSONResponse({"error": message}, status)


EXCEPTION_HANDLERS: dict[Any, Callable[[Request, Any], Response]] = {
    ProlipError: _error_response,
    sqlite3.Error: _error_response,  # such as of a full disk
    HTTPException: lambda _, error: JSONResponse({"error": error.detail}, error.status_code, error.headers),
    ClientDisconnect: lambda *_: Response(status_code=400),  # which nobody reads
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
