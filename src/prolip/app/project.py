"""A project on disk: one folder, consistent at every moment.

    project.sqlite     the base model, classes, images, and what undoes the last changes
    images/ab/abcd...  images as they were uploaded, by the SHA-256 of their content
    thumbnails/ab/...  small JPEGs of them
    features/          their features (`prolip.features.FeatureStore`)

An image is on disk before the change that names it, and the change before it is acknowledged. So whenever the
program or the machine stops, all that was acknowledged is there. Images that were removed, and that undo can
no longer restore, are deleted when a project is opened.

The tables are in memory, too: an edit reads them there, and writes only what it changes. One program at a
time has a project open; others may read it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from prolip.app import edits
from prolip.app.format2 import read_format2
from prolip.app.state import Change, ClassRow, ImageRow, State, read_rows
from prolip.core import InputError, ProlipError, UsageError
from prolip.io.sqlite import open_database
from prolip.io.writing import follow, write_bytes

if TYPE_CHECKING:
    from prolip.encoders import Encoder

UNDO_STEPS = 200
DATABASE, LOCK, LINK = "project.sqlite", "project.lock", "open-page.html"
_UNFINISHED = "project.new.sqlite"  # a database that is being made
_SCHEMA = """
CREATE TABLE project (model TEXT, fingerprint TEXT, revision INTEGER, next_class INTEGER);
CREATE TABLE classes (id INTEGER PRIMARY KEY, name TEXT, text TEXT);
CREATE TABLE images (id TEXT PRIMARY KEY, name TEXT, label TEXT, checked INTEGER, test INTEGER,
    removed INTEGER);
CREATE TABLE undo (number INTEGER PRIMARY KEY, step INTEGER, about TEXT, batch TEXT, rows TEXT);
CREATE INDEX undo_step ON undo (step);
PRAGMA user_version = 3
"""
_LAST_STEP = "SELECT step, batch, about FROM undo ORDER BY number DESC LIMIT 1"
_IMAGE_ID = re.compile(r"[0-9a-f]{64}")


class ProjectInUseError(ProlipError):
    """Another program has the project open."""


@dataclass(frozen=True)
class BaseModel:
    """The name of a project's base model, and the fingerprint of its weights if known."""

    name: str = "offline"
    fingerprint: str = ""


class Project:
    """An open project. Thread-safe."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder = folder
        self._database, self._lock = database, Lock()
        self._listeners: list[Callable[[Change, int], None]] = []
        self.model, _, self.revision, next_class = database.execute("SELECT * FROM project").fetchone()
        self._state = _read_state(database, next_class)  # changes in place, while the lock is held
        self.can_undo = ""  # description of the change that `undo` would undo; empty if there is none
        self._read_undo()

    @staticmethod
    def base_model(folder: Path) -> BaseModel:
        """Return the base model of a project; the default for a folder that is new or empty."""
        if (folder / DATABASE).is_file():
            with closing(open_database(folder / DATABASE, _SCHEMA, read_only=True)) as database:
                row = database.execute("SELECT model, fingerprint FROM project").fetchone()
            return BaseModel(*row)
        if (folder / "project.json").is_file():
            name, fingerprint, _ = read_format2(folder)
            return BaseModel(name, fingerprint)
        if folder.is_dir() and any(
            not path.name.startswith((LOCK, _UNFINISHED)) for path in folder.iterdir()
        ):
            raise UsageError(f"{folder} has other files in it: use a new or empty folder")
        return BaseModel()

    @staticmethod
    def read(folder: Path) -> State:
        """Return the classes and images of a project, which another program may have open."""
        with closing(open_database(folder / DATABASE, _SCHEMA, read_only=True)) as database:
            return _read_state(database)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, encoder: Encoder | None = None) -> Iterator[Project]:
        """Open a project, or make a new one; `encoder`, if given, becomes its base model."""
        folder = follow(folder)
        _reject_links(folder)
        model = cls.base_model(folder)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(folder / LOCK).acquire(timeout=0)
        except Timeout as error:
            raise ProjectInUseError(f"another program has the project in {folder} open") from error
        with lock:
            if not (folder / DATABASE).is_file():
                _create(folder, model)
            with closing(open_database(folder / DATABASE, _SCHEMA)) as database:
                database.execute("PRAGMA synchronous = FULL")  # a change survives a power cut, too
                _delete_removed(database, folder)
                project = cls(folder, database)
                if encoder is not None:
                    project.set_model(encoder)
                yield project

    def set_model(self, encoder: Encoder) -> None:
        """Make another encoder the base model."""
        with self._lock, self._database as database:
            values = (encoder.name, encoder.fingerprint)
            database.execute("UPDATE project SET model = ?, fingerprint = ?", values)
        self.model = encoder.name

    @property
    def name(self) -> str:
        """The name of the project's folder."""
        return self.folder.name or "project"

    def snapshot(self) -> tuple[State, int]:
        """Return a copy of the tables, and their revision."""
        with self._lock:
            return self._state.copy(), self.revision

    @property
    def state(self) -> State:
        """A copy of the tables."""
        return self.snapshot()[0]

    def has_image(self, image: str) -> bool:
        """Whether there is an image with this id."""
        return image in self._state.images

    def commit(self, edit: Callable[[State], Change]) -> Change:
        """Apply an edit to the current state and write the change to disk, unless it is empty."""
        with self._lock:
            change = edit(self._state)
            if change:
                self._write(change)
                self._state.apply(change)
                self._read_undo()
                self.revision += 1
                for listener in self._listeners:
                    listener(change, self.revision)
            return change

    def _write(self, change: Change) -> None:
        state, following = self._state, max([1, *(int(key) + 1 for key in change.classes)])
        before = Change(
            "",
            {key: state.classes.get(key) for key in change.classes},
            {key: state.images.get(key) for key in change.images},
        )
        try:
            with self._database as database:
                step, batch, _ = database.execute(_LAST_STEP).fetchone() or (0, "", "")
                if change.undoes:
                    database.execute("DELETE FROM undo WHERE step = ?", (step,))
                else:
                    step += not (change.group and change.group == batch)
                    row = (step, change.about, change.group, json.dumps(before.rows()))
                    database.execute("INSERT INTO undo (step, about, batch, rows) VALUES (?, ?, ?, ?)", row)
                    database.execute("DELETE FROM undo WHERE step <= ?", (step - UNDO_STEPS,))
                _write_rows(database, change)
                database.execute(
                    "UPDATE project SET revision = revision + 1, next_class = max(next_class, ?)",
                    (following,),
                )
        except sqlite3.Error as error:
            raise ProlipError(
                f"cannot write {self.folder / DATABASE}: {error}; all earlier changes are saved"
            ) from error

    def subscribe(self, listener: Callable[[Change, int], None]) -> None:
        """Call `listener` with each change and its revision, in order."""
        self._listeners.append(listener)

    def undo(self) -> Change:
        """Undo the last change, with all of its group; returns an empty change if there is none."""

        def last(state: State) -> Change:
            query = "SELECT about, rows FROM undo WHERE step = (SELECT max(step) FROM undo) ORDER BY number"
            change = Change("")
            for about, text in reversed(self._database.execute(query).fetchall()):
                rows = json.loads(text)
                change = Change(
                    about,
                    {**change.classes, **read_rows(rows["classes"], ClassRow)},
                    {**change.images, **read_rows(rows["images"], ImageRow)},
                    undoes=True,
                )
            return change

        return self.commit(last)

    def _read_undo(self) -> None:
        last = self._database.execute(_LAST_STEP).fetchone()
        self.can_undo = last[2] if last else ""

    def add_image(
        self,
        image: str,
        data: bytes,
        thumbnail: bytes,
        name: str,
        label: str | None = None,
        group: str = "",
        test: bool = False,
    ) -> str:
        """Write an image, whose id is the SHA-256 of its bytes, and its thumbnail, then add it.

        Returns "added", "moved" (to another class) or "known" (nothing changed).
        """
        known = False

        def edit(state: State) -> Change:
            nonlocal known
            known = image in state.images
            return edits.add_image(state, image, name, label, group, test)

        if label is not None:
            edits.require_class(self._state, label)  # before anything is written
        if not self.image(image).is_file():
            write_bytes(self.image(image), data, durable=True)
        self.write_thumbnail(image, thumbnail)
        change = self.commit(edit)
        return ("moved" if change else "known") if known else "added"

    def write_thumbnail(self, image: str, thumbnail: bytes) -> None:
        """Write a thumbnail, not durably: a lost one is made again."""
        if not self.thumbnail(image).is_file():
            write_bytes(self.thumbnail(image), thumbnail)

    def image(self, image: str) -> Path:
        """Return the file of an image."""
        return image_file(self.folder, image)

    def thumbnail(self, image: str) -> Path:
        """Return the file of its thumbnail."""
        return _thumbnail_file(self.folder, image)


def image_file(folder: Path, image: str) -> Path:
    """Return the file of an image of a project; an id of a stranger's project must not lead elsewhere."""
    if not _IMAGE_ID.fullmatch(image):
        raise InputError(f"{image[:80]!r} cannot be the id of an image")
    return folder / "images" / image[:2] / image


def _thumbnail_file(folder: Path, image: str) -> Path:
    return folder / "thumbnails" / image[:2] / f"{image_file(folder, image).name}.jpg"


def _read_state(database: sqlite3.Connection, next_class: int = 1) -> State:
    classes = database.execute("SELECT id, name, text FROM classes").fetchall()
    images = database.execute(
        "SELECT id, name, label, checked, test FROM images WHERE NOT removed ORDER BY rowid"
    ).fetchall()
    return State(
        {str(key): ClassRow(name, text) for key, name, text in classes},
        {key: ImageRow(name, label, bool(checked), bool(test)) for key, name, label, checked, test in images},
        next_class,
    )


def _write_rows(database: sqlite3.Connection, change: Change) -> None:
    for key, row in change.classes.items():
        if row is None:
            database.execute("DELETE FROM classes WHERE id = ?", (key,))
        else:
            database.execute("INSERT OR REPLACE INTO classes VALUES (?, ?, ?)", (key, row.name, row.text))
    for image, image_row in change.images.items():
        if image_row is None:
            database.execute("UPDATE images SET removed = 1 WHERE id = ?", (image,))
        else:  # not REPLACE, which would move the row to the end
            database.execute(
                "INSERT INTO images VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET name = "
                "excluded.name, label = excluded.label, checked = excluded.checked, test = excluded.test, "
                "removed = 0",
                (image, image_row.name, image_row.label, image_row.checked, image_row.test),
            )


def _create(folder: Path, model: BaseModel) -> None:
    """Make an empty project, or one with what the former format has in this folder."""
    state = read_format2(folder)[2] if (folder / "project.json").is_file() else State()
    with closing(open_database(folder / _UNFINISHED, _SCHEMA)) as database, database:
        if not database.execute("SELECT 1 FROM project").fetchone():  # it was not killed before the renaming
            _write_rows(database, Change("", {**state.classes}, {**state.images}))
            row = (model.name, model.fingerprint, state.next_class)
            database.execute("INSERT INTO project VALUES (?, ?, 0, ?)", row)
    (folder / _UNFINISHED).replace(folder / DATABASE)


def _delete_removed(database: sqlite3.Connection, folder: Path) -> None:
    """Delete the files of images that were removed, and that undo cannot restore."""
    undo = database.execute("SELECT rows FROM undo").fetchall()
    restorable = {image for (rows,) in undo for image, row in json.loads(rows)["images"].items() if row}
    with database:
        for (image,) in database.execute("SELECT id FROM images WHERE removed").fetchall():
            if image not in restorable:
                image_file(folder, image).unlink(missing_ok=True)
                _thumbnail_file(folder, image).unlink(missing_ok=True)
                database.execute("DELETE FROM images WHERE id = ?", (image,))


def _reject_links(folder: Path) -> None:
    """Refuse a project in which a file or folder is a link: it could lead to files of the user's."""
    for place in (folder, folder / "images", folder / "thumbnails", folder / "features"):
        for path in place.iterdir() if place.is_dir() else ():
            if path.is_symlink() and path.name != LINK:
                raise InputError(f"{path} is a link, which a project must not have: remove it")
