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
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

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
CREATE TABLE project (model TEXT, revision INTEGER, next_class INTEGER);
CREATE TABLE classes (id TEXT PRIMARY KEY, row TEXT);
CREATE TABLE images (id TEXT PRIMARY KEY, row TEXT);
CREATE TABLE undo (number INTEGER PRIMARY KEY, step INTEGER, about TEXT, batch TEXT, rows TEXT);
CREATE INDEX undo_step ON undo (step);
PRAGMA user_version = 3
"""
_LAST_STEP = "SELECT step, batch, about FROM undo ORDER BY number DESC LIMIT 1"
_IMAGE_ID = re.compile(r"[0-9a-f]{64}")


class Project:
    """An open project. Thread-safe."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder = folder
        self._database, self._lock = database, Lock()
        self._listeners: list[Callable[[Change, int], None]] = []
        self._state = _read_state(database)  # changes in place, while the lock is held
        self.model, self.revision = database.execute("SELECT model, revision FROM project").fetchone()
        self.can_undo = ""  # description of the change that `undo` would undo; empty if there is none
        self._read_undo()

    @staticmethod
    def base_model(folder: Path) -> str:
        """Return the name of a project's base model; the default for a folder that is new or empty."""
        if (folder / DATABASE).is_file():
            with closing(open_database(folder / DATABASE, _SCHEMA, read_only=True)) as database:
                return str(database.execute("SELECT model FROM project").fetchone()[0])
        if (folder / "project.json").is_file():
            return read_format2(folder)[0]
        if folder.is_dir() and any(
            not path.name.startswith((LOCK, _UNFINISHED)) for path in folder.iterdir()
        ):
            raise UsageError(f"{folder} has other files in it: use a new or empty folder")
        return "offline"

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
            raise UsageError(f"another program has the project in {folder} open") from error
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
            database.execute("UPDATE project SET model = ?", (encoder.name,))
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
        before, state = self._state.rows_before(change), self._state
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
                following = max([state.next_class, *(int(key) + 1 for key in change.classes)])
                database.execute("UPDATE project SET revision = revision + 1, next_class = ?", (following,))
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
            write_bytes(self.image(image), data)
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


def is_project(folder: str | Path) -> bool:
    """Whether a folder is a project."""
    return (Path(folder) / DATABASE).is_file()


def labelled_images(folder: Path, test: bool = False) -> dict[str, list[Path]]:
    """Return the labelled images of a project by class: for training, or its test images if it has any."""
    state = Project.read(folder)
    test = test and any(row.test for row in state.images.values())
    found: dict[str, list[Path]] = {}
    for image, row in state.images.items():
        if row.label is not None and row.test == test:
            found.setdefault(state.classes[row.label].name, []).append(image_file(folder, image))
    return found


def image_file(folder: Path, image: str) -> Path:
    """Return the file of an image of a project; an id of a stranger's project must not lead elsewhere."""
    if not _IMAGE_ID.fullmatch(image):
        raise InputError(f"{image[:80]!r} cannot be the id of an image")
    return folder / "images" / image[:2] / image


def _thumbnail_file(folder: Path, image: str) -> Path:
    return folder / "thumbnails" / image[:2] / f"{image_file(folder, image).name}.jpg"


def _read_state(database: sqlite3.Connection) -> State:
    def table(name: str) -> dict[str, Any]:
        rows = database.execute(f"SELECT id, row FROM {name} ORDER BY rowid").fetchall()
        return {key: json.loads(row) for key, row in rows}

    try:
        classes, images = read_rows(table("classes"), ClassRow), read_rows(table("images"), ImageRow)
        if odd := [image for image in images if not _IMAGE_ID.fullmatch(image)]:
            raise ValueError(f"{odd[0][:80]!r} cannot be the id of an image")
    except (ValueError, TypeError) as error:
        raise InputError(f"the project is damaged: {error}") from error
    return State(classes, images, database.execute("SELECT next_class FROM project").fetchone()[0])


def _write_rows(database: sqlite3.Connection, change: Change) -> None:
    for table, rows in change.rows().items():
        for key, row in rows.items():
            if row is None:
                database.execute(f"DELETE FROM {table} WHERE id = ?", (key,))
            else:  # not REPLACE, which would move the row to the end
                query = f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO UPDATE SET row = excluded.row"
                database.execute(query, (key, json.dumps(row)))


def _create(folder: Path, model: str) -> None:
    """Make an empty project, or one with what the former format has in this folder."""
    state = read_format2(folder)[1] if (folder / "project.json").is_file() else State()
    with closing(open_database(folder / _UNFINISHED, _SCHEMA)) as database, database:
        if not database.execute("SELECT 1 FROM project").fetchone():  # it was not killed before the renaming
            _write_rows(database, Change("", {**state.classes}, {**state.images}))
            database.execute("INSERT INTO project VALUES (?, 0, ?)", (model, state.next_class))
    (folder / _UNFINISHED).replace(folder / DATABASE)


def _delete_removed(database: sqlite3.Connection, folder: Path) -> None:
    """Delete the files of images that were removed, and that undo cannot restore."""
    used = {image for (image,) in database.execute("SELECT id FROM images")}
    for (rows,) in database.execute("SELECT rows FROM undo"):
        used.update(json.loads(rows)["images"])
    for file in (folder / "images").glob("??/*"):
        if _IMAGE_ID.fullmatch(file.name) and file.name not in used:
            file.unlink()
            _thumbnail_file(folder, file.name).unlink(missing_ok=True)


def _reject_links(folder: Path) -> None:
    """Refuse a project in which a file or folder is a link: it could lead to files of the user's."""
    for place in (folder, folder / "images", folder / "thumbnails", folder / "features"):
        for path in place.iterdir() if place.is_dir() else ():
            if path.is_symlink() and path.name != LINK:
                raise InputError(f"{path} is a link, which a project must not have: remove it")
