"""The server of saved models: `POST /predict`, a page to try it, and nothing that changes anything."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from prolip.api import save
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app.images import UPLOAD_LIMIT, encode
from prolip.app.responses import EXCEPTION_HANDLERS, STATIC, STATIC_ROUTES, describe, read_object
from prolip.app.security import Access, AccessMiddleware
from prolip.core import InputError, UsageError
from prolip.core.errors import UnknownNameError
from prolip.features import ImageError
from prolip.io.environment import cores

OPEN_PATHS = ("/healthz", "/docs", "/static/")
OPENAPI = Path(__file__).parent / "openapi.json"
MAX_IMAGES = 64  # in one request
REQUEST_LIMIT = 2 * UPLOAD_LIMIT
BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def load_models(
    paths: Sequence[str | Path], device: str = "auto", base: str | None = None
) -> dict[str, AdaptedModel]:
    """Load saved models by the names of their folders; the options are those of `prolip.api.save.load`."""
    names = [Path(path).resolve().name for path in paths]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two models are called {repeated[0]!r}: rename one of the folders")
    return {name: save.load(Path(path), device, base=base) for name, path in zip(names, paths, strict=True)}


class PredictServer:
    """The handlers of loaded models, by name."""

    def __init__(self, models: Mapping[str, AdaptedModel], access: Access) -> None:
        self.models, self.access = dict(models), access
        self._threads = anyio.CapacityLimiter(max(2, cores()))  # which decode, encode and predict

    def application(self) -> ASGIApp:
        """Return the ASGI application behind its access checks."""
        routes = [
            Route("/", lambda _: FileResponse(STATIC / "serve" / "index.html")),
            Route("/docs", lambda _: FileResponse(STATIC / "serve" / "docs.html")),
            *STATIC_ROUTES,
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models", self.list_models),
            Route("/healthz", lambda _: JSONResponse({"status": "ok", "models": list(self.models)})),
            Route("/openapi.json", lambda _: FileResponse(OPENAPI)),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
        return CORSMiddleware(  # without origins it adds nothing
            AccessMiddleware(app, self.access, REQUEST_LIMIT),
            allow_origins=self.access.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )

    async def list_models(self, request: Request) -> Response:
        """List the served models."""
        return JSONResponse(
            [
                {
                    "model": name,
                    "classes": list(map(str, model.classes)),
                    "base_model": model.encoder.name,
                    "held_out_accuracy": model.confidence.figures.accuracy,
                }
                for name, model in self.models.items()
            ]
        )

    async def predict(self, request: Request) -> Response:
        """Classify one image, or several."""
        images, several, fields = await _read_images(request)
        fields = {**request.query_params, **fields}
        name = str(fields.get("model", next(iter(self.models))))
        if name not in self.models:
            raise UnknownNameError("model", name, self.models)
        work = partial(_predict, self.models[name], _read_options(fields))
        run = partial(anyio.to_thread.run_sync, work, limiter=self._threads)
        rows = await asyncio.gather(*(run(*image) for image in images))
        if several:
            return JSONResponse({"model": name, "predictions": rows})
        return JSONResponse({"model": name, **rows[0]}, 422 if "error" in rows[0] else 200)


def _predict(model: AdaptedModel, options: PredictOptions, name: str, data: bytes) -> dict[str, Any]:
    """Classify an image; one that cannot be read gets an error in place of a prediction."""
    try:
        x = encode(data, model.fitted.encoder_for(model.encoder))
    except ImageError as error:
        return {"image": name, "error": describe(error)}
    return predict(model, x, options).to_json([name])[0]


def _read_options(fields: Mapping[str, Any]) -> PredictOptions:
    """Return how many classes are ranked, and whether images are rejected."""
    reject = BOOLEANS.get(str(fields.get("reject", "false")).lower())
    if reject is None:
        raise UsageError(f"reject must be true or false, got {str(fields['reject'])[:20]!r}")
    try:
        return PredictOptions(int(fields.get("top", 1)), reject)
    except (ValueError, TypeError) as error:
        raise UsageError(f"top must be a positive integer, got {str(fields['top'])[:20]!r}") from error


async def _read_images(request: Request) -> tuple[list[tuple[str, bytes]], bool, dict[str, Any]]:
    """Read the names and contents of the images, whether the response is a list, and the other fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    fields: dict[str, Any] = {}
    if kind == "application/json":
        fields = await read_object(request)
        several = "images" in fields
        texts = fields.pop("images") if several else [fields.pop("image", None)]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError('the request must be {"image": base64} or {"images": [base64, ...]}')
        images = [(str(i), _from_base64(text)) for i, text in enumerate(texts)]
    elif kind == "multipart/form-data":
        async with request.form(max_files=MAX_IMAGES) as form:
            uploads = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
            images = [(upload.filename or "", await upload.read()) for upload in uploads]
            several = len(images) > 1
    else:
        images, several = [("", await request.body())], False
    if not 1 <= len(images) <= MAX_IMAGES:
        raise InputError(f"a request must have 1 to {MAX_IMAGES} images, got {len(images)}")
    return images, several, fields


def _from_base64(text: str) -> bytes:
    """Decode base64, plain or as a data: URL, with or without line breaks; anything else is no image."""
    with suppress(ValueError):
        return base64.b64decode(text.rpartition(",")[2])
    return b""
