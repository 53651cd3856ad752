"""The server of the page: a project's classes and images, its model, and predictions of it."""

import asyncio
import contextlib
import hashlib
import re
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import prolip
from prolip.api import save
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app import edits
from prolip.app.base_models import BaseModels
from prolip.app.batcher import Batcher
from prolip.app.events import Events
from prolip.app.figures import TrainedSnapshot, search
from prolip.app.guard import Access, Guard, read_body
from prolip.app.images import PREVIEW_SIDE, THUMBNAIL_SIDE, UPLOAD_LIMIT, prepare, shrink
from prolip.app.project import Project
from prolip.app.responses import EXCEPTION_HANDLERS, list_field, read_object, text_field
from prolip.app.state import Change, State
from prolip.app.trainer import Trainer
from prolip.app.workers import WorkerPool
from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.io.reading import read_bytes
from prolip.io.writing import temporary

STATIC = Path(__file__).parent / "static"
OPEN_PATHS = ("/static/", "/api/session")
BLOCK = 1 << 20
MAX_FOUND = 500  # images in the response to a search
IMMUTABLE = {"cache-control": "private, max-age=31536000, immutable"}  # an image's id is its content


class PageServer:
    """The handlers of one open project."""

    def __init__(self, project: Project, encoder: Encoder, access: Access, device: str = "auto") -> None:
        self.project, self.access = project, access
        self.events, self._batcher = Events(), Batcher(encoder)
        self._pool, self._image_pool = WorkerPool(), WorkerPool()  # edits do not wait for images
        self.trainer = Trainer(project, encoder, self.events.publish)
        self.base_models = BaseModels(project, self.trainer, self.events.publish, device)
        project.subscribe(self._on_change)

    def application(self) -> Guard:
        """Return the ASGI application behind its access checks."""
        routes = [
            Route("/", self.index),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/session", self.session, methods=["POST"]),
            Route("/api/project", self.everything),
            Route("/api/events", self.stream),
            Route("/api/classes", self.add_class, methods=["POST"]),
            Route("/api/classes/{key}", self.edit_class, methods=["PATCH"]),
            Route("/api/classes/{key}", self.remove_class, methods=["DELETE"]),
            Route("/api/classes/{key}/merge", self.merge_class, methods=["POST"]),
            Route("/api/images", self.upload, methods=["POST"]),
            Route("/api/images/{image}", self.thumbnail),
            Route("/api/images/{image}/large", self.preview),
            Route("/api/label", self.label, methods=["POST"]),
            Route("/api/remove", self.remove, methods=["POST"]),
            Route("/api/undo", self.undo, methods=["POST"]),
            Route("/api/try", self.predict, methods=["POST"]),
            Route("/api/search", self.search, methods=["POST"]),
            Route("/api/models", self.list_models),
            Route("/api/model", self.choose_model, methods=["POST"]),
            Route("/api/model", self.cancel_model, methods=["DELETE"]),
            Route("/api/export/{target}", self.export),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=self._lifespan)
        return Guard(app, self.access, UPLOAD_LIMIT)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.events.attach()
        self.trainer.start()
        yield
        self.base_models.cancel()
        for each in (self.trainer, self._batcher, self._image_pool, self._pool):
            each.close()

    # The page and its state

    async def index(self, request: Request) -> Response:
        """Return the HTML that loads everything else."""
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def session(self, request: Request) -> Response:
        """Exchange the token of the printed address for a cookie that scripts cannot read."""
        token = text_field(await read_object(request), "token") or ""
        if not self.access.is_token(token):
            return JSONResponse({"error": "this address is of an earlier run: open the new one"}, 401)
        response = JSONResponse({})
        response.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict")
        return response

    async def everything(self, request: Request) -> Response:
        """Return all that a page shows when it is opened."""
        project, trainer, state = self.project, self.trainer, self.project.state
        encoded = trainer.encoded
        return JSONResponse(
            {
                "revision": project.revision,
                "name": project.name,
                "folder": str(project.folder),
                "version": prolip.__version__,
                **self.base_models.as_json(),
                "templates": list(trainer.recipe.templates),
                "classes": {key: asdict(row) for key, row in state.classes.items()},
                "images": {key: asdict(row) for key, row in state.images.items()},
                "undo": project.can_undo,
                "figures": trainer.figures,
                "slow": trainer.slow,
                "waiting": len(encoded.waiting()),
                "bad": encoded.bad,
                "trouble": trainer.trouble,
            }
        )

    async def stream(self, request: Request) -> Response:
        """Stream changes and figures as they happen."""
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self.events.stream(), media_type="text/event-stream", headers=headers)

    # Edits: each is on disk before it is acknowledged

    async def add_class(self, request: Request) -> Response:
        """Add a class; the response has its id."""
        name = text_field(await read_object(request), "name") or ""
        return await self._commit(lambda state: edits.add_class(state, name))

    async def edit_class(self, request: Request) -> Response:
        """Change the name or the description of a class."""
        fields, key = await read_object(request), request.path_params["key"]
        name, text = text_field(fields, "name"), text_field(fields, "text")
        return await self._commit(lambda state: edits.edit_class(state, key, name, text))

    async def remove_class(self, request: Request) -> Response:
        """Remove a class; its images stay, without a label."""
        return await self._commit(lambda state: edits.remove_class(state, request.path_params["key"]))

    async def merge_class(self, request: Request) -> Response:
        """Merge a class into another."""
        into = text_field(await read_object(request), "into") or ""
        return await self._commit(lambda state: edits.merge_classes(state, request.path_params["key"], into))

    async def label(self, request: Request) -> Response:
        """Label images, or remove their labels."""
        fields = await read_object(request)
        images, label = list_field(fields, "images"), text_field(fields, "label")
        return await self._commit(lambda state: edits.label_images(state, images, label))

    async def remove(self, request: Request) -> Response:
        """Remove images."""
        images = list_field(await read_object(request), "images")
        return await self._commit(lambda state: edits.remove_images(state, images))

    async def undo(self, request: Request) -> Response:
        """Undo the last change."""
        return _change_response(await self._pool.run(self.project.undo))

    async def upload(self, request: Request) -> Response:
        """Add an image. Its name is text, never a path: the file is named by its content."""
        query, data = request.query_params, await read_body(request, UPLOAD_LIMIT)
        name, label, group = query.get("name", ""), query.get("label"), query.get("group", "")
        test, encoded = query.get("test") == "true", self.trainer.encoded
        small, pixels = await self._image_pool.run(prepare, data, encoded.encoder.preprocess)

        def add() -> tuple[str, str]:
            image = hashlib.sha256(data).hexdigest()
            encoded.keep_pixels(image, pixels)
            return image, self.project.add_image(image, data, small, name, label, group, test)

        image, result = await self._pool.run(add)
        return JSONResponse({"image": image, "result": result, "revision": self.project.revision})

    async def _commit(self, edit: Callable[[State], Change]) -> Response:
        return _change_response(await self._pool.run(self.project.commit, edit))

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
            small = await self._thumbnail(await self._read(image), THUMBNAIL_SIDE)
            self.project.write_thumbnail(image, small)
        return FileResponse(path, media_type="image/jpeg", headers=IMMUTABLE)

    async def preview(self, request: Request) -> Response:
        """Return a copy of an image that is large enough to look at."""
        large = await self._thumbnail(await self._read(self._image_id(request)), PREVIEW_SIDE)
        return Response(large, media_type="image/jpeg", headers=IMMUTABLE)

    def _image_id(self, request: Request) -> str:
        image: str = request.path_params["image"]
        if not self.project.has_image(image):
            raise HTTPException(404, "there is no such image")
        return image

    async def _read(self, image: str) -> bytes:
        return await self._pool.run(read_bytes, self.project.image(image), UPLOAD_LIMIT)

    async def _thumbnail(self, data: bytes, side: int) -> bytes:
        return await self._image_pool.run(shrink, data, side)

    async def predict(self, request: Request) -> Response:
        """Classify an image; it is not added to the project."""
        data = await read_body(request, UPLOAD_LIMIT)
        trained = self.trainer.trained
        model = _require_model(trained)
        if self._batcher.encoder is not model.encoder:
            asyncio.get_running_loop().run_in_executor(None, self._batcher.close)
            self._batcher = Batcher(model.encoder)
        found = self._batcher.submit(data, partial(predictions, trained, model))
        return JSONResponse(await asyncio.wrap_future(found))

    async def search(self, request: Request) -> Response:
        """Rank images without a label by words, or by images of the project; the nearest first."""
        fields = await read_object(request)
        words, like = text_field(fields, "words"), list_field(fields, "like") if "like" in fields else []
        images = self.project.state.members(None)
        found = await self._pool.run(search, self.trainer.encoded, self.trainer.trained, images, words, like)
        return JSONResponse({"images": found[:MAX_FOUND]})

    # Base models

    async def list_models(self, request: Request) -> Response:
        """Return the base models that can be chosen."""
        return JSONResponse(await self._pool.run(self.base_models.rows))

    async def choose_model(self, request: Request) -> Response:
        """Begin to change to another base model; events report the progress."""
        name = text_field(await read_object(request), "name") or ""
        await self._pool.run(self.base_models.choose, name)
        return JSONResponse({})

    async def cancel_model(self, request: Request) -> Response:
        """Cancel the change to another base model, or dismiss its result."""
        self.base_models.cancel()
        return JSONResponse({})

    async def export(self, request: Request) -> Response:
        """Return the model as a .zip with a model card; it is checked as it is written."""
        target, model = request.path_params["target"], _require_model(self.trainer.trained)
        if target not in self.trainer.figures["targets"]:
            raise HTTPException(404, f"there is no export called {target[:40]!r} for this model")
        name = f"{file_name(self.project.name)}-{target}"
        packed, size = await self._pool.run(pack, model, target, self.project.folder, name)
        disposition = f"attachment; filename*=utf-8''{quote(name)}.zip"
        headers = {"content-disposition": disposition, "content-length": str(size)}
        return StreamingResponse(_blocks(packed), media_type="application/zip", headers=headers)


def file_name(name: str) -> str:
    """Replace what some system does not allow in a file name: keep letters and digits of any script, - . _"""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "project"


def predictions(trained: TrainedSnapshot, model: AdaptedModel, x: Array) -> list[dict[str, Any]]:
    """Predict features [b, width]; classes are ids of the project."""
    ids = trained.training.classes
    found = replace(predict(model, x, PredictOptions(len(ids), reject=True)), classes=ids)
    return [{**each, "revision": trained.revision} for each in found.to_json()]


def pack(model: AdaptedModel, target: str, folder: Path, name: str) -> tuple[IO[bytes], int]:
    """Export a model into a temporary .zip that is deleted when it is closed; returns it and its size."""
    packed = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed when it has been sent
    with temporary(folder, folder=True) as made:
        if target == "prolip":
            save.save(model, made / name, card=True)
        else:
            save.export(model, made / name, [target])
        with zipfile.ZipFile(packed, "w") as archive:  # not compressed: weights do not shrink
            for file in sorted(file for file in (made / name).rglob("*") if file.is_file()):
                archive.write(file, file.relative_to(made).as_posix())
    size = packed.tell()
    packed.seek(0)
    return packed, size


def _require_model(trained: TrainedSnapshot) -> AdaptedModel:
    if trained.model is None:
        raise UsageError("there is no model yet: add images to two classes first")
    return trained.model


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with contextlib.closing(file):
        while block := file.read(BLOCK):
            yield block


def _change_response(change: Change) -> Response:
    return JSONResponse(
        {"about": change.about, "classes": list(change.classes), "images": len(change.images)}
    )
