"""The server of the page: a project's classes and images, its model, and predictions of it."""

import hashlib
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import prolip
from prolip.api.predict import PredictOptions, predict
from prolip.app import edits
from prolip.app.base_models import BaseModels
from prolip.app.batcher import Batcher
from prolip.app.downloads import blocks, downloads, file_name
from prolip.app.events import Events
from prolip.app.figures import search
from prolip.app.images import PREVIEW_SIDE, THUMBNAIL_SIDE, UPLOAD_LIMIT, prepare, shrink
from prolip.app.project import Project
from prolip.app.responses import EXCEPTION_HANDLERS, read_object
from prolip.app.samples import add_samples
from prolip.app.security import Access, AccessMiddleware
from prolip.app.state import Change
from prolip.app.trainer import Trainer
from prolip.core import InputError, UsageError
from prolip.encoders import Encoder
from prolip.io.environment import cores

STATIC = Path(__file__).parent / "static"
SHARED_STATIC = str(files("prolip").joinpath("static"))  # what reports and exports use, too
OPEN_PATHS = ("/static/", "/api/session")
MAX_FOUND = 500  # images in the response to a search
IMMUTABLE = {"cache-control": "private, max-age=31536000, immutable"}  # an image's id is its content
EDITS = (
    "add_class", "edit_class", "remove_class", "merge_classes", "label_images", "accept_predictions",
    "remove_images",
)  # fmt: skip
LISTS = ("images", "like")  # fields of requests that are lists of strings; all others are strings


class PageServer:
    """The handlers of one open project."""

    def __init__(self, project: Project, encoder: Encoder, access: Access, device: str = "auto") -> None:
        self.project, self.access = project, access
        self.events, self._batcher = Events(), Batcher(encoder)
        self._image_threads = anyio.CapacityLimiter(max(2, cores()))  # edits do not wait for images
        self.trainer = Trainer(project, encoder, self.events.publish)
        self.base_models = BaseModels(project, self.trainer, self.events.publish, device)
        project.subscribe(self._on_change)

    def application(self) -> ASGIApp:
        """Return the ASGI application behind its access checks."""
        routes = [
            Route("/", self.index),
            Mount("/static/lib", StaticFiles(directory=SHARED_STATIC)),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/session", self.session, methods=["POST"]),
            Route("/api/project", self.everything),
            Route("/api/events", self.stream),
            Route("/api/edit/{edit}", self.edit, methods=["POST"]),
            Route("/api/images", self.upload, methods=["POST"]),
            Route("/api/images/{image}", self.thumbnail),
            Route("/api/images/{image}/large", self.preview),
            Route("/api/samples", self.add_samples, methods=["POST"]),
            Route("/api/undo", self.undo, methods=["POST"]),
            Route("/api/try", self.predict, methods=["POST"]),
            Route("/api/search", self.search, methods=["POST"]),
            Route("/api/models", self.list_models),
            Route("/api/model", self.choose_model, methods=["POST"]),
            Route("/api/model", self.cancel_model, methods=["DELETE"]),
            Route("/api/downloads", self.list_downloads),
            Route("/api/downloads/{kind}", self.download),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=self._lifespan)
        return AccessMiddleware(app, self.access, UPLOAD_LIMIT)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.events.attach()
        self.trainer.start()
        yield
        self.base_models.cancel()
        self.trainer.close()

    # The page and its state

    async def index(self, request: Request) -> Response:
        """Return the HTML that loads everything else."""
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def session(self, request: Request) -> Response:
        """Exchange the token of the printed address for a cookie that scripts cannot read."""
        if not self.access.is_token((await _fields(request)).get("token", "")):
            raise HTTPException(401, "this address is of an earlier run: open the new one")
        response = JSONResponse({})
        response.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict")
        return response

    async def everything(self, request: Request) -> Response:
        """Return all that a page shows when it is opened."""
        project, trainer = self.project, self.trainer
        state, revision = project.snapshot()
        return JSONResponse(
            {
                "revision": revision,
                "name": project.name,
                "folder": str(project.folder),
                "version": prolip.__version__,
                **self.base_models.as_json(),
                "templates": list(trainer.recipe.prompts),
                "classes": {key: asdict(row) for key, row in state.classes.items()},
                "images": {key: dict(vars(row)) for key, row in state.images.items()},
                "undo": project.can_undo,
                "figures": trainer.figures,
                "slow": trainer.slow,
                "waiting": len(trainer.encoded.waiting()),
                "bad": trainer.encoded.bad,
                "trouble": trainer.trouble,
            }
        )

    async def stream(self, request: Request) -> Response:
        """Stream changes and figures as they happen."""
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self.events.stream(), media_type="text/event-stream", headers=headers)

    # Edits: each is on disk before it is acknowledged

    async def edit(self, request: Request) -> Response:
        """Make an edit: the function of `edits` of this name, with the fields of the request as arguments."""
        name, fields = request.path_params["edit"], await _fields(request)
        if name not in EDITS:
            raise HTTPException(404, "there is no such edit")
        edit = getattr(edits, name)
        try:
            inspect.signature(edit).bind(None, **fields)
        except TypeError as error:
            raise InputError(str(error)) from error
        return await self._changed(self.project.commit, lambda state: edit(state, **fields))

    async def undo(self, request: Request) -> Response:
        """Undo the last change."""
        return await self._changed(self.project.undo)

    async def _changed(self, make: Any, *arguments: Any) -> Response:
        change: Change = await run_in_threadpool(make, *arguments)
        about = {"about": change.about, "classes": list(change.classes), "images": len(change.images)}
        return JSONResponse(about)

    async def upload(self, request: Request) -> Response:
        """Add an image. Its name is text, never a path: the file is named by its content."""
        query, data, encoded = request.query_params, await request.body(), self.trainer.encoded
        work = partial(prepare, data, encoded.encoder.preprocess)
        small, pixels = await anyio.to_thread.run_sync(work, limiter=self._image_threads)
        name, label, group = query.get("name", ""), query.get("label"), query.get("group", "")

        def add() -> tuple[str, str]:
            image = _image_id(data)
            encoded.keep_pixels(image, pixels)
            test = query.get("test") == "true"
            return image, self.project.add_image(image, data, small, name, label, group, test)

        image, result = await run_in_threadpool(add)
        return JSONResponse({"image": image, "result": result, "revision": self.project.revision})

    async def add_samples(self, request: Request) -> Response:
        """Add drawn photos to try the page with."""
        await run_in_threadpool(add_samples, self.project)
        return JSONResponse({})

    def _on_change(self, change: Change, revision: int) -> None:
        undo = self.project.can_undo
        event = {"type": "change", "revision": revision, "undo": undo, "about": change.about}
        self.events.publish({**event, **change.rows()})
        self.trainer.notify(change)

    # Images and predictions

    async def thumbnail(self, request: Request) -> Response:
        """Return a small copy of an image of the project."""
        image = self._image_id(request)
        path = self.project.thumbnail(image)
        if not (path.is_file() and path.stat().st_size):
            path.unlink(missing_ok=True)
            self.project.write_thumbnail(image, await self._shrink(image, THUMBNAIL_SIDE))
        return FileResponse(path, media_type="image/jpeg", headers=IMMUTABLE)

    async def preview(self, request: Request) -> Response:
        """Return a copy of an image that is large enough to look at."""
        large = await self._shrink(self._image_id(request), PREVIEW_SIDE)
        return Response(large, media_type="image/jpeg", headers=IMMUTABLE)

    def _image_id(self, request: Request) -> str:
        image: str = request.path_params["image"]
        if not self.project.has_image(image):
            raise HTTPException(404, "there is no such image")
        return image

    async def _shrink(self, image: str, side: int) -> bytes:
        def work() -> bytes:
            return shrink(self.project.image(image).read_bytes(), side)

        return await anyio.to_thread.run_sync(work, limiter=self._image_threads)

    async def predict(self, request: Request) -> Response:
        """Classify an image, which is not added to the project; classes are ids."""
        data, trained = await request.body(), self.trainer.trained
        model = trained.require_model()
        if self._batcher.encoder is not model.encoder:
            self._batcher = Batcher(model.encoder)
        x, ids = await self._batcher.encode(data), trained.training.classes
        options = PredictOptions(len(ids), reject=True)
        predictions = await run_in_threadpool(predict, model, x[None], options)
        (found,) = replace(predictions, classes=ids).to_json()
        return JSONResponse(
            {**found, "image": hashlib.sha256(data).hexdigest(), "revision": trained.revision}
        )

    async def search(self, request: Request) -> Response:
        """Rank images without a label by words, or by images of the project; the nearest first."""
        fields, images = await _fields(request), self.project.state.members(None)
        trained, encoded = self.trainer.trained, self.trainer.encoded
        words, like = fields.get("words"), fields.get("like", [])
        found = await run_in_threadpool(search, encoded, trained, images, words, like)
        return JSONResponse({"images": found[:MAX_FOUND]})

    # Base models

    async def list_models(self, request: Request) -> Response:
        """Return the base models that can be chosen."""
        return JSONResponse(await run_in_threadpool(self.base_models.rows))

    async def choose_model(self, request: Request) -> Response:
        """Begin to change to another base model; events report the progress."""
        name = (await _fields(request)).get("name", "")
        await run_in_threadpool(self.base_models.choose, name)
        return JSONResponse({})

    async def cancel_model(self, request: Request) -> Response:
        """Cancel the change to another base model, or dismiss its result."""
        self.base_models.cancel()
        return JSONResponse({})

    # Downloads

    async def list_downloads(self, request: Request) -> Response:
        """Return why each download cannot be made, null for those that can."""
        kinds = await run_in_threadpool(downloads, self.project, self.trainer.trained)
        return JSONResponse({name: kind.why_not for name, kind in kinds.items()})

    async def download(self, request: Request) -> Response:
        """Return the labelled photos, a report, or the model in a format of `prolip export`."""
        kinds = await run_in_threadpool(downloads, self.project, self.trainer.trained)
        kind = kinds.get(request.path_params["kind"])
        if kind is None:
            raise HTTPException(404, f"there is no download {request.path_params['kind'][:40]!r}")
        if kind.why_not:
            raise UsageError(kind.why_not)
        file, size = await run_in_threadpool(kind.make)
        name = f"{file_name(self.project.name)}-{kind.ending}"
        headers = {
            "content-disposition": f"attachment; filename*=utf-8''{quote(name)}",
            "content-length": str(size),
        }
        return StreamingResponse(blocks(file), media_type=kind.media_type, headers=headers)


def _image_id(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def _fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request without those that are null."""
    fields = {name: value for name, value in (await read_object(request)).items() if value is not None}
    for name, value in fields.items():
        values = value if name in LISTS and isinstance(value, list) else [value]
        if (name in LISTS) != isinstance(value, list) or not all(isinstance(each, str) for each in values):
            raise InputError(f"{name[:40]} must be a {'list of strings' if name in LISTS else 'string'}")
    return fields
