"""One writer at a time: lock files that are released when their process ends.

A lock is a separate file, so that the file it guards can be read, renamed and replaced on every system.
`filelock` uses the system's locks (`flock`, `LockFileEx`). Where a file system has none, the existence of the
file is the lock, and it is void when its process has ended.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prolip.core.errors import UsageError

if TYPE_CHECKING:
    from filelock import BaseFileLock

MARK = ".prolip-tmp-"  # the start of every temporary name
REMOVES_OPEN_FILES = sys.platform != "win32"
TIMEOUT = 60.0  # seconds to wait for another writer of a folder
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


class LockedError(UsageError):
    """Another process is writing `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is being written by another process: wait for it, or name another path")
        self.path = path


def lock_file(path: Path) -> Path:
    """Return the lock file of a path; where "A" and "a" are one file, so are their lock files."""
    return path.with_name(f"{MARK}{path.name.removeprefix(MARK)}.lock")


@contextmanager
def locked(file: Path, path: Path, timeout: float = 1.0) -> Iterator[None]:
    """Hold the lock file of `path`; a LockedError if another process holds it until the timeout."""
    from filelock import SoftFileLock, Timeout

    try:
        lock = _acquire(file, timeout)
    except Timeout as error:
        raise LockedError(path) from error
    try:
        yield
    finally:
        # The lock file is removed before it is released: a process that waits with it open sees that it is
        # gone, and opens a new one. Windows can only remove a file that is not open.
        if REMOVES_OPEN_FILES and not isinstance(lock, SoftFileLock):
            _remove(file)
        lock.release()
        if not REMOVES_OPEN_FILES:
            _remove(file)


def _acquire(file: Path, timeout: float) -> BaseFileLock:
    """Acquire a lock of the system; or, under another name, one that works without."""
    from filelock import FileLock, SoftFileLock

    lock = FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=timeout)
        if not isinstance(lock, SoftFileLock):
            return lock
        lock.release()  # some versions remove the file first, which may be another process's lock
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _remove(file)
    soft = SoftFileLock(file.with_suffix(".soft"), thread_local=False)
    soft.acquire(timeout=timeout)
    return soft


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder; a new one is removed again if it stays empty."""
    new = not folder.exists()
    with ExitStack() as stack:
        if new:
            stack.callback(_remove_folder, folder)
        while True:
            folder.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # another writer has just removed the folder
                stack.enter_context(locked(folder / f"{MARK}folder.lock", folder, TIMEOUT))
                break
        yield


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
