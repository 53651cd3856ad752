"""A project on disk: one folder, consistent at every moment.

    project.json       the format and the base model
    snapshot.json, journal-R.jsonl    classes, images and their changes: see `journal.py`
    images/ab/abcd...  images as they were uploaded, by the SHA-256 of their content
    thumbnails/ab/...  small JPEGs of them
    features/          their features (`prolip.features.FeatureStore`)

An image is on disk before the change that names it, and the change before it is acknowledged. So whenever the
program or the machine stops, all that was acknowledged is there. Images that were removed, and that undo can
no longer restore, are deleted when a project is opened and when its journal is compacted.

A project may come from someone else: one with links or special files in it is refused, and nothing is changed
before everything has been checked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from prolip.app import edits
from prolip.app.journal import JOURNAL, SNAPSHOT, DamagedProject, Journal, to_json
from prolip.app.state import Change, State, is_text
from prolip.core import InputError, ProlipError, UsageError
from prolip.io.reading import read_json
from prolip.io.writing import follow, write_bytes

if TYPE_CHECKING:
    from prolip.encoders import Encoder

FORMAT = 2
_OWN = re.compile(
    rf"project\.json|{re.escape(SNAPSHOT)}|{JOURNAL.pattern}|images|thumbnails|features|\.prolip-tmp-.*"
)


@dataclass(frozen=True)
class BaseModel:
    """The name of a project's base model, and the fingerprint of its weights if known."""

    name: str = "offline"
    fingerprint: str = ""


class Project:
    """An open project. Thread-safe."""

    def __init__(self, folder: Path, model: str, journal: Journal) -> None:
        self.folder, self.model = folder, model
        self._journal, self._lock = journal, Lock()
        self._listeners: list[Callable[[Change, int], None]] = []
        self.state = journal.history.state()
        self._remove_unused_images()

    @staticmethod
    def base_model(folder: Path) -> BaseModel:
        """Return the base model of a project; the default for a folder that is new or empty."""
        about = folder / "project.json"
        if not os.path.lexists(about):
            if folder.is_dir() and any(folder.iterdir()):
                raise UsageError(f"{folder} has other files in it: use a new or empty folder")
            return BaseModel()
        _require_plain(about)
        found = read_json(about)
        texts = (found.get("model"), found.get("fingerprint", "")) if isinstance(found, dict) else (None,)
        if not all(map(is_text, texts)) or not texts[0]:
            raise DamagedProject(about, "it does not name a model")
        if found.get("format") != FORMAT:
            raise UsageError(
                f"{folder} is a project of format {str(found.get('format'))[:20]}, this version of prolip "
                f"reads format {FORMAT}: use the version that wrote it"
            )
        return BaseModel(*texts)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, encoder: Encoder | None = None) -> Iterator[Project]:
        """Open a project, or make a new one; `encoder`, if given, becomes its base model."""
        folder = follow(folder)
        found = cls.base_model(folder)
        about, is_new = folder / "project.json", not (folder / "project.json").is_file()
        model = found if encoder is None else BaseModel(encoder.name, encoder.fingerprint)
        if is_new:
            _write_about(about, model)
        _require_no_links(folder)
        with Journal.open(folder) as journal:
            if model != found and not is_new:
                _write_about(about, model)
            yield cls(folder, model.name, journal)

    def set_model(self, encoder: Encoder) -> None:
        """Make another encoder the base model."""
        _write_about(self.folder / "project.json", BaseModel(encoder.name, encoder.fingerprint))
        self.model = encoder.name

    @property
    def name(self) -> str:
        """The name of the project's folder."""
        return self.folder.name or "project"

    @property
    def revision(self) -> int:
        """The number of changes so far."""
        return self._journal.history.revision

    def commit(self, edit: Callable[[State], Change]) -> Change:
        """Apply an edit to the current state and write the change to disk, unless it is empty."""
        with self._lock:
            change = edit(self.state)
            if change:
                self._journal.append(change)
                self.state = self._journal.history.state()
                for listener in self._listeners:
                    listener(change, self.revision)
                if self._journal.is_long:
                    self._remove_unused_images()  # first, as a snapshot does not list them
                    with suppress(ProlipError):  # a full disk; the change itself is written
                        self._journal.compact()
            return change

    def subscribe(self, listener: Callable[[Change, int], None]) -> None:
        """Call `listener` with each change and its revision, in order."""
        self._listeners.append(listener)

    def undo(self) -> Change:
        """Undo the last change, with all of its group; returns an empty change if there is none."""

        def last(state: State) -> Change:
            undo = self._journal.history.undo
            return undo[-1] if undo else Change("")

        return self.commit(last)

    @property
    def can_undo(self) -> str:
        """Description of the change that `undo` would undo; empty if there is none."""
        undo = self._journal.history.undo
        return undo[-1].about if undo else ""

    def add_image(
        self, data: bytes, thumbnail: bytes, name: str, label: str | None = None, group: str = ""
    ) -> tuple[str, str]:
        """Write an image and its thumbnail, then add it.

        Returns its id, and "added", "moved" (to another class) or "known" (nothing changed).
        """
        image, known = hashlib.sha256(data).hexdigest(), False

        def write() -> None:
            if not self.image(image).is_file():
                write_bytes(self.image(image), data, durable=True)
            self.write_thumbnail(image, thumbnail)

        def edit(state: State) -> Change:
            nonlocal known
            known = image in state.images
            write()  # again, if it was deleted meanwhile as an image that undo cannot restore
            return edits.add_image(state, image, name, label, group)

        write()  # before the project is locked, as it takes a while
        change = self.commit(edit)
        return image, ("moved" if change else "known") if known else "added"

    def write_thumbnail(self, image: str, thumbnail: bytes) -> None:
        """Write a thumbnail, not durably: a lost one is made again."""
        if not self.thumbnail(image).is_file():
            write_bytes(self.thumbnail(image), thumbnail)

    def image(self, image: str) -> Path:
        """Return the file of an image. Ids are checked where they are read: they are never paths."""
        return self.folder / "images" / image[:2] / image

    def thumbnail(self, image: str) -> Path:
        """Return the file of its thumbnail."""
        return self.folder / "thumbnails" / image[:2] / f"{image}.jpg"

    def _remove_unused_images(self) -> None:
        """Delete the files of images that are not in the project, and that undo cannot restore."""
        history = self._journal.history
        unused = history.unused_images()
        with suppress(OSError):  # tried again when the project is opened next
            for image in unused:
                self.image(image).unlink(missing_ok=True)
                self.thumbnail(image).unlink(missing_ok=True)
            history.forget_images(unused)


def _write_about(path: Path, model: BaseModel) -> None:
    content = {"format": FORMAT, "model": model.name, "fingerprint": model.fingerprint}
    write_bytes(path, to_json(content), durable=True)


def _require_plain(path: Path) -> None:
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise InputError(
            f"{path} is a link or a special file, which a project must not have: "
            "replace it by the file or folder itself, or remove it"
        )


def _require_no_links(folder: Path | str, depth: int = 0) -> None:
    """Refuse a project in which one of our files or folders is a link, pipe or device."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if depth == 0 and not _OWN.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                _require_no_links(entry.path, depth + 1)
            elif not entry.is_file(follow_symlinks=False):
                _require_plain(Path(entry.path))
