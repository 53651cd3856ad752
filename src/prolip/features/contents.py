"""What files held when they were last read: a second look at a folder touches each file's entry and no more.

A file that has the path, size, times and inode that it had then holds what it held then. An SQLite table
keeps SHA-256 of contents by those; it stands beside the features, any number of processes may read and write
it, and whatever is wrong with it is no reason to stop: the files are read again. Each entry has a checksum.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

_SETTLED = 2.0  # seconds: a file may change again within one tick of a coarse clock, and nobody would see


class Contents:
    """Hashes of files by their state; safe to use from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._table: sqlite3.Connection | None = None

    def get(self, path: str, state: Sequence[int]) -> bytes | None:
        """The SHA-256 of a file's content, where the file is known as it is now."""
        file = _file(path, state)
        with self._lock, suppress(OSError, sqlite3.Error):
            if self._table is not None or self.path.is_file():
                for (noted,) in self._open().execute("SELECT key FROM contents WHERE file = ?", [file]):
                    if noted == _checked(file, noted[:32]):
                        return bytes(noted[:32])
        return None

    def add(self, files: Sequence[tuple[str, Sequence[int], bytes]]) -> None:
        """Note the path, state and hash of files; those that changed a moment ago may change unseen."""
        settled = time.time_ns() - int(_SETTLED * 1e9)
        named = [(_file(path, state), key) for path, state, key in files if max(state[1:3]) < settled]
        rows = [(file, _checked(file, key)) for file, key in named]
        if not rows:
            return
        with self._lock:
            for _ in range(2):  # the second time on a new file, where the old one is damaged
                try:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    with self._open() as table:
                        table.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?)", rows)
                    return
                except (OSError, sqlite3.Error) as error:
                    if not self._start_again(error):
                        return

    def _open(self) -> sqlite3.Connection:
        if self._table is None:
            self._table = sqlite3.connect(self.path, timeout=5, check_same_thread=False)
            self._table.execute("PRAGMA synchronous = OFF")  # what a power cut takes is read again
            columns = "file BLOB PRIMARY KEY, key BLOB NOT NULL"
            self._table.execute(f"CREATE TABLE IF NOT EXISTS contents ({columns}) WITHOUT ROWID")
        return self._table

    def _close(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    def __del__(self) -> None:
        self._close()

    def _start_again(self, error: Exception) -> bool:
        """Give up the connection, and the file if that is what is wrong."""
        self._close()
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if damaged:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        return damaged


def _file(path: str, state: Sequence[int]) -> bytes:
    """Sixteen bytes that stand for a file as it is."""
    name = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - a thousand times as fast as Path.resolve
    return hashlib.blake2b(name + b"\0" + repr(tuple(state)).encode(), digest_size=16).digest()


def _checked(file: bytes, key: bytes) -> bytes:
    """A hash and eight bytes by which damage is noticed."""
    return key + hashlib.blake2b(file + key, digest_size=8).digest()
