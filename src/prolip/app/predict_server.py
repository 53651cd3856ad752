"""The server of saved models: `POST /predict`, a page to try it, and nothing that changes anything.

Images of concurrent requests are encoded together (`batcher.py`), also those for several models of the same
base model.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import prolip
from prolip.api import save
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app.batcher import Batcher
from prolip.app.images import UPLOAD_LIMIT
from prolip.app.responses import EXCEPTION_HANDLERS, image_error, read_object
from prolip.app.security import Access, AccessMiddleware
from prolip.core import InputError, UsageError
from prolip.core.errors import UnknownNameError
from prolip.encoders import Encoder
from prolip.features import ImageError

STATIC = Path(__file__).parent / "static"
SHARED_STATIC = str(files("prolip").joinpath("static"))  # what reports and exports use, too
OPEN_PATHS = ("/healthz", "/docs", "/static/")
OPENAPI = Path(__file__).parent / "openapi.json"
MAX_IMAGES = 64  # in one request
MAX_DIGITS = 9  # of `top`: more than there are classes, fewer than Python can convert
REQUEST_LIMIT = 2 * UPLOAD_LIMIT
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def load_models(
    paths: Sequence[str | Path], device: str = "auto", base: str | None = None
) -> dict[str, AdaptedModel]:
    """Load saved models by the names of their folders; the options are those of `prolip.api.save.load`."""
    if "" in paths:
        raise UsageError("a model to serve must be the path of a folder, got an empty string")
    names = [Path(path).resolve().name for path in paths]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two models are called {repeated[0]!r}: rename one of the folders")
    return {name: save.load(Path(path), device, base=base) for name, path in zip(names, paths, strict=True)}


class PredictServer:
    """The handlers of loaded models, by name."""

    def __init__(self, models: Mapping[str, AdaptedModel], access: Access) -> None:
        self.models, self.access = dict(models), access
        if not self.models or not all(map(str.strip, self.models)):
            raise UsageError(f"models to serve need a name each, got {list(self.models)}")
        encoders = {encoder.fingerprint: encoder for encoder in map(_encoder, self.models.values())}
        self._batchers = {fingerprint: Batcher(encoder) for fingerprint, encoder in encoders.items()}

    def application(self) -> ASGIApp:
        """Return the ASGI application behind its access checks."""
        routes = [
            Route("/", partial(_page, "index.html")),
            Route("/docs", partial(_page, "docs.html")),
            Mount("/static/lib", StaticFiles(directory=SHARED_STATIC)),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models", self.list_models),
            Route("/healthz", self.health),
            Route("/openapi.json", self.openapi),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
        return CORSMiddleware(  # without origins it adds nothing
            AccessMiddleware(app, self.access, REQUEST_LIMIT),
            allow_origins=self.access.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["retry-after"],
        )

    async def health(self, request: Request) -> Response:
        """Health check."""
        return JSONResponse({"status": "ok", "models": list(self.models)})

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

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI description of this server, with its models."""
        document = json.loads(OPENAPI.read_text("utf-8"))
        document["info"]["version"] = prolip.__version__
        document["paths"]["/predict"]["post"]["parameters"][0]["schema"]["enum"] = list(self.models)
        if self.access.token is None:
            del document["security"], document["components"]["securitySchemes"]
        return JSONResponse(document)

    async def predict(self, request: Request) -> Response:
        """Classify one image, or several."""
        images, several, fields = await _read_images(request)
        name, options = self._options({**dict(request.query_params), **fields})
        found = await asyncio.gather(
            *(self._predict_one(self.models[name], options, *each) for each in images)
        )
        if several:
            return JSONResponse({"model": name, "predictions": found})
        return JSONResponse({"model": name, **found[0]}, 422 if "error" in found[0] else 200)

    def _options(self, fields: Mapping[str, Any]) -> tuple[str, PredictOptions]:
        """Return the name of the model, and how many classes are ranked and whether images are rejected."""
        names = list(self.models)
        name = str(fields.get("model", names[0]))
        if name not in names:
            raise UnknownNameError("model", name, names)
        top = str(fields.get("top", "1"))
        if not (top.isdecimal() and len(top) <= MAX_DIGITS and int(top)):
            raise UsageError(f"top must be a positive integer, got {top[:20]!r}")
        reject = str(fields.get("reject", "false")).lower()
        if reject not in TRUE + FALSE:
            raise UsageError(f"reject must be true or false, got {reject[:20]!r}")
        return name, PredictOptions(int(top), reject in TRUE)

    async def _predict_one(
        self, model: AdaptedModel, options: PredictOptions, image: str, data: bytes
    ) -> dict[str, Any]:
        try:
            x = await self._batchers[_encoder(model).fingerprint].encode(data)
        except ImageError as error:
            return {"image": image, "error": image_error(error)}
        predictions = await run_in_threadpool(predict, model, x[None], options)
        return predictions.to_json([image])[0]


async def _page(name: str, request: Request) -> Response:
    return FileResponse(STATIC / "serve" / name, headers={"cache-control": "no-cache"})


def _encoder(model: AdaptedModel) -> Encoder:
    found: Encoder = model.fitted.encoder_for(model.encoder)
    return found


async def _read_images(request: Request) -> tuple[list[tuple[str, bytes]], bool, dict[str, Any]]:
    """Read the names and contents of the images, whether the response is a list, and the other fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    fields: dict[str, Any] = {}
    if kind == "application/json":
        fields = await read_object(request)
        several = "images" in fields
        texts = fields.pop("images") if several else [fields.pop("image", None)]
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise InputError('the request must be {"image": base64} or {"images": [base64, ...]}')
        images = [(str(i), _from_base64(each)) for i, each in enumerate(texts)]
    elif kind == "multipart/form-data":
        async with request.form(max_files=MAX_IMAGES, max_fields=16) as form:
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
            images = [(file.filename or "", await file.read()) for file in files]
            several = len(images) > 1
    else:
        images, several = [("", await request.body())], False
    if not 1 <= len(images) <= MAX_IMAGES:
        raise InputError(f"a request must have 1 to {MAX_IMAGES} images, got {len(images)}")
    return images, several, fields


def _from_base64(text: str) -> bytes:
    """Decode base64, plain or as a data: URL, with or without line breaks; anything else is no image."""
    with suppress(ValueError):
        return base64.b64decode("".join(text.rpartition(",")[2].split()), validate=True)
    return b"not base64"
