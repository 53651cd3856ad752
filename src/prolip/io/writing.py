"""Atomic writes: a file or a folder is written beside its place, and renamed into it.

No file is renamed while it is open (see Windows).
"""

import csv
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import ProlipError, UsageError
from prolip.io.files import cache_dir

MARK = ".prolip-tmp-"  # the start of every temporary name
FORMULA_STARTS = ("=", "+", "-", "@")
TIMEOUT = 60.0  # seconds to wait for another writer

Writer = Callable[[Path], Any]


class WriteError(ProlipError):
    """A path cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot write {path}: {error.strerror or error}")


def write_atomic(path: Path, write: Writer) -> None:
    """Let `write` make a temporary file beside `path`, then rename it there.

    A reader sees the old file or the new one, never a part, also after a power cut. A link is followed: its
    target is replaced. The new file has the old one's permissions.
    """
    target = follow(path)
    draft = _draft(target.parent)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        _replace(draft, target)
    except ProlipError:  # of `write`: some are OSErrors, too
        raise
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file atomically."""
    write_atomic(path, lambda draft: draft.write_bytes(payload))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8; what a file name has of other bytes becomes escapes."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, keys in the order given. Text that is not valid UTF-8 becomes JSON escapes."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a file of rows, the header first."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(map(as_cells, rows))
    write_text(path, stream.getvalue())


def as_cells(row: Iterable[Any]) -> list[Any]:
    """Return the cells of a row of CSV; texts that a spreadsheet would run as a formula get an apostrophe."""
    return [f"'{v}" if isinstance(v, str) and v.startswith(FORMULA_STARTS) else v for v in row]


def write_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write arrays of NumPy or torch as a safetensors file."""
    write_bytes(path, as_safetensors(tensors, metadata))


def as_safetensors(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file with these arrays."""
    from safetensors.numpy import save

    return save({name: np.asarray(to_numpy(x), order="C") for name, x in tensors.items()}, metadata)


def write_folder(path: Path, fill: Writer, replace: bool = False) -> None:
    """Let `fill` write files into a temporary folder, then give it the name `path`.

    `path` is new or an empty folder; or, with `replace`, a folder whose files of the same names are replaced,
    each at once, when all are complete, and whose others stay.
    """
    target = check_place(path)
    exists = target.is_dir()
    if exists and not replace and any(target.iterdir()):
        raise UsageError(f"{path} holds files: name a new folder")
    draft = _draft(target if exists else target.parent)
    try:
        draft.mkdir(parents=True)
        fill(draft)
        mode = draft.stat().st_mode & 0o666
        files = [file for file in draft.rglob("*") if file.is_file()]
        for file in files:  # some libraries write files that only their owner may read
            file.chmod(mode)
        if not exists:
            _replace(draft, target)
            return
        for file in files:
            place = target / file.relative_to(draft)
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(file, place)
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _draft(folder: Path) -> Path:
    return folder / f"{MARK}{secrets.token_hex(8)}"


def _replace(old: Path, new: Path) -> None:
    """Rename a file, replacing an existing one, whose permissions it takes; or a folder."""
    if new.is_file():
        shutil.copymode(new, old)
    old.replace(new)


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


def follow(path: Path) -> Path:
    """Resolve a path, with links and ~."""
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user; a circle of links; a null character
        raise UsageError(f"cannot write {path}: {error}") from error


def check_place(path: Path) -> Path:
    """Resolve a path and check that it can be written, before any work is done."""
    target = follow(path)
    try:
        existing = next(place for place in (target, *target.parents) if place.exists())
        if existing != target and not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file")
        if not os.access(existing if existing.is_dir() else existing.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise WriteError(path, error) from error
    return target
