"""Files that grow by lines: one writer at a time, and whole lines whatever happens."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from prolip.core.errors import UsageError
from prolip.core.locks import holder, still_there, try_lock
from prolip.core.writing import follow, make_folders, write_error

Keep = Callable[[IO[bytes]], int]


class Lines:
    """The end of a file. What is written is in the file when `write` returns, or not at all."""

    def __init__(self, handle: int, size: int) -> None:
        self._handle, self.size = handle, size
        os.ftruncate(handle, size)
        os.lseek(handle, 0, os.SEEK_END)

    def write(self, text: str, sync: bool = False) -> None:
        """Add text, which should end a line; with `sync` it is on the disk when this returns."""
        payload = memoryview(text.encode("utf-8"))
        left = payload
        try:
            while left:
                left = left[os.write(self._handle, left) :]
            if sync:
                os.fsync(self._handle)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self.size)
            raise
        self.size += len(payload)


@contextmanager
def appending(path: Path, keep: Keep | None = None) -> Iterator[Lines]:
    """A file to add lines to, locked until the end; one that stays empty is removed.

    Another process that has it open here is an error. `keep` reads what is there and says how many bytes of
    it stay; it may refuse the file. By default whole lines stay, without what an interrupted run left of a
    last one.
    """
    target = follow(path)
    try:
        make_folders(target.parent)
        handle = _claim(path, target)
        try:
            with open(handle, "rb", closefd=False) as file:
                size = (keep or whole_lines)(file)
            lines = Lines(handle, size)
            try:
                yield lines
            finally:
                if not lines.size and still_there(handle, target):
                    target.unlink()
        finally:
            os.close(handle)
    except OSError as error:
        raise write_error(path, error, "the lines before that are kept") from error


def _claim(path: Path, target: Path) -> int:
    """The file, open and locked."""
    while True:
        handle = os.open(target, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o666)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise UsageError(f"{path} is no regular file: name another")
        if not try_lock(handle):
            os.close(handle)
            raise UsageError(
                f"{path} is being written by {holder(target)}: wait for it, or name another file"
            )
        if still_there(handle, target):
            return handle
        os.close(handle)


def whole_lines(file: IO[bytes]) -> int:
    """How many bytes there are up to the end of the last whole line."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - (1 << 20))
    file.seek(start)
    return start + file.read().rfind(b"\n") + 1
