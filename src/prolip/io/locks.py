"""One writer at a time: lock files that end with the process that holds them.

A lock is a file of its own, so that what it guards can be read, renamed and replaced on every system.
`filelock` locks it as the system does it (`flock`, `LockFileEx`). Where a file system has no such locks, the
lock is that the file exists, and one whose process has ended is void.
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

MARK = ".prolip-tmp-"  # begins every name that we do not leave behind
REMOVES_OPEN_FILES = sys.platform != "win32"
PATIENCE = 60.0  # seconds to wait for another writer of a folder, which is done in moments
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


class LockedError(UsageError):
    """Another process is writing `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is being written by another process: wait for it, or name another path")
        self.path = path


def lock_file(path: Path) -> Path:
    """The lock file of a path. The name is part of its own: where "A" and "a" are one file, so are these."""
    return path.with_name(f"{MARK}{path.name.removeprefix(MARK)}.lock")


@contextmanager
def locked(file: Path, path: Path, timeout: float = 1.0) -> Iterator[None]:
    """Hold a lock file; a LockedError about `path`, which it guards, if another process does all the time."""
    from filelock import SoftFileLock, Timeout

    try:
        lock = _acquire(file, timeout)
    except Timeout as error:
        raise LockedError(path) from error
    try:
        yield
    finally:
        # The lock file is removed before it is released: a process that waits with it open sees that it is
        # gone, and opens a new one. Windows removes a file only once nobody has it open.
        if REMOVES_OPEN_FILES and not isinstance(lock, SoftFileLock):
            _remove(file)
        lock.release()
        if not REMOVES_OPEN_FILES:
            _remove(file)


def _acquire(file: Path, timeout: float) -> BaseFileLock:
    """A lock of the system; or, under a name of its own, one that works without."""
    from filelock import FileLock, SoftFileLock

    lock = FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=timeout)
        if not isinstance(lock, SoftFileLock):
            return lock
        lock.release()  # some versions come to it by removing the file, which may be another process's lock
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _remove(file)
    soft = SoftFileLock(file.with_suffix(".soft"), thread_local=False)
    soft.acquire(timeout=timeout)
    return soft


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder; one that was made for this is removed again if it stays empty."""
    new = not folder.exists()
    with ExitStack() as stack:
        if new:
            stack.callback(_remove_folder, folder)
        while True:
            folder.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # another writer has just removed the folder
                stack.enter_context(locked(folder / f"{MARK}folder.lock", folder, PATIENCE))
                break
        yield


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
