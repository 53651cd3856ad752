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
from typing import Any

from filelock import FileLock, Timeout

from prolip.app import PROJECT_FILE, edits
from prolip.app.state import Change, ClassRow, ImageRow, State, read_rows
from prolip.core import UsageError
from prolip.io.sqlite import open_database
from prolip.io.writing import follow, write_bytes

UNDO_STEPS = 200
DATABASE, LOCK, LINK = PROJECT_FILE, "project.lock", "open-page.html"
_SCHEMA = """
CREATE TABLE project (model TEXT, revision INTEGER);
CREATE TABLE classes (id TEXT PRIMARY KEY, row TEXT);
CREATE TABLE images (id TEXT PRIMARY KEY, row TEXT);
CREATE TABLE undo (number INTEGER PRIMARY KEY, step INTEGER, about TEXT, batch TEXT, rows TEXT);
CREATE INDEX undo_step ON undo (step);
INSERT INTO project VALUES ('offline', 0);
PRAGMA user_version = 4
"""
_LAST_STEP = "SELECT step, batch, about FROM undo ORDER BY number DESC LIMIT 1"
_IMAGE_ID = re.compile(r"[0-9a-f]{64}")


class ProjectInUseError(UsageError):
    """Another program has the project open."""


class Project:
    """An open project. Thread-safe."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder, self.name = folder, folder.name or "project"
        self._database, self._lock = database, Lock()
        self._listeners: list[Callable[[Change, int], None]] = []
        self._state = _read_state(database)  # changes in place, while the lock is held
        self.can_undo = self._last_step()[2]  # description of what `undo` would undo; empty: nothing

    @staticmethod
    def base_model(folder: Path) -> str:
        """Return the name of a project's base model; the default for a folder that is new or empty."""
        if (folder / DATABASE).is_file():
            with closing(open_database(folder / DATABASE, _SCHEMA)) as database:
                return str(database.execute("SELECT model FROM project").fetchone()[0])
        if folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()):
            raise UsageError(f"{folder} has other files in it: use a new or empty folder")
        return "offline"

    @staticmethod
    def read(folder: Path) -> State:
        """Return the classes and images of a project, which another program may have open."""
        with closing(open_database(folder / DATABASE, _SCHEMA, read_only=True)) as database:
            return _read_state(database)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, model: str | None = None) -> Iterator[Project]:
        """Open a project, or make a new one; `model`, if given, becomes its base model."""
        folder = follow(folder)
        cls.base_model(folder)  # refuses a folder of other files
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(folder / LOCK).acquire(timeout=0)
        except Timeout as error:
            raise ProjectInUseError(f"another program has the project in {folder} open") from error
        with lock, closing(open_database(folder / DATABASE, _SCHEMA)) as database:
            database.execute("PRAGMA synchronous = FULL")  # a change survives a power cut, too
            _delete_removed(database, folder)
            project = cls(folder, database)
            if model is not None:
                project.set_model(model)
            yield project

    def set_model(self, name: str) -> None:
        """Make another model the base model."""
        with self._lock, self._database as database:
            database.execute("UPDATE project SET model = ?", (name,))

    @property
    def state(self) -> State:
        """A copy of the tables."""
        with self._lock:
            return self._state.copy()

    @property
    def revision(self) -> int:
        """Number of changes so far."""
        return self._state.revision

    def subscribe(self, listener: Callable[[Change, int], None]) -> None:
        """Call `listener` with each change and its revision, in order."""
        self._listeners.append(listener)

    def commit(self, edit: Callable[[State], Change]) -> Change:
        """Apply an edit to the current state and write the change to disk, unless it is empty."""
        with self._lock:
            change = edit(self._state)
            if change:
                with self._database:
                    self._write(change)
                self._state.apply(change)
                self.can_undo = self._last_step()[2]
                for listener in self._listeners:
                    listener(change, self.revision)
            return change

    def _write(self, change: Change) -> None:
        database = self._database
        step, batch, _ = self._last_step()
        if change.undoes:
            database.execute("DELETE FROM undo WHERE step = ?", (step,))
        else:
            step += not (change.group and change.group == batch)
            before = json.dumps(self._state.rows_before(change).rows())
            row = (step, change.about, change.group, before)
            database.execute("INSERT INTO undo (step, about, batch, rows) VALUES (?, ?, ?, ?)", row)
            database.execute("DELETE FROM undo WHERE step <= ?", (step - UNDO_STEPS,))
        for table, rows in change.rows().items():
            for key, value in rows.items():
                if value is None:
                    database.execute(f"DELETE FROM {table} WHERE id = ?", (key,))
                else:  # not REPLACE, which would move the row to the end
                    query = f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO UPDATE SET row = excluded.row"
                    database.execute(query, (key, json.dumps(value)))
        database.execute("UPDATE project SET revision = revision + 1")

    def _last_step(self) -> tuple[int, str, str]:
        """Return number, group and description of the last step that can be undone."""
        return self._database.execute(_LAST_STEP).fetchone() or (0, "", "")

    def undo(self) -> Change:
        """Undo the last change, with all of its group; returns an empty change if there is none."""

        def last(state: State) -> Change:
            query = "SELECT about, rows FROM undo WHERE step = (SELECT max(step) FROM undo) ORDER BY number"
            steps = self._database.execute(query).fetchall()
            change = Change(steps[0][0] if steps else "", undoes=True)
            for _, text in reversed(steps):
                rows = json.loads(text)
                change.classes.update(read_rows(rows["classes"], ClassRow))
                change.images.update(read_rows(rows["images"], ImageRow))
            return change

        return self.commit(last)

    def add_image(self, image: str, data: bytes, thumbnail: bytes, **fields: Any) -> str:
        """Write an image, whose id is the SHA-256 of its bytes, and its thumbnail, then add it.

        `fields` are those of `edits.add_image`. Returns "added", "moved" (to another class) or "known"
        (nothing changed).
        """
        known = image in self.state.images
        for file, content in ((self.image(image), data), (self.thumbnail(image), thumbnail)):
            if not file.is_file():
                write_bytes(file, content)
        change = self.commit(lambda state: edits.add_image(state, image, **fields))
        return ("moved" if change else "known") if known else "added"

    def image(self, image: str) -> Path:
        """Return the file of an image."""
        return image_file(self.folder, image)

    def thumbnail(self, image: str) -> Path:
        """Return the file of its thumbnail."""
        return _thumbnail_file(self.folder, image)


def labelled_images(folder: Path, test: bool = False) -> dict[str, list[Path]]:
    """Return the images of a project that a person labelled, by class: for training, or its test images."""
    state = Project.read(folder)
    test = test and any(row.test for row in state.images.values())
    files: dict[str, list[Path]] = {}
    for image, row in state.images.items():
        if row.label is not None and row.test == test and not row.machine:
            files.setdefault(state.classes[row.label].name, []).append(image_file(folder, image))
    return files


def image_file(folder: Path, image: str) -> Path:
    """Return the file of an image of a project."""
    return folder / "images" / image[:2] / image


def _thumbnail_file(folder: Path, image: str) -> Path:
    return folder / "thumbnails" / image[:2] / f"{image}.jpg"


def _read_state(database: sqlite3.Connection) -> State:
    def table(name: str, kind: type[Any]) -> dict[str, Any]:
        rows = database.execute(f"SELECT id, row FROM {name} ORDER BY rowid").fetchall()
        return read_rows({key: json.loads(row) for key, row in rows}, kind)

    revision = database.execute("SELECT revision FROM project").fetchone()[0]
    return State(table("classes", ClassRow), table("images", ImageRow), revision)


def _delete_removed(database: sqlite3.Connection, folder: Path) -> None:
    """Delete the files of images that were removed, and that undo cannot restore."""
    used = {image for (image,) in database.execute("SELECT id FROM images")}
    for (rows,) in database.execute("SELECT rows FROM undo"):
        used.update(json.loads(rows)["images"])
    for file in (folder / "images").glob("??/*"):
        if _IMAGE_ID.fullmatch(file.name) and file.name not in used:
            file.unlink()
            _thumbnail_file(folder, file.name).unlink(missing_ok=True)
