"""A project on disk: a folder that holds everything, and is right at every moment.

    project.json       the format and the base model
    snapshot.json, journal-R.jsonl    classes, pictures and changes of them: see `journal.py`
    images/ab/abcd...  pictures as they came, by the SHA-256 of their content
    thumbnails/ab/...  small JPEGs of them
    features/          their features (`prolip.features.FeatureStore`)

A picture is on disk before the change that names it, and the change before anyone is told. So whatever moment
the program or the machine stops at, all that was acknowledged is there. Pictures that were removed, and that
undo cannot bring back any more, are deleted when a project is opened and when its journal is compacted.

A project may come from someone else: it holds files and folders of its own only, no links, and nothing in it
is changed before all of it was checked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from prolip.app import edits
from prolip.app.journal import JOURNAL, SNAPSHOT, Journal, to_json
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


class ForeignFile(InputError):  # noqa: N818 - reads as what it is where it is caught
    """A project holds a link, or another file that is not a plain one; `path` says which."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is a link or a special file, which a project never holds: "
            "put the file or folder itself there, or remove it"
        )
        self.path = path


@dataclass(frozen=True)
class BaseModel:
    """The base model that a project names: its name, and the fingerprint of its weights where known."""

    name: str = "offline"
    fingerprint: str = ""


class Project:
    """An open project; any thread may call it."""

    def __init__(self, folder: Path, model: str, journal: Journal) -> None:
        self.folder, self.model = folder, model
        self._journal, self._lock = journal, Lock()
        self._arriving: Counter[str] = Counter()  # pictures whose files are written, and not yet their rows
        self._listeners: list[Callable[[Change, int], None]] = []
        self.state = journal.history.state()
        self._remove_unused_images()

    @staticmethod
    def base_model(folder: Path) -> BaseModel:
        """The base model of a project, or of a new one in a folder that is new or empty."""
        about = folder / "project.json"
        if not os.path.lexists(about):
            if folder.is_dir() and any(folder.iterdir()):
                raise UsageError(f"{folder} holds other files: name a new folder, or an empty one")
            return BaseModel()
        _require_own(about)
        found = read_json(about)
        texts = (found.get("model"), found.get("fingerprint", "")) if isinstance(found, dict) else (None,)
        if not all(map(is_text, texts)) or not texts[0]:
            raise InputError(f"{about} is damaged: it does not name a model")
        if found.get("format") != FORMAT:
            raise UsageError(
                f"{folder} is a project of format {str(found.get('format'))[:20]}, this version of prolip "
                f"reads format {FORMAT}: use the version that made it"
            )
        return BaseModel(*texts)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, encoder: Encoder | None = None) -> Iterator[Project]:
        """Open a project, or make a new one; the encoder, where there is one, becomes its base model."""
        folder = follow(folder)
        found = cls.base_model(folder)
        about, is_new = folder / "project.json", not (folder / "project.json").is_file()
        model = found if encoder is None else BaseModel(encoder.name, encoder.fingerprint)
        content = to_json({"format": FORMAT, "model": model.name, "fingerprint": model.fingerprint})
        if is_new:
            write_bytes(about, content, durable=True)
        _require_no_links(folder)
        with Journal.open(folder) as journal:
            if model != found and not is_new:
                write_bytes(about, content, durable=True)
            yield cls(folder, model.name, journal)

    @property
    def name(self) -> str:
        """What the project is called: as its folder."""
        return self.folder.name or "project"

    @property
    def revision(self) -> int:
        """The number of changes that there were; goes up with each."""
        return self._journal.history.revision

    def commit(self, edit: Callable[[State], Change]) -> Change:
        """Make a change of the state as it is now, and write it to disk; an empty one is not written."""
        with self._lock:
            change = edit(self.state)
            if change:
                self._journal.append(change)
                self.state = self._journal.history.state()
                for listener in self._listeners:
                    listener(change, self.revision)
                if self._journal.is_long:
                    self._remove_unused_images()  # first: a snapshot does not list them
                    with suppress(ProlipError):  # a full disk; the change itself is written
                        self._journal.compact()
            return change

    def subscribe(self, listener: Callable[[Change, int], None]) -> None:
        """Call with each change and the revision it makes, in order."""
        self._listeners.append(listener)

    def undo(self) -> Change:
        """Take back the last change, with all of its group; empty where there is none."""

        def last(state: State) -> Change:
            undo = self._journal.history.undo
            return undo[-1].change() if undo else Change("")

        return self.commit(last)

    @property
    def can_undo(self) -> str:
        """What `undo` would take back, for people; empty where there is nothing."""
        undo = self._journal.history.undo
        return undo[-1].about if undo else ""

    def add_image(
        self, data: bytes, thumbnail: bytes, name: str, label: str | None = None, group: str = ""
    ) -> tuple[str, str]:
        """Write a picture and its small copy, then add it.

        Returns its id, and "added", "moved" (to another class) or "known" (nothing changed).
        """
        image, known = hashlib.sha256(data).hexdigest(), False

        def edit(state: State) -> Change:
            nonlocal known
            known = image in state.images
            return edits.add_image(state, image, name, label, group)

        with self._lock:
            self._arriving[image] += 1
        try:
            if not self.image(image).is_file():
                write_bytes(self.image(image), data, durable=True)
            self.write_thumbnail(image, thumbnail)
            change = self.commit(edit)
        finally:
            with self._lock:
                self._arriving[image] -= 1
                self._arriving += Counter()  # without those that are at 0
        return image, ("moved" if change else "known") if known else "added"

    def write_thumbnail(self, image: str, thumbnail: bytes) -> None:
        """Write a small copy; one that a power failure takes can be drawn again."""
        if not self.thumbnail(image).is_file():
            write_bytes(self.thumbnail(image), thumbnail)

    def image(self, image: str) -> Path:
        """The file of a picture. An id is checked where it comes in: it never holds a path."""
        return self.folder / "images" / image[:2] / image

    def thumbnail(self, image: str) -> Path:
        """The file of its small copy."""
        return self.folder / "thumbnails" / image[:2] / f"{image}.jpg"

    def _remove_unused_images(self) -> None:
        """Delete the files of pictures that are not in the project, and that undo cannot bring back."""
        history = self._journal.history
        unused = history.unused_images() - set(self._arriving)
        with suppress(OSError):  # tried again when the project is opened next
            for image in unused:
                self.image(image).unlink(missing_ok=True)
                self.thumbnail(image).unlink(missing_ok=True)
            history.forget_images(unused)


def _require_own(path: Path) -> None:
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise ForeignFile(path)


def _require_no_links(folder: Path | str, depth: int = 0) -> None:
    """Refuse a project in which a file or folder of ours is a link, or a pipe or device."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if depth == 0 and not _OWN.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                _require_no_links(entry.path, depth + 1)
            elif not entry.is_file(follow_symlinks=False):
                raise ForeignFile(Path(entry.path))
