"""The changes of a project on disk: a snapshot, and a journal of the changes since.

    snapshot.json       the history at one revision R; absent at first
    journal-R.jsonl     one change a line, in order, since revision R

A change is on the disk, not in a buffer of the system, before `append` returns. An incomplete last line, left
by a program or machine that stopped, is dropped when the journal is opened; it was never acknowledged.

A journal that is much larger than its snapshot is compacted: the next journal is created, the snapshot is
replaced atomically, the old journal is removed. Whenever the program stops, there are a snapshot and the
journal that belongs to it. Only one process at a time has a project open: the others find it locked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from prolip.app.history import History
from prolip.app.state import Change
from prolip.core import InputError
from prolip.io.appending import Lines, appending
from prolip.io.files import fsync_folder
from prolip.io.locks import lock_file, locked
from prolip.io.reading import parse_json, read_json
from prolip.io.writing import WriteError, check_place, write_bytes

SNAPSHOT = "snapshot.json"
JOURNAL = re.compile(r"journal-(0|[1-9][0-9]{0,17})\.jsonl")
MEGABYTE = 1 << 20
# Bytes, far above what we write: a project has at most 20,000 images, and a row at most 500 bytes.
SNAPSHOT_LIMIT = 512 * MEGABYTE
LINE_LIMIT = 64 * MEGABYTE
COMPACT_AT = 4 * MEGABYTE  # a journal that is larger than its snapshot by this much is compacted


class DamagedProject(InputError):  # noqa: N818 - names the file, not the failure
    """A file of a project cannot be read as one: `path`, and `line` if it has lines."""

    def __init__(self, path: Path, reason: object, line: int | None = None) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'} is damaged: {reason}")
        self.path, self.line = path, line


class Journal:
    """The open journal of a project, and its history. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.history = folder, History()
        self._open = ExitStack()
        self._lines: Lines
        self._path: Path
        self._limit = 0  # bytes of the journal above which it is compacted

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Journal]:
        """Lock the project and read all changes. Nothing is written unless everything is valid."""
        check_place(folder)
        made = cls(folder)
        with locked(lock_file(folder / SNAPSHOT), folder):
            try:
                made._read()
                made._remove_others()
                yield made
            finally:
                made._open.close()

    def append(self, change: Change) -> None:
        """Write a change, then apply it."""
        try:
            self._lines.write(to_json(change.as_json()).decode() + "\n", sync=True)
        except OSError as error:
            raise WriteError(self._path, error, "all earlier changes are saved") from error
        self.history.apply(change)

    @property
    def is_long(self) -> bool:
        """Whether it should be compacted."""
        return self._lines.size > self._limit

    def compact(self) -> None:
        """Replace the journal by a snapshot. A failure, such as a full disk, changes nothing."""
        opened, revision = ExitStack(), self.history.revision
        path = self.folder / f"journal-{revision}.jsonl"
        if path == self._path:
            return
        self._limit = self._lines.size + COMPACT_AT  # when to try again, should this fail
        try:
            lines = opened.enter_context(appending(path))
            payload = to_json(self.history.as_json())
            write_bytes(self.folder / SNAPSHOT, payload, durable=True)
        except BaseException:
            opened.close()
            raise
        self._open.close()
        self._open, self._lines, self._path = opened, lines, path
        self._limit = COMPACT_AT + len(payload)
        self._remove_others()

    def _read(self) -> None:
        snapshot = self.folder / SNAPSHOT
        self.history, size = read_snapshot(snapshot)
        self._limit = COMPACT_AT + size
        start = self.history.revision
        if newer := [path for path in self._journals() if _start(path) > start and path.stat().st_size]:
            raise DamagedProject(
                snapshot, f"it is older than {newer[0].name}, or missing; restore it from a copy"
            )
        self._path = self.folder / f"journal-{start}.jsonl"
        replay = partial(_replay, path=self._path, history=self.history)
        self._lines = self._open.enter_context(appending(self._path, replay))
        fsync_folder(self.folder)

    def _journals(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if JOURNAL.fullmatch(path.name)]

    def _remove_others(self) -> None:
        for path in self._journals():
            if path != self._path:
                path.unlink(missing_ok=True)


def _start(path: Path) -> int:
    found = JOURNAL.fullmatch(path.name)
    return int(found[1]) if found else -1


def read_snapshot(path: Path) -> tuple[History, int]:
    """Read the history in a snapshot, and the file size; an empty history if there is no file."""
    if not path.exists():
        return History(), 0
    try:
        return History.from_json(read_json(path, SNAPSHOT_LIMIT)), path.stat().st_size
    except InputError as error:
        raise DamagedProject(path, error) from error


def _replay(file: IO[bytes], path: Path, history: History) -> int:
    """Apply the changes of a journal; return how many bytes of it are complete lines.

    A line that was being written when the program or the machine stopped has no end, or, after a power cut,
    pages of zeros. Only the last line can be incomplete.
    """
    size = number = 0
    while line := file.readline(LINE_LIMIT):
        number += 1
        if (not line.endswith(b"\n") or b"\0" in line) and not file.read(1):
            break
        try:
            history.apply(Change.from_json(parse_json(line.decode())))
        except ValueError as error:
            raise DamagedProject(path, error, number) from error
        size += len(line)
    return size


def to_json(value: Any) -> bytes:
    """Encode JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
