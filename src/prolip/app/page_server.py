"""The server of the page: a project's classes and images, its model, and predictions of it.

Starlette runs handlers that are plain functions in threads.
"""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

import prolip
from prolip.api.predict import PredictOptions, predict
from prolip.app import downloads, edits
from prolip.app.base_models import BaseModels
from prolip.app.events import Events
from prolip.app.figures import search
from prolip.app.images import UPLOAD_LIMIT, encode, prepare, shrink
from prolip.app.project import Project
from prolip.app.responses import EXCEPTION_HANDLERS, STATIC, STATIC_ROUTES, read_object
from prolip.app.samples import add_samples
from prolip.app.security import Access, AccessMiddleware
from prolip.app.state import Change, write_rows
from prolip.app.trainer import Trainer
from prolip.core import InputError, UsageError
from prolip.encoders import Encoder

OPEN_PATHS = ("/static/", "/api/session")
IMMUTABLE = {"cache-control": "private, max-age=31536000, immutable"}  # an image's id is its content
EDITS = (
    "add_class", "edit_class", "remove_class", "label_images", "accept_predictions", "remove_images",
)  # fmt: skip


class PageServer:
    """The handlers of one open project."""

    def __init__(self, project: Project, encoder: Encoder, access: Access, device: str = "auto") -> None:
        self.project, self.access, self.events = project, access, Events()
        self.trainer = Trainer(project, encoder, self.events.publish)
        self.base_models = BaseModels(project, self.trainer, self.events.publish, device)
        project.subscribe(self._on_change)

    def application(self) -> ASGIApp:
        """Return the ASGI application behind its access checks."""
        no_cache = {"cache-control": "no-cache"}
        routes = [
            Route("/", lambda _: FileResponse(STATIC / "index.html", headers=no_cache)),
            *STATIC_ROUTES,
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
            Route("/api/models", lambda _: JSONResponse(self.base_models.rows())),
            Route("/api/model", self.choose_model, methods=["POST"]),
            Route("/api/model", self.cancel_model, methods=["DELETE"]),
            Route("/api/downloads", self.list_downloads),
            Route("/api/downloads/{kind}", self.download),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=self._lifespan)
        return AccessMiddleware(app, self.access, UPLOAD_LIMIT)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.trainer.start()
        yield
        self.base_models.cancel()
        self.trainer.close()

    # The page and its state

    async def session(self, request: Request) -> Response:
        """Exchange the token of the printed address for a cookie that scripts cannot read."""
        if not self.access.is_token(str((await read_object(request)).get("token"))):
            raise HTTPException(401, "this address is of an earlier run: open the new one")
        response = JSONResponse({})
        response.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict")
        return response

    def everything(self, request: Request) -> Response:
        """Return all that a page shows when it is opened."""
        project, trainer, state = self.project, self.trainer, self.project.state
        return JSONResponse(
            {
                "revision": state.revision,
                "name": project.name,
                "folder": str(project.folder),
                "version": prolip.__version__,
                **self.base_models.as_json(),
                "templates": list(trainer.recipe.prompts),
                "classes": write_rows(state.classes),
                "images": write_rows(state.images),
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
        name, fields = request.path_params["edit"], await read_object(request)
        if name not in EDITS:
            raise HTTPException(404, "there is no such edit")
        edit = getattr(edits, name)
        try:
            change = await run_in_threadpool(self.project.commit, lambda state: edit(state, **fields))
        except (TypeError, AttributeError) as error:  # other fields than the edit has
            raise InputError(str(error)) from error
        return _describe(change)

    def undo(self, request: Request) -> Response:
        """Undo the last change."""
        return _describe(self.project.undo())

    async def upload(self, request: Request) -> Response:
        """Add an image. Its name is text, never a path: the file is named by its content."""
        query, data, encoded = request.query_params, await request.body(), self.trainer.encoded

        def add() -> tuple[str, str]:
            small, pixels = prepare(data, encoded.encoder.preprocess)
            image = hashlib.sha256(data).hexdigest()
            encoded.keep_pixels(image, pixels)
            fields = {"name": "", **query, "test": query.get("test") == "true"}
            return image, self.project.add_image(image, data, small, **fields)

        image, result = await run_in_threadpool(add)
        return JSONResponse({"image": image, "result": result})

    def add_samples(self, request: Request) -> Response:
        """Add drawn photos to try the page with."""
        add_samples(self.project)
        return JSONResponse({})

    def _on_change(self, change: Change, revision: int) -> None:
        undo = self.project.can_undo
        event = {"type": "change", "revision": revision, "undo": undo, "about": change.about}
        self.events.publish({**event, **change.rows()})
        self.trainer.notify(change)

    # Images and predictions

    def thumbnail(self, request: Request) -> Response:
        """Return a small copy of an image of the project."""
        path = self.project.thumbnail(self._image_id(request))
        return FileResponse(path, media_type="image/jpeg", headers=IMMUTABLE)

    def preview(self, request: Request) -> Response:
        """Return a copy of an image that is large enough to look at."""
        large = shrink(self.project.image(self._image_id(request)).read_bytes())
        return Response(large, media_type="image/jpeg", headers=IMMUTABLE)

    def _image_id(self, request: Request) -> str:
        image: str = request.path_params["image"]
        if image not in self.project.state.images:
            raise HTTPException(404, "there is no such image")
        return image

    async def predict(self, request: Request) -> Response:
        """Classify an image, which is not added to the project; classes are ids."""
        data, trained = await request.body(), self.trainer.trained
        model, ids = trained.require_model(), trained.training.classes
        x = await run_in_threadpool(encode, data, model.encoder)
        predictions = predict(model, x, PredictOptions(len(ids), reject=True))
        (row,) = replace(predictions, classes=ids).to_json()
        image = hashlib.sha256(data).hexdigest()
        return JSONResponse({**row, "image": image})

    async def search(self, request: Request) -> Response:
        """Rank images without a label by words, or by images of the project; the nearest first."""
        fields, trainer = await read_object(request), self.trainer
        unlabelled = self.project.state.members(None)
        words, like = fields.get("words", ""), fields.get("like", [])
        images = await run_in_threadpool(search, trainer.encoded, trainer.trained, unlabelled, words, like)
        return JSONResponse({"images": images})

    # Base models and downloads

    async def choose_model(self, request: Request) -> Response:
        """Begin to change to another base model; events report the progress."""
        name = str((await read_object(request)).get("name"))
        await run_in_threadpool(self.base_models.choose, name)
        return JSONResponse({})

    async def cancel_model(self, request: Request) -> Response:
        """Cancel the change to another base model, or dismiss its result."""
        self.base_models.cancel()
        return JSONResponse({})

    def list_downloads(self, request: Request) -> Response:
        """Return why each download cannot be made, null for those that can."""
        trained = self.trainer.trained
        kinds = {kind: downloads.why_not(kind, self.project, trained) for kind in downloads.KINDS}
        return JSONResponse(kinds)

    def download(self, request: Request) -> Response:
        """Return the labelled photos, a report, or the model in a format of `prolip export`."""
        kind, trained = request.path_params["kind"], self.trainer.trained
        if kind not in downloads.KINDS:
            raise HTTPException(404, f"there is no download {kind[:40]!r}")
        if reason := downloads.why_not(kind, self.project, trained):
            raise UsageError(reason)
        folder = tempfile.TemporaryDirectory(dir=self.project.folder)
        path = downloads.make(kind, self.project, trained, Path(folder.name))
        return FileResponse(path, filename=path.name, background=BackgroundTask(folder.cleanup))


def _describe(change: Change) -> Response:
    return JSONResponse({"classes": list(change.classes), "images": len(change.images)})
