"""One writer at a time."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prolip.core.errors import UsageError
from prolip.io.files import cache_dir

MARK = ".prolip-tmp-"  # the start of every temporary name
TIMEOUT = 60.0  # seconds to wait for another writer


@contextmanager
def write_lock(path: Path, timeout: float = TIMEOUT) -> Iterator[None]:
    """Be the only writer of a file or folder on this machine.

    The lock, which ends with its process, is a file in the cache folder: nothing is left beside the user's.
    """
    from filelock import FileLock, Timeout

    place = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    lock = cache_dir() / "locks" / f"{place[:32]}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=timeout, thread_local=False):
            yield
    except Timeout as error:
        raise UsageError(
            f"{path} is being written by another process: wait for it, or name another path"
        ) from error


@contextmanager
def folder_lock(folder: Path, timeout: float = TIMEOUT) -> Iterator[None]:
    """Be the only writer of a folder; a new one is removed again if it stays empty."""
    new = not folder.exists()
    try:
        with write_lock(folder, timeout):
            folder.mkdir(exist_ok=True)
            yield
    finally:
        if new:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
