"""Atomic writes: a file or a folder is written beside its place, and renamed into it.

No file is renamed while it is open (see Windows).
"""

import errno
import glob
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import ProlipError, UsageError
from prolip.io.files import portable_name
from prolip.io.locks import MARK

NAME_LIMIT, PATH_LIMIT = 235, 4000  # bytes; file systems take 255 and 4,096, temporary names need the rest

STALE = 24 * 3600  # seconds after which a temporary name is that of a killed process

Writer = Callable[[Path], Any]


class WriteError(ProlipError):
    """A path cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot write {path}: {error.strerror or error}")
        self.path = path


def write_atomic(path: Path, write: Writer) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it there.

    A reader sees the old file or the new one, never a part, also after a power cut; after a failure nothing
    is left behind. A link is followed: its target is replaced. The new file has the old one's permissions.
    """
    target = follow(path)
    try:
        make_folders(target.parent)
        with temporary(target.parent, private=target.exists()) as draft:
            write(draft)
            if target.exists():
                shutil.copymode(target, draft)
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            rename(draft, target)
    except OSError as error:
        raise WriteError(path, error) from error


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file atomically."""
    write_atomic(path, lambda draft: draft.write_bytes(payload))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8; what a file name has of other bytes becomes escapes."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    write_bytes(path, as_json(value))


def as_json(value: Any) -> bytes:
    """Return indented JSON, keys in the order given. Text that is not valid UTF-8 becomes JSON escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write arrays of NumPy or torch as a safetensors file."""
    write_bytes(path, as_safetensors(tensors, metadata))


def as_safetensors(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file with these arrays."""
    from safetensors.numpy import save

    return save({name: np.asarray(to_numpy(x), order="C") for name, x in tensors.items()}, metadata)


def write_folder(path: Path, fill: Writer, replace: bool = False) -> None:
    """Let `fill` write files into a temporary folder, then give it the name `path`.

    `path` is new or an empty folder; or, with `replace`, a folder whose files of the same names are replaced
    and whose others stay. The new folder is complete before the old one loses its name: it is
    `path.old-...` for a moment. If the process is killed then, the next one gives it its name again.
    """
    target = check_place(path)
    try:
        make_folders(target.parent)
        for old in target.parent.glob(f"{glob.escape(target.name)}.old-*"):
            if not target.exists():
                old.rename(target)
        exists = target.is_dir()
        empty = exists and not any(target.iterdir())
        with temporary(target if empty else target.parent, folder=True, private=exists) as draft:
            fill(draft)
            _share(draft, target if exists else draft)
            if exists and not replace and any(not file.name.startswith(MARK) for file in target.iterdir()):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            if not exists:
                rename(draft, target)
            elif empty:
                _move_files(draft, target)
            else:
                _exchange(draft, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise UsageError(f"another process wrote files into {path}: name a new folder") from error
        raise WriteError(path, error) from error


def _exchange(draft: Path, target: Path) -> None:
    """Put a folder in the place of another, with the files of that one which it has not."""
    for path in target.rglob("*"):
        copy = draft / path.relative_to(target)
        folder = path.is_dir() and not path.is_symlink()
        if os.path.lexists(copy) and folder != copy.is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{copy.name} is a folder in one and a file in the other")
        if folder:
            copy.mkdir(exist_ok=True)
        elif os.path.lexists(copy):
            shutil.copymode(path, copy)
        else:
            shutil.copy2(path, copy, follow_symlinks=False)
    old = target.with_name(f"{target.name}.old-{secrets.token_hex(4)}")
    try:
        if Path.cwd().is_relative_to(target):
            raise OSError(errno.EBUSY, "it is the working folder")
        target.rename(old)
    except OSError:  # also a mounted folder, or one in a folder of others
        _move_files(draft, target)
        return
    try:
        rename(draft, target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _move_files(draft: Path, target: Path) -> None:
    for path in [path for path in draft.rglob("*") if path.is_symlink() or not path.is_dir()]:
        place = target / path.relative_to(draft)
        place.parent.mkdir(parents=True, exist_ok=True)
        rename(path, place)


def rename(old: Path, new: Path) -> None:
    """Rename a file, replacing an existing one, or a folder.

    Windows refuses while another program reads either of them, a virus scanner for instance: wait for it.
    """
    for wait in (0.02, 0.1, 0.5, 1.0):
        try:
            old.replace(new)
            return
        except PermissionError:
            if sys.platform != "win32":
                raise
            time.sleep(wait)
    old.replace(new)


@contextmanager
def temporary(parent: Path, folder: bool = False, private: bool = False) -> Iterator[Path]:
    """Make a marked file or folder, removed at the end unless it was renamed.

    It has the user's usual permissions, or is `private` where it replaces a file that may be private. What a
    process that was killed left is removed after a day.
    """
    _remove_stale(parent)
    draft = parent / f"{MARK}{secrets.token_hex(8)}"
    try:
        if folder:
            draft.mkdir(0o700 if private else 0o777)
        else:
            draft.touch(0o600 if private else 0o666, exist_ok=False)
        yield draft
    finally:
        _remove(draft)


def _remove_stale(parent: Path) -> None:
    with suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(MARK) and entry.stat().st_mtime < time.time() - STALE:
                _remove(parent / entry.name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def follow(path: Path) -> Path:
    """Resolve a path; a broken link is an error."""
    try:
        path = path.expanduser()
        if path.is_symlink() and not path.exists():
            raise UsageError(f"{path} is a link to {path.readlink()}, which does not exist: name another")
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user; a null character
        raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def check_place(path: Path) -> Path:
    """Resolve a path and check that it can be written, before any work is done."""
    target = follow(path)
    existing = next(place for place in (target, *target.parents) if os.path.lexists(place))
    folder = existing if existing.is_dir() else existing.parent
    new = target.relative_to(existing).parts
    code = 0
    if len(os.fsencode(target)) > PATH_LIMIT or any(len(os.fsencode(name)) > NAME_LIMIT for name in new):
        code = errno.ENAMETOOLONG
    elif sys.platform == "win32" and any(portable_name(name) != name for name in new):
        code = errno.EINVAL  # Windows takes "a:b" for a part of "a", "a." for "a", "con" for the console
    elif new and folder != existing:
        code = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EACCES
    if code:
        raise WriteError(path, OSError(code, os.strerror(code)))
    return target


def make_folders(folder: Path) -> None:
    """Make a folder and its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # it is a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def _share(folder: Path, like: Path) -> None:
    """Set permissions like those of a folder: some libraries write files that only their owner may read."""
    mode = like.stat().st_mode
    for path in folder.rglob("*"):
        path.chmod(mode & (0o777 if path.is_dir() else 0o666))
    shutil.copymode(like, folder)
