"""Features on disk: every image is encoded once.

A store is a folder of SQLite files with the tables

    features    space, key, view: values (float32), crc     the features of an image
    contents    file: key, crc                              the content of a file, by its path and state
    images      path: key, run                              what `prolip embed` lists

A space is everything but the image that determines a feature: the tower's weights, the preprocessing, the
width. A key is the SHA-256 of the image's content: moving a file does not change its features. Any number of
processes can read and write one file; on a network file system, give each writer a file of its own (`name`).
Each row has a CRC-32: a damaged row is noticed when it is read, and its image encoded again. A damaged file
is renamed, and all of its images are encoded again.

A file with the same path and state (size, times, inode) as before has the same content, and is not opened
again. One that changed a moment ago is not recorded, as it may change again within a tick of a coarse clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from prolip.core.arguments import as_path
from prolip.core.errors import InputError, ProlipError
from prolip.encoders.base import Encoder
from prolip.io.files import cache_dir
from prolip.io.reading import open_regular
from prolip.io.writing import check_place, make_folders

_VERSION = 4  # increases with any change to what a row means: decoding, views, layout
_TIMEOUT = 20.0  # seconds to wait for a file that another process has locked
_SETTLED = 2.0  # seconds after which a change has a time of its own, on any file system
_SCHEMA = f"""
PRAGMA synchronous = NORMAL;
PRAGMA page_size = 32768;
CREATE TABLE IF NOT EXISTS features (space TEXT, key BLOB, view INTEGER, "values" BLOB, crc INTEGER,
    PRIMARY KEY (space, key, view));
CREATE TABLE IF NOT EXISTS contents (file BLOB PRIMARY KEY, key BLOB, crc INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS images (path BLOB PRIMARY KEY, key BLOB, run INTEGER) WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
"""


class FeatureStore:
    """A folder of features; safe to use from any thread.

    By default it is `features` in the cache folder; where that cannot be written, features are not stored,
    and `take_problems` says so. A given folder must be writable. `name` is that of the file to write.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, name: str = "features") -> None:
        self.root = cache_dir() / "features" if root is None else as_path(root, "store")
        self.required = root is not None
        self._own = self.root / f"{name}.sqlite"
        self._tables: dict[Path, sqlite3.Connection] = {}
        self._lock = RLock()
        self._problems: list[str] = []
        self._unwritable: ProlipError | None = None
        self._damaged_rows = 0
        self._files: list[Path] = []
        self.refresh()

    def __del__(self) -> None:
        for file in list(getattr(self, "_tables", ())):
            self._close(file)

    def space(self, encoder: Encoder) -> Space:
        """Open the features of this encoder."""
        described = [_VERSION, encoder.fingerprint, encoder.preprocess.config(), encoder.width]
        self.refresh()
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        return Space(self, digest[:20], encoder.width)

    def refresh(self) -> None:
        """List the files of the store again."""
        self._files = sorted(self.root.glob("*.sqlite"))

    def take_problems(self) -> list[str]:
        """Return, and forget, what went wrong: a line for each problem."""
        with self._lock:
            problems, self._problems = self._problems, []
            rows, self._damaged_rows = self._damaged_rows, 0
        unwritable = [f"features are not stored: {self._unwritable}"] if self._unwritable else []
        return [*unwritable, *problems, *([f"damaged rows ({rows}) are encoded again"] if rows else [])]

    def known(self, path: str, state: Sequence[int]) -> bytes | None:
        """Return the SHA-256 of a file's content, if the file is recorded with this state (`file_state`)."""
        file = _file(path, state)
        for key, crc in self.select("SELECT key, crc FROM contents WHERE file = ?", file):
            if isinstance(key, bytes) and zlib.crc32(file + key) == crc:
                return key
        return None

    def remember(self, files: Sequence[tuple[str, Sequence[int], bytes]]) -> None:
        """Record the path, state and hash of files, except those that changed a moment ago."""
        limit = time.time_ns() - int(_SETTLED * 1e9)
        keys = [(_file(path, state), key) for path, state, key in files if max(state[1:3]) < limit]
        rows = [(file, key, zlib.crc32(file + key)) for file, key in keys]
        with suppress(ProlipError):  # the files are opened again
            self.write("INSERT OR REPLACE INTO contents VALUES (?, ?, ?)", rows)

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of every file; one that cannot be read is left out until the next `refresh`."""
        found: list[tuple[Any, ...]] = []
        with self._lock:
            for file in self._files:
                try:
                    found += self._open(file).execute(query, values).fetchall()
                except (OSError, sqlite3.Error, ProlipError) as error:
                    self._files = [other for other in self._files if other != file]
                    if not self._rename_if_damaged(file, error) and file.exists():
                        self._problems.append(
                            f"{file} cannot be read ({error}); its images are encoded again"
                        )
        return found

    def write(self, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows, all or none; an error if that cannot be done in a folder that was given."""
        if not rows or self._unwritable is not None:
            return
        with self._lock:
            try:
                self._write(query, rows)
            except (OSError, sqlite3.Error, ProlipError) as error:
                problem = ProlipError(
                    f"cannot write {self._own}: {error} (the feature store: set PROLIP_CACHE to a folder on "
                    "another disk)"
                )
                if self.required:
                    raise problem from error
                self._unwritable = problem

    def _write(self, query: str, rows: Sequence[tuple[Any, ...]], again: bool = True) -> None:
        try:
            if not self._own.exists():
                make_folders(check_place(self._own).parent)
                self._close(self._own)
            with self._open(self._own) as table:
                table.executemany(query, rows)
            if self._own not in self._files:
                self.refresh()
        except sqlite3.Error as error:
            if not (again and self._rename_if_damaged(self._own, error)):
                raise
            self._write(query, rows, again=False)

    def _open(self, file: Path) -> sqlite3.Connection:
        if file not in self._tables:
            if file.exists():
                open_regular(file).close()  # a pipe would hang
            table = sqlite3.connect(file, timeout=_TIMEOUT, check_same_thread=False)
            try:
                version = table.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, _VERSION):
                    raise sqlite3.DatabaseError(f"its version is {version}")
                if not version:
                    table.executescript(_SCHEMA)
                if table.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone():
                    raise sqlite3.DatabaseError("it has views or triggers, which run by themselves")
            except BaseException:
                table.close()
                raise
            self._tables[file] = table
        return self._tables[file]

    def _close(self, file: Path) -> None:
        if table := self._tables.pop(file, None):
            table.close()

    def _rename_if_damaged(self, file: Path, error: Exception) -> bool:
        """Close a file after an error; if its content is damaged, rename it, and return True."""
        self._close(file)
        damaged = isinstance(error, sqlite3.DatabaseError) and (
            not isinstance(error, sqlite3.OperationalError) or str(error).startswith("no such")
        )
        if damaged:
            self._problems.append(f"{file} is damaged ({error}); its images are encoded again")
            with suppress(OSError):
                file.replace(file.with_suffix(".damaged"))
        return damaged

    def note_damaged_row(self) -> None:
        """Count a row whose checksum is wrong."""
        with self._lock:
            self._damaged_rows += 1


class Space:
    """The stored features of one encoder, by content and view."""

    def __init__(self, store: FeatureStore, name: str, width: int) -> None:
        self.store, self.name, self.width = store, name, width

    def __len__(self) -> int:
        counts = self.store.select("SELECT count(*) FROM features WHERE space = ?", self.name)
        return sum(count for (count,) in counts)

    def get(self, key: bytes, view: int) -> np.ndarray | None:
        """Return the row [width] of an image and view, or None."""
        query = 'SELECT "values", crc FROM features WHERE space = ? AND key = ? AND view = ?'
        for values, crc in self.store.select(query, self.name, key, view):
            if (
                isinstance(values, bytes)
                and len(values) == 4 * self.width
                and crc == _crc(self.name, key, view, values)
            ):
                return np.frombuffer(values, np.float32)
            self.store.note_damaged_row()
        return None

    def add(self, keys: Sequence[bytes], views: Sequence[int], features: np.ndarray) -> None:
        """Write rows [R, width], all or none."""
        features = np.ascontiguousarray(features, dtype=np.float32)
        if features.shape != (len(keys), self.width) or len(views) != len(keys):
            raise InputError(f"expected [{len(keys)}, {self.width}] features, got {list(features.shape)}")
        rows = []
        for key, view, row in zip(keys, views, features, strict=True):
            values = row.tobytes()
            rows.append((self.name, key, int(view), values, _crc(self.name, key, int(view), values)))
        self.store.write("INSERT OR REPLACE INTO features VALUES (?, ?, ?, ?, ?)", rows)


def _crc(space: str, key: bytes, view: int, values: bytes) -> int:
    return zlib.crc32(values, zlib.crc32(f"{space} {view} ".encode() + key))


def _file(path: str, state: Sequence[int]) -> bytes:
    """Return sixteen bytes that identify a file and its state."""
    name = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - a thousand times as fast as Path.resolve
    return hashlib.blake2b(name + b"\0" + repr(tuple(state)).encode(), digest_size=16).digest()
