"""Features on disk: every image is encoded once, in one SQLite file.

    rows     space, key, view: values (float32)     the features of an image
    files    file: key                              the content of a file, by its path and state

A space is everything but the image that determines a feature: the tower's weights, the preprocessing, the
width. A key is the SHA-256 of the image's content: moving a file does not change its features. Any number of
threads and processes can read and write. The store in the cache folder has a limit of bytes, above which it
loses its oldest rows.

A file with the same path and state (size, times, inode) as before has the same content, and is not opened
again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, ProlipError, as_path
from prolip.encoders.base import Encoder
from prolip.io.files import cache_dir, file_state
from prolip.io.sqlite import open_database

LIMIT = 4 << 30  # bytes of the store in the cache folder: rows of about a million images
_VERSION = 7  # increases with any change to what a row means: decoding, views
_AT_ONCE = 500  # keys of a query
_SCHEMA = """
CREATE TABLE rows (space TEXT, key BLOB, view INTEGER, "values" BLOB, PRIMARY KEY (space, key, view));
CREATE TABLE files (file BLOB PRIMARY KEY, key BLOB);
PRAGMA user_version = 5
"""
_SIZE = """
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""


class FeatureStore:
    """A folder with a file of features; safe to use from any thread.

    By default it is `features` in the cache folder; where that cannot be used, features are not stored, and
    `problem` says why. A given folder must be usable; with `renew`, a file in it that is damaged or of
    another version is replaced, as in the cache.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, renew: bool = False) -> None:
        self.root = cache_dir() / "features" if root is None else as_path(root, "store")
        self.path = self.root / "features.sqlite"
        self.required, self.renew = root is not None, renew or root is None
        self.limit: int | None = None if self.required else LIMIT
        self.problem: str | None = None  # why nothing is stored
        self._database: sqlite3.Connection | None = None
        self._lock = Lock()

    def space(self, encoder: Encoder) -> Space:
        """Open the features of this encoder."""
        described = [_VERSION, encoder.fingerprint, encoder.preprocess.config(), encoder.width]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        return Space(self, digest[:20], encoder.width)

    def known(self, files: Sequence[tuple[str, Sequence[int]]]) -> list[bytes | None]:
        """Return the SHA-256 of files whose path and state (`file_state`) are recorded."""
        names = [_file(path, state) for path, state in files]
        keys = dict(self.select("SELECT file, key FROM files WHERE file IN ({})", names))
        return [keys.get(name) for name in names]

    def remember(self, files: Sequence[tuple[str, Sequence[int], bytes]]) -> None:
        """Record the path, state and hash of files."""
        rows = [(_file(path, state), key) for path, state, key in files]
        self.write("INSERT OR REPLACE INTO files VALUES (?, ?)", rows)

    def select(self, query: str, keys: Sequence[Any], *first: str) -> list[Any]:
        """Return the rows of a query for these keys, with parameters that stand before them."""

        def select(database: sqlite3.Connection) -> list[Any]:
            rows: list[Any] = []
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                rows += database.execute(query.format(", ".join("?" * len(part))), (*first, *part))
            return rows

        return self._run(select)

    def write(self, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows, all or none."""

        def write(database: sqlite3.Connection) -> list[Any]:
            database.executemany(query, rows)
            if self.limit is not None and database.execute(_SIZE).fetchone()[0] > self.limit:
                for table in ("rows", "files"):  # a tenth, by the order in which they were written
                    oldest = f"SELECT (9 * min(rowid) + max(rowid)) / 10 FROM {table}"
                    database.execute(f"DELETE FROM {table} WHERE rowid <= ({oldest})")
            return []

        if rows:
            self._run(write)

    def _run(self, work: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        """Call `work` in a transaction."""
        with self._lock:
            if self.problem is not None:
                return []
            try:
                if self._database is None:
                    self._database = self._open()
                    weakref.finalize(self, self._database.close)
                with self._database:
                    return work(self._database)
            except (OSError, sqlite3.Error, ProlipError) as error:
                if self.required:
                    raise ProlipError(f"cannot use {self.path}: {error}") from error
                self.problem = f"cannot use {self.path} ({error}): set PROLIP_CACHE to another folder"
                return []

    def _open(self) -> sqlite3.Connection:
        try:
            return open_database(self.path, _SCHEMA)
        except InputError:
            if not self.renew:
                raise
            for file in self.root.glob(f"{self.path.name}*"):  # with its write-ahead log
                file.unlink()
            return open_database(self.path, _SCHEMA)


@dataclass(frozen=True)
class Space:
    """The stored features of one encoder, by content and view."""

    store: FeatureStore
    name: str
    width: int

    def get(self, keys: Sequence[bytes]) -> dict[tuple[bytes, int], Array]:
        """Return the rows [width] of images, by key and view."""
        query = 'SELECT key, view, "values" FROM rows WHERE space = ? AND key IN ({})'
        found = self.store.select(query, keys, self.name)
        return {(key, view): np.frombuffer(values, np.float32) for key, view, values in found}

    def of_files(self, images: Sequence[Any], views: Sequence[int]) -> dict[int, tuple[bytes, list[Array]]]:
        """Return key and rows of the files among images that have not changed since they were recorded.

        They are returned by their index, where all views are stored.
        """
        files = {}
        for index, image in enumerate(images):
            if isinstance(image, (str, os.PathLike)):
                with suppress(OSError, ValueError):  # opening the file reports the error
                    files[index] = os.fspath(image), file_state(image)
        known = zip(files, self.store.known(list(files.values())), strict=True)
        keys = {index: key for index, key in known if key is not None}
        rows = self.get(list(set(keys.values())))
        return {
            index: (key, [rows[key, view] for view in views])
            for index, key in keys.items()
            if all((key, view) in rows for view in views)
        }

    def add(self, keys: Sequence[bytes], views: Sequence[int], features: Array) -> None:
        """Write rows [R, width], all or none."""
        if features.shape != (len(keys), self.width):
            raise InputError(f"expected [{len(keys)}, {self.width}] features, got {list(features.shape)}")
        rows = zip(keys, map(int, views), features.astype(np.float32), strict=True)
        self.store.write(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)",
            [(self.name, key, view, row.tobytes()) for key, view, row in rows],
        )


def _file(path: str, state: Sequence[int]) -> bytes:
    """Return sixteen bytes that identify a file and its state."""
    name = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - a thousand times as fast as Path.resolve
    return hashlib.blake2b(name + b"\0" + repr(tuple(state)).encode(), digest_size=16).digest()
