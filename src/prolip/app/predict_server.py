"""The server of saved models: `POST /predict`, a page to try it, and nothing that changes anything."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from prolip.api import save
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app.images import UPLOAD_LIMIT, encode
from prolip.app.responses import EXCEPTION_HANDLERS, STATIC, STATIC_ROUTES
from prolip.app.security import Access, AccessMiddleware
from prolip.core import UsageError
from prolip.core.errors import UnknownNameError
from prolip.io.environment import cores

OPEN_PATHS = ("/healthz", "/openapi.json", "/static/")
OPENAPI = Path(__file__).parent / "openapi.json"
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
            *STATIC_ROUTES,
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models", self.list_models),
            Route("/healthz", lambda _: JSONResponse({"status": "ok", "models": list(self.models)})),
            Route("/openapi.json", lambda _: FileResponse(OPENAPI)),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
        return CORSMiddleware(  # without origins it adds nothing
            AccessMiddleware(app, self.access, UPLOAD_LIMIT),
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
        """Classify the image that is the body of the request."""
        query = request.query_params
        name = query.get("model", next(iter(self.models)))
        if name not in self.models:
            raise UnknownNameError("model", name, self.models)
        if request.headers.get("content-type", "").startswith(("multipart/", "application/json")):
            raise HTTPException(415, "the body must be the bytes of one image, not a form or JSON")
        work = partial(_predict, self.models[name], await request.body(), _read_options(query))
        row = await anyio.to_thread.run_sync(work, limiter=self._threads)
        return JSONResponse({"model": name, **row})


def _predict(model: AdaptedModel, data: bytes, options: PredictOptions) -> dict[str, Any]:
    x = encode(data, model.fitted.encoder_for(model.encoder))
    return predict(model, x, options).to_json([""])[0]


def _read_options(query: Mapping[str, str]) -> PredictOptions:
    """Return how many classes are ranked, and whether images are rejected."""
    try:
        return PredictOptions(int(query.get("top", 1)), BOOLEANS[query.get("reject", "false").lower()])
    except (KeyError, ValueError) as error:
        raise UsageError("top must be a positive integer, and reject true or false") from error
