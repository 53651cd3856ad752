"""The server of the page: a project's classes and pictures, its model, and what it has learned."""

import asyncio
import contextlib
import re
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import prolip
from prolip.api import save as keep
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions, predict
from prolip.app import edits
from prolip.app.answers import ERRORS, Events, Pool, Turns, list_field, read_object, text_field
from prolip.app.batcher import Batcher
from prolip.app.guard import Access, Guard, read_body
from prolip.app.pictures import LARGE, THUMBNAIL, UPLOAD_LIMIT, thumbnail
from prolip.app.project import Project
from prolip.app.state import Change
from prolip.app.teacher import Teacher, TrainedSnapshot
from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.export.checkpoint import LIBRARIES
from prolip.io.reading import read_bytes
from prolip.io.writing import temporary

STATIC = Path(__file__).parent / "static"
OPEN_PATHS = ("/static/", "/api/session")
BLOCK = 1 << 20
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}  # an id is the content


class Page:
    """The handlers of one open project, by its base model."""

    def __init__(self, project: Project, encoder: Encoder, access: Access) -> None:
        self.project, self.encoder, self.access = project, encoder, access
        self.events, self.batcher = Events(), Batcher(encoder)
        self.pool, self.drawing, self.turns = Pool(), Pool(), Turns()  # changes do not wait for pictures
        self.teacher = Teacher(project, encoder, self.events.publish)
        project.subscribe(self._changed)

    def application(self) -> Guard:
        """The whole, with its checks around it."""
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
            Route("/api/images/{image}", self.small),
            Route("/api/images/{image}/large", self.large),
            Route("/api/label", self.label, methods=["POST"]),
            Route("/api/remove", self.remove, methods=["POST"]),
            Route("/api/undo", self.undo, methods=["POST"]),
            Route("/api/try", self.answer, methods=["POST"]),
            Route("/api/export/{target}", self.export),
        ]
        app = Starlette(routes=routes, exception_handlers=ERRORS, lifespan=self._lifespan)
        return Guard(app, self.access, UPLOAD_LIMIT)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.events.attach()
        self.teacher.start()
        yield
        self.teacher.close()
        self.batcher.close()
        self.drawing.close()
        self.pool.close()

    # The page and its state

    async def index(self, request: Request) -> Response:
        """The HTML that loads everything else."""
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def session(self, request: Request) -> Response:
        """Take the token of the printed address into a cookie that scripts cannot read."""
        token = text_field(await read_object(request), "token") or ""
        if not self.access.is_token(token):
            return JSONResponse({"error": "this address is of an earlier run: open the new one"}, 401)
        answer = JSONResponse({})
        answer.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict")
        return answer

    async def everything(self, request: Request) -> Response:
        """All that a page shows when it is opened."""
        project, teacher, state = self.project, self.teacher, self.project.state
        return JSONResponse(
            {
                "revision": project.revision,
                "name": project.name,
                "folder": str(project.folder),
                "model": project.model,
                "version": prolip.__version__,
                "templates": list(teacher.recipe.templates),
                "classes": {key: asdict(row) for key, row in state.classes.items()},
                "images": {key: asdict(row) for key, row in state.images.items()},
                "undo": project.can_undo,
                "figures": teacher.taught.figures,
                "slow": teacher.slow,
                "waiting": len(teacher.waiting()),
                "bad": teacher.bad,
                "trouble": teacher.trouble,
                "targets": targets(self.encoder),
            }
        )

    async def stream(self, request: Request) -> Response:
        """Changes and figures as they come."""
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self.events.stream(), media_type="text/event-stream", headers=headers)

    # Changes: each is on disk before it is answered

    async def add_class(self, request: Request) -> Response:
        """A new class; answers with its id."""
        name = text_field(await read_object(request), "name") or ""
        return await self._commit(lambda state: edits.add_class(state, name))

    async def edit_class(self, request: Request) -> Response:
        """Another name or description."""
        given, key = await read_object(request), request.path_params["key"]
        name, text = text_field(given, "name"), text_field(given, "text")
        return await self._commit(lambda state: edits.edit_class(state, key, name, text))

    async def remove_class(self, request: Request) -> Response:
        """Take a class away; its pictures wait for another label."""
        return await self._commit(lambda state: edits.remove_class(state, request.path_params["key"]))

    async def merge_class(self, request: Request) -> Response:
        """One class of two."""
        into = text_field(await read_object(request), "into") or ""
        return await self._commit(lambda state: edits.merge_classes(state, request.path_params["key"], into))

    async def label(self, request: Request) -> Response:
        """Give pictures a class, or take it away."""
        given = await read_object(request)
        images, label = list_field(given, "images"), text_field(given, "label")
        return await self._commit(lambda state: edits.label_images(state, images, label))

    async def remove(self, request: Request) -> Response:
        """Take pictures out."""
        images = list_field(await read_object(request), "images")
        return await self._commit(lambda state: edits.remove_images(state, images))

    async def undo(self, request: Request) -> Response:
        """Take the last change back."""
        return _kept(await self.pool.run(self.project.undo))

    async def upload(self, request: Request) -> Response:
        """Keep a picture. Its name is text, and never a path: the file is called by its content."""
        asked = request.query_params
        name, label, group = asked.get("name", ""), asked.get("label"), asked.get("group", "")
        data = await read_body(request, UPLOAD_LIMIT)
        if label is not None:
            edits.require_class(self.project.state, label)
        small = await self._draw(data, THUMBNAIL)
        image, result = await self.pool.run(self.project.add_image, data, small, name, label, group)
        return JSONResponse({"image": image, "result": result, "revision": self.project.revision})

    async def _commit(self, edit: Any) -> Response:
        return _kept(await self.pool.run(self.project.commit, edit))

    def _changed(self, change: Change, revision: int) -> None:
        undo = self.project.can_undo
        self.events.publish({"type": "change", "revision": revision, "undo": undo, **change.as_json()})
        self.teacher.touch()

    # Pictures and answers

    async def small(self, request: Request) -> Response:
        """A small copy of a picture of the project."""
        image = request.path_params["image"]
        if image not in self.project.state.images:
            return JSONResponse({"error": "there is no such picture"}, 404)
        path = self.project.thumbnail(image)
        if not (path.is_file() and path.stat().st_size):
            path.unlink(missing_ok=True)
            self.project.write_thumbnail(image, await self._draw(await self._read(image), THUMBNAIL))
        return FileResponse(path, media_type="image/jpeg", headers=FOREVER)

    async def large(self, request: Request) -> Response:
        """A copy to look at."""
        image = request.path_params["image"]
        if image not in self.project.state.images:
            return JSONResponse({"error": "there is no such picture"}, 404)
        drawn = await self._draw(await self._read(image), LARGE)
        return Response(drawn, media_type="image/jpeg", headers=FOREVER)

    async def _read(self, image: str) -> bytes:
        return await self.pool.run(read_bytes, self.project.image(image), UPLOAD_LIMIT)

    async def _draw(self, data: bytes, side: int) -> bytes:
        return await self.turns.run(partial(self.drawing.run, thumbnail, data, side))

    async def answer(self, request: Request) -> Response:
        """What a picture is; it is not kept."""
        data = await read_body(request, UPLOAD_LIMIT)
        taught = self.teacher.taught
        if taught.model is None:
            raise UsageError("give two classes some pictures first")
        describe = partial(answers_of, taught, taught.model)
        found = await self.turns.run(lambda n: asyncio.wrap_future(self.batcher.submit(data, describe, n)))
        return JSONResponse(found)

    async def export(self, request: Request) -> Response:
        """The model as a .zip, checked as it is written, with a card."""
        target, model = request.path_params["target"], self.teacher.taught.model
        if model is None:
            raise UsageError("give two classes some pictures first")
        if target not in targets(self.encoder):
            return JSONResponse({"error": f"there is no export called {target[:40]!r} for this model"}, 404)
        name = f"{file_name(self.project.name)}-{target}"
        packed, size = await self.pool.run(pack, model, target, self.project.folder, name)
        shown = f"filename*=utf-8''{quote(name)}.zip"
        headers = {"content-disposition": f"attachment; {shown}", "content-length": str(size)}
        return StreamingResponse(_blocks(packed), media_type="application/zip", headers=headers)


def file_name(name: str) -> str:
    """A name that any system takes for a file: letters and digits of any script, and - . _"""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "project"


def targets(encoder: Encoder) -> list[str]:
    """What a model of this encoder can be exported to."""
    has_library = encoder.library is not None
    return ["prolip", "onnx", "adapter", *(LIBRARIES if has_library else ())]


def answers_of(taught: TrainedSnapshot, model: AdaptedModel, x: Array) -> list[dict[str, Any]]:
    """The answers about features [b, width], as the page shows them."""
    found = predict(model, x, PredictOptions(top=len(model.classes), reject=True))
    return [
        {
            "none": none,
            "answers": [{"class": taught.classes[k], "probability": float(row[k])} for k in ranking],
            "revision": taught.figures["revision"],
        }
        for row, ranking, none in zip(found.probabilities, found.ranking, found.is_rejected, strict=True)
    ]


def pack(model: AdaptedModel, target: str, folder: Path, name: str) -> tuple[IO[bytes], int]:
    """An exported model as a .zip without a name, which is gone when it is closed; and its size."""
    packed = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by who sends it
    with temporary(folder, folder=True) as made:
        if target == "prolip":
            keep.save(model, made / name, card=True)
        else:
            keep.export(model, made / name, [target])
        with zipfile.ZipFile(packed, "w") as archive:  # weights do not shrink
            for file in sorted((made / name).iterdir()):
                archive.write(file, f"{name}/{file.name}")
    size = packed.tell()
    packed.seek(0)
    return packed, size


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with contextlib.closing(file):
        while block := file.read(BLOCK):
            yield block


def _kept(change: Change) -> Response:
    return JSONResponse(
        {"about": change.about, "classes": list(change.classes), "images": len(change.images)}
    )
