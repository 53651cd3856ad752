"""Append lines to files: one writer at a time, and only complete lines."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from prolip.core.errors import UsageError
from prolip.io.files import fsync
from prolip.io.locks import lock_file, locked
from prolip.io.writing import WriteError, follow, make_folders

Keep = Callable[[IO[bytes]], int]
_BLOCK = 1 << 20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


class Lines:
    """The end of a file. A text is in the file when `write` returns, or not at all."""

    def __init__(self, handle: int, size: int) -> None:
        self._handle, self.size = handle, size
        os.ftruncate(handle, size)

    def write(self, text: str, sync: bool = False) -> None:
        """Append text, which should end a line; with `sync` it is on the disk when this returns."""
        payload = memoryview(text.encode("utf-8"))
        left = payload
        try:
            while left:
                left = left[os.write(self._handle, left) :]
            if sync:
                fsync(self._handle)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self.size)
            raise
        self.size += len(payload)


@contextmanager
def appending(path: Path, keep: Keep | None = None) -> Iterator[Lines]:
    """Open a file to append lines, locked until the end; one that stays empty is removed.

    If another process has it open here, that is a LockedError. `keep` reads the content and returns how many
    bytes of it stay; it may reject the file. By default complete lines stay, without a truncated last one.
    """
    target = follow(path)
    try:
        make_folders(target.parent)
        with locked(lock_file(target), path):
            lines = None
            handle = os.open(target, _FLAGS, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise UsageError(f"{path} is not a regular file: name another")
                with open(handle, "rb", closefd=False) as file:
                    size = (keep or whole_lines)(file)
                lines = Lines(handle, size)
                yield lines
            finally:
                os.close(handle)
                if lines is not None and not lines.size:
                    target.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(path, error, "all earlier lines are in the file") from error


def whole_lines(file: IO[bytes]) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0
