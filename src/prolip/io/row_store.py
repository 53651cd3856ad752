"""Rows of numbers on disk, in one SQLite file: what is computed once, and can be computed again.

    rows     space, key, view: values (float32)     the features of an image, the embedding of a text
    files    file: key                              the content of a file, by its path and state

A space names everything but the image or text that determines a row. Any number of threads and processes can
read and write. Above its limit of bytes a store loses its oldest rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, ProlipError
from prolip.io.files import cache_dir
from prolip.io.sqlite import open_database

LIMIT = 4 << 30  # bytes of the store in the cache folder: rows of about a million images
_SCHEMA = """
CREATE TABLE rows (space TEXT, key BLOB, view INTEGER, "values" BLOB, PRIMARY KEY (space, key, view));
CREATE TABLE files (file BLOB PRIMARY KEY, key BLOB);
PRAGMA user_version = 5
"""
_AT_ONCE = 500  # keys of a query
T = TypeVar("T")


class RowStore:
    """A file of rows, by default that of the user's cache folder.

    Without that one everything still runs, and `problem` says why; a file that is named must be usable.
    `renew`: a file that is damaged, or of another version, is replaced.
    """

    def __init__(self, path: Path | None = None, renew: bool = False) -> None:
        self.path = cache_dir() / "features" / "features.sqlite" if path is None else path
        self.required, self.renew = path is not None, renew or path is None
        self.limit: int | None = None if self.required else LIMIT
        self.problem: str | None = None  # why nothing is stored
        self._database: sqlite3.Connection | None = None
        self._lock = RLock()

    def get(self, space: str, keys: Sequence[bytes]) -> dict[tuple[bytes, int], Array]:
        """Return the stored rows of these keys, by key and view."""

        def select(database: sqlite3.Connection) -> dict[tuple[bytes, int], Array]:
            query = 'SELECT key, view, "values" FROM rows WHERE space = ? AND key IN '
            found = (row for part in _parts(keys) for row in _select(database, query, part, space))
            return {(key, view): np.frombuffer(values, np.float32) for key, view, values in found}

        return self._run(select, {})

    def add(self, space: str, rows: Sequence[tuple[bytes, int, Array]]) -> None:
        """Write rows with their keys and views, all or none."""
        values = [(space, key, view, np.asarray(row, np.float32).tobytes()) for key, view, row in rows]
        self._write("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", values)

    def count(self, space: str) -> int:
        """Return the number of rows in a space."""
        query = "SELECT count(*) FROM rows WHERE space = ?"
        return self._run(lambda database: int(database.execute(query, (space,)).fetchone()[0]), 0)

    def get_files(self, files: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the keys of the contents of files that are recorded."""
        query = "SELECT file, key FROM files WHERE file IN "
        return self._run(
            lambda database: dict(row for part in _parts(files) for row in _select(database, query, part)), {}
        )

    def add_files(self, files: Sequence[tuple[bytes, bytes]]) -> None:
        """Record the keys of the contents of files."""
        self._write("INSERT OR REPLACE INTO files VALUES (?, ?)", files)

    def _write(self, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        def write(database: sqlite3.Connection) -> None:
            database.executemany(query, rows)
            if self.limit is not None and _size(database) > self.limit:
                for table in ("rows", "files"):  # a tenth, by the order in which they were written
                    oldest = f"SELECT (9 * min(rowid) + max(rowid)) / 10 FROM {table}"
                    database.execute(f"DELETE FROM {table} WHERE rowid <= ({oldest})")

        if rows:
            self._run(write, None)

    def _run(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Call `work` in a transaction."""
        with self._lock:
            if self.problem is not None:
                return otherwise
            try:
                return self._attempt(work)
            except (OSError, sqlite3.Error, ProlipError) as error:
                if self.required:
                    raise ProlipError(f"cannot use {self.path}: {error}") from error
                self.problem = f"cannot use {self.path} ({error}): set PROLIP_CACHE to another folder"
                return otherwise

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._database = self._database or open_database(self.path, _SCHEMA)
            with self._database:
                return work(self._database)
        except (InputError, sqlite3.DatabaseError) as error:
            if not self.renew or isinstance(error, sqlite3.OperationalError):  # a full disk, for example
                raise
        if self._database is not None:
            self._database.close()
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        self._database = open_database(self.path, _SCHEMA)
        with self._database:
            return work(self._database)


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


def _select(database: sqlite3.Connection, query: str, keys: Sequence[bytes], *first: str) -> list[Any]:
    marks = ", ".join("?" * len(keys))
    return database.execute(f"{query} ({marks})", (*first, *keys)).fetchall()


def _size(database: sqlite3.Connection) -> int:
    """Return the bytes in use; those of deleted rows are used again."""
    pages, free, size = (
        database.execute(f"PRAGMA {what}").fetchone()[0]
        for what in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
