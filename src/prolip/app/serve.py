"""A server of saved models: `POST /predict`, and nothing that changes anything.

Pictures of concurrent callers go through the tower together (`batcher.py`); models of the same base model
share it.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from prolip.api import save as keep
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app.answers import ERRORS, Turns, read_object
from prolip.app.batcher import Batcher, Finish
from prolip.app.guard import Access, Guard, read_body
from prolip.app.openapi import description
from prolip.app.pictures import UPLOAD_LIMIT
from prolip.core import InputError, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import unknown_name
from prolip.encoders import Encoder
from prolip.encoders.precomputed import require_images
from prolip.features import BadImage

OPEN_PATHS = ("/healthz",)
MANY = 64  # pictures in one request
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
DIGITS = 9  # of `top`: more than there are classes, fewer than Python reads
REQUEST_LIMIT = 2 * UPLOAD_LIMIT


@dataclass(frozen=True)
class UploadedImage:
    """A picture of a request: what it is called there, and its bytes."""

    name: str
    data: bytes
    fault: str | None = None  # why there are no bytes


@dataclass(frozen=True)
class Question:
    """What a request asks: which model, how many classes to rank, and whether to refuse outsiders."""

    model: str
    top: int = 1
    reject: bool = False


class Models:
    """Saved models by name; each tower is run by one batcher."""

    def __init__(self, models: Mapping[str, AdaptedModel]) -> None:
        self.models = dict(models)
        if not self.models or not all(map(str.strip, self.models)):
            raise UsageError(f"models to serve need a name each, got {list(self.models)}")
        self._batchers: dict[str, Batcher] = {}
        self._finish = {
            (name, reject): partial(_predict, model, PredictOptions(len(model.classes), reject))
            for name, model in self.models.items()
            for reject in (False, True)
        }
        for model in self.models.values():
            encoder = _encoder(model)
            require_images(encoder, "a server")
            if encoder.fingerprint not in self._batchers:
                self._batchers[encoder.fingerprint] = Batcher(encoder)

    def batcher(self, model: AdaptedModel) -> Batcher:
        """Who runs the tower of a model."""
        return self._batchers[_encoder(model).fingerprint]

    def finish(self, name: str, reject: bool) -> Finish:
        """What a model makes of features; one function for one question, so that they are grouped."""
        return self._finish[name, reject]

    def close(self) -> None:
        """Finish what waits, and stop."""
        for batcher in self._batchers.values():
            batcher.close()


def _encoder(model: AdaptedModel) -> Encoder:
    found: Encoder = model.fitted.encoder_for(model.encoder)
    return found


def load_models(
    paths: Sequence[str | Path], device: str = "auto", base: str | None = None, trust_base: bool = False
) -> dict[str, AdaptedModel]:
    """Saved models by the names of their folders; the options are those of `prolip.api.save.load`."""
    if "" in paths:
        raise UsageError("a model to serve must be the path of a folder, got an empty text")
    names = [Path(path).resolve().name for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two models are called {twice[0]!r}: rename one of the folders")
    return {
        name: keep.load(Path(path), device, base=base, trust_base=trust_base)
        for name, path in zip(names, paths, strict=True)
    }


class Server:
    """Answers requests about loaded models: `prolip serve` without its socket."""

    def __init__(self, models: Mapping[str, AdaptedModel], access: Access) -> None:
        self.models, self.access, self.turns = Models(models), access, Turns()

    def application(self) -> Guard:
        """The whole, with its checks around it."""
        routes = [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models", self.list_models),
            Route("/healthz", self.health),
            Route("/openapi.json", self.openapi),
        ]
        app = Starlette(routes=routes, exception_handlers=ERRORS, lifespan=self._lifespan)
        return Guard(app, self.access, REQUEST_LIMIT)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self.models.close()

    async def health(self, request: Request) -> Response:
        """Whether it runs; for those who watch over it."""
        return JSONResponse({"status": "ok", "models": list(self.models.models)})

    async def list_models(self, request: Request) -> Response:
        """What there is to ask."""
        return JSONResponse(
            [
                {
                    "model": name,
                    "classes": list(map(str, model.classes)),
                    "base_model": model.encoder.name,
                    "held_out_accuracy": model.confidence.report.get("accuracy"),
                }
                for name, model in self.models.models.items()
            ]
        )

    async def openapi(self, request: Request) -> Response:
        """How to ask, for programs."""
        return JSONResponse(description(list(self.models.models), self.access.token is not None))

    async def predict(self, request: Request) -> Response:
        """Answers about one picture, or about several."""
        given, many, fields = await _read(request)
        question = self._question({**dict(request.query_params), **fields})
        model = self.models.models[question.model]
        found = await asyncio.gather(*(self._answer(model, question, each) for each in given))
        if many:
            return JSONResponse({"model": question.model, "predictions": found})
        return JSONResponse({"model": question.model, **found[0]}, 422 if "error" in found[0] else 200)

    def _question(self, asked: Mapping[str, Any]) -> Question:
        names = list(self.models.models)
        name = str(asked.get("model", names[0]))
        if name not in names:
            raise unknown_name("model", name, names)
        top = str(asked.get("top", "1"))
        if not (top.isdecimal() and len(top) <= DIGITS and int(top)):
            raise UsageError(f"top must be a number from 1 on, got {top[:20]!r}")
        reject = str(asked.get("reject", "false")).lower()
        if reject not in YES + NO:
            raise UsageError(f"reject must be true or false, got {reject[:20]!r}")
        return Question(name, int(top), reject in YES)

    async def _answer(self, model: AdaptedModel, question: Question, given: UploadedImage) -> dict[str, Any]:
        if given.fault is not None:
            return {"image": given.name, "error": given.fault}
        finish, batcher = self.models.finish(question.model, question.reject), self.models.batcher(model)
        try:
            found = await self.turns.run(
                lambda max_pixels: asyncio.wrap_future(batcher.submit(given.data, finish, max_pixels))
            )
        except BadImage as bad:
            return {"image": given.name, "error": f"cannot read it: {bad.reason}"}
        return {"image": given.name, **found, "top": found["top"][: question.top]}


def _predict(model: AdaptedModel, options: PredictOptions, x: Array) -> list[dict[str, Any]]:
    return predict(model, x, options).to_json()


async def _read(request: Request) -> tuple[list[UploadedImage], bool, dict[str, Any]]:
    """The pictures of a request, whether it may hold several, and what else it says."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        fields = await read_object(request, REQUEST_LIMIT)
        many = "images" in fields
        images = fields.pop("images") if many else [fields.pop("image", None)]
        if not isinstance(images, list) or not all(isinstance(each, str) for each in images):
            raise InputError('give {"image": base64} or {"images": [base64, ...]}')
        given = [_from_base64(str(i), each) for i, each in enumerate(images)]
    elif kind == "multipart/form-data":
        async with request.form(max_files=MANY, max_fields=16) as form:
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
            given = [UploadedImage(file.filename or "", await file.read()) for file in files]
            many = len(given) > 1
    else:
        given, many, fields = [UploadedImage("", await read_body(request, UPLOAD_LIMIT))], False, {}
    if not 1 <= len(given) <= MANY:
        raise InputError(f"a request takes 1 to {MANY} pictures, got {len(given)}")
    return given, many, fields


def _from_base64(name: str, text: str) -> UploadedImage:
    """A picture of base64, alone or as a data: URL; lines may be broken anywhere."""
    try:
        return UploadedImage(name, base64.b64decode("".join(text.rpartition(",")[2].split()), validate=True))
    except (binascii.Error, ValueError) as error:
        return UploadedImage(name, b"", f"it is not base64: {error}")
