"""A project on disk: a folder that holds everything, and is right at every moment.

    project.json       the format and the base model
    journal.jsonl      one change a line, in order; the state is all of them together
    images/ab/abcd...  pictures as they came, by the SHA-256 of their content
    thumbnails/ab/...  small JPEGs of them
    features/          their features (`prolip.features.FeatureStore`)

A picture is on disk before the line that names it, and the line is on disk, not in a buffer of the system,
before anyone is told. So whatever moment the program or the machine stops at, all that was reported is there.
One process at a time has a project open: the journal is locked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from prolip.app.state import Change, State
from prolip.core import InputError, UsageError
from prolip.core.appending import Lines, appending
from prolip.core.reading import parse_json, read_json, read_text
from prolip.core.writing import bytes_writer, write_atomic, write_bytes, write_error

FORMAT = 1
UNDO = 500  # changes that can be undone


class Project:
    """An open project; any thread may call it."""

    def __init__(self, folder: Path, model: str, journal: Lines, lines: list[str]) -> None:
        self.folder, self.model = folder, model
        self.revision = len(lines)  # of the journal: goes up with every change
        self._journal, self._lock = journal, Lock()
        self._undo: deque[Change] = deque(maxlen=UNDO)
        self._listeners: list[Callable[[Change, int], None]] = []
        self.state = self._replay(lines)

    @staticmethod
    def model_of(folder: Path) -> str:
        """The base model of a project, or of a new one in a folder that is new or empty."""
        folder = folder.expanduser()
        about = folder / "project.json"
        if not about.is_file():
            if folder.is_dir() and any(folder.iterdir()):
                raise UsageError(f"{folder} holds other files: name a new folder, or an empty one")
            return "offline"
        found = read_json(about)
        if not isinstance(found, dict) or not isinstance(found.get("model"), str):
            raise InputError(f"{about} is damaged: it does not name a model")
        if found.get("format") != FORMAT:
            raise UsageError(f"{folder} is a project of another version: upgrade prolip")
        return str(found["model"])

    @classmethod
    @contextmanager
    def open(cls, folder: Path, model: str | None = None) -> Iterator[Project]:
        """Open a project, or make a new one; a model that is named is kept, so it must be one that loads."""
        kept = cls.model_of(folder)
        folder, model = folder.expanduser(), model or kept
        about, journal = folder / "project.json", folder / "journal.jsonl"
        if not about.is_file():
            _write(about, _json({"format": FORMAT, "model": kept}))
        with appending(journal) as file:
            if model != kept:
                _write(about, _json({"format": FORMAT, "model": model}))
            yield cls(folder, model, file, read_text(journal).splitlines())

    def _replay(self, lines: list[str]) -> State:
        state, changes = State(), []
        for number, line in enumerate(lines, 1):
            try:
                changes.append(Change.from_json(parse_json(line)))
            except ValueError as error:
                raise InputError(f"{self.folder / 'journal.jsonl'}, line {number}: {error}") from error
        recent = max(0, len(changes) - UNDO)
        state = state.after(changes[:recent])
        for change in changes[recent:]:
            state = self._remember(state, change)
        return state

    def commit(self, edit: Callable[[State], Change]) -> Change:
        """Make a change of the state as it is now, and keep it; an empty one is not written."""
        with self._lock:
            change = edit(self.state)
            if change:
                self._write_line(change)
                self.state = self._remember(self.state, change)
                self.revision += 1
                for listener in self._listeners:
                    listener(change, self.revision)
            return change

    def subscribe(self, listener: Callable[[Change, int], None]) -> None:
        """Call with each change and the revision it makes, in order."""
        self._listeners.append(listener)

    def undo(self) -> Change:
        """Take back the last change, with all of its group; empty where there is none."""
        return self.commit(lambda state: self._undo[-1] if self._undo else Change(""))

    @property
    def can_undo(self) -> str:
        """What `undo` would take back, for people; empty where there is nothing."""
        return self._undo[-1].about if self._undo else ""

    def _remember(self, state: State, change: Change) -> State:
        """The state after a change, whose inverse is kept."""
        last = self._undo.pop() if self._undo and (change.undoes or change.group) else None
        if not change.undoes:
            inverse = state.inverse(change)
            if last is not None and last.group == change.group:  # rows as they were before the whole group
                inverse = replace(
                    inverse,
                    classes={**inverse.classes, **last.classes},
                    images={**inverse.images, **last.images},
                )
            elif last is not None:
                self._undo.append(last)
            self._undo.append(inverse)
        return state.after([change])

    def _write_line(self, change: Change) -> None:
        try:
            self._journal.write(_json(change.as_json()).decode() + "\n", sync=True)
        except OSError as error:
            raise write_error(
                self.folder / "journal.jsonl", error, "what was kept before is there"
            ) from error

    def keep_image(self, data: bytes, thumbnail: bytes) -> str:
        """Write a picture and its small copy; returns its id."""
        image = hashlib.sha256(data).hexdigest()
        if not self.image(image).is_file():
            _write(self.image(image), data)
        self.keep_thumbnail(image, thumbnail)
        return image

    def keep_thumbnail(self, image: str, thumbnail: bytes) -> None:
        """Write a small copy; one that a power failure takes can be drawn again."""
        if not self.thumbnail(image).is_file():
            write_bytes(self.thumbnail(image), thumbnail)

    def image(self, image: str) -> Path:
        """The file of a picture. An id is checked where it comes in: it never holds a path."""
        return self.folder / "images" / image[:2] / image

    def thumbnail(self, image: str) -> Path:
        """The file of its small copy."""
        return self.folder / "thumbnails" / image[:2] / f"{image}.jpg"


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is on the disk, name and all, when this returns."""
    write_atomic(path, bytes_writer(content, durable=True))
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
