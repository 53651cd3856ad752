"""One writer at a time: locks on files and folders that end with the process that holds them."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prolip.core.errors import ProlipError

try:
    import fcntl
except ImportError:  # not on Windows: there, nothing is locked
    fcntl = None  # type: ignore[assignment]

PATIENCE = 60.0  # seconds to wait for another writer who will be done in moments


def try_lock(handle: int) -> bool:
    """Lock an open file or folder; False where another process has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)  # else a file system without locks
    return True


def still_there(handle: int, path: Path) -> bool:
    """Whether the path leads to this open file: it may have been removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder, which is made if need be; waits a while for another."""
    deadline = time.monotonic() + PATIENCE
    while True:
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            if not try_lock(handle):
                if time.monotonic() > deadline:
                    raise ProlipError(f"{folder} is being written by {holder(folder)}: try again later")
                time.sleep(0.05)
            elif still_there(handle, folder):
                yield
                return
        finally:
            os.close(handle)


def holder(path: Path) -> str:
    """Who holds the lock on a file, as Linux tells it."""
    with suppress(OSError, IndexError):
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return f"process {fields[4]}"
    return "another process"
