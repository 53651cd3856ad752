"""Content hashes of files by path and state, so that unchanged files need not be opened again.

A file with the same path and state (size, times, inode) as before has the same content. A file that changed a
moment ago is not recorded, as it may change again within one tick of a coarse clock. An SQLite table beside
the features has the SHA-256 of contents by path and state. Any number of processes may read and write it; if
it is damaged, locked or missing, the files are read again. Each entry has a checksum.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

_SETTLED = 2.0  # seconds after which a change has a time of its own, on any file system
_TIMEOUT = 0.5  # seconds to wait for a table that another process has locked
_PAUSE = 60.0  # seconds without the table after that


def is_settled(state: Sequence[int]) -> bool:
    """Whether any further change to a file with this state (see `file_state`) would change the state."""
    return max(state[1:3]) < time.time_ns() - int(_SETTLED * 1e9)


class Contents:
    """Hashes of files by their state; safe to use from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._table: sqlite3.Connection | None = None
        self._paused_until = 0.0

    def get(self, path: str, state: Sequence[int]) -> bytes | None:
        """Return the SHA-256 of a file's content, if the file is recorded with this state."""
        file = _file(path, state)
        with self._lock:
            if self._paused_until > time.monotonic():
                return None
            try:
                if self._table is not None or self.path.is_file():
                    for (entry,) in self._open().execute("SELECT key FROM contents WHERE file = ?", [file]):
                        if entry == _with_check(file, entry[:32]):
                            return bytes(entry[:32])
            except sqlite3.OperationalError:
                self._pause()
            except (OSError, sqlite3.Error):
                pass
        return None

    def add(self, files: Sequence[tuple[str, Sequence[int], bytes]]) -> None:
        """Record the path, state and hash of files that are settled."""
        keys = [(_file(path, state), key) for path, state, key in files if is_settled(state)]
        rows = [(file, _with_check(file, key)) for file, key in keys]
        if not rows:
            return
        with self._lock:
            if self._paused_until > time.monotonic():
                return
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
            self._table = sqlite3.connect(self.path, timeout=_TIMEOUT, check_same_thread=False)
            self._table.execute("PRAGMA synchronous = OFF")  # after a power cut files are read again
            columns = "file BLOB PRIMARY KEY, key BLOB NOT NULL"
            self._table.execute(f"CREATE TABLE IF NOT EXISTS contents ({columns}) WITHOUT ROWID")
        return self._table

    def _close(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    def __del__(self) -> None:
        self._close()

    def _pause(self) -> None:
        """Ignore the table for a while: another process has locked it, and each image would wait."""
        self._close()
        self._paused_until = time.monotonic() + _PAUSE

    def _start_again(self, error: Exception) -> bool:
        """Close the connection, and remove the file if it is damaged."""
        self._close()
        if isinstance(error, sqlite3.OperationalError):
            self._pause()
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if damaged:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        return damaged


def _file(path: str, state: Sequence[int]) -> bytes:
    """Return sixteen bytes that identify a file and its state."""
    name = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - a thousand times as fast as Path.resolve
    return hashlib.blake2b(name + b"\0" + repr(tuple(state)).encode(), digest_size=16).digest()


def _with_check(file: bytes, key: bytes) -> bytes:
    """Append eight bytes by which damage is noticed."""
    return key + hashlib.blake2b(file + key, digest_size=8).digest()
