"""Writes that happen whole or not at all, and one writer at a time.

Whatever is being written has a temporary name with our mark, beside its place, and its writer holds a lock on
it. A writer that was killed leaves the name but no lock, since locks end with their process: the next write
into the same folder takes such names away.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TextIO

from prolip.core.errors import ProlipError, UsageError

try:
    import fcntl
except ImportError:  # not on Windows: there, nothing is locked
    fcntl = None  # type: ignore[assignment]

MARK = ".prolip-tmp-"
YOUNG = 60.0  # seconds in which a temporary name may not have its lock yet
PATIENCE = 60.0  # seconds to wait for another writer who will be done in moments
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it there.

    A reader sees the old file or the new one, never a part; after a failure nothing is left behind. A link is
    followed: what it points to is replaced.
    """
    target = follow(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary(target.parent) as made:
            write(made)
            made.chmod(0o666 & ~_umask())
            made.replace(target)
    except OSError as error:
        raise write_error(path, error) from error


def write_folder(path: Path, fill: Callable[[Path], None], replace: bool = False) -> None:
    """Let `fill` write files into a temporary folder beside `path`, then put it there in one step.

    `path` is new or an empty folder; or, with `replace`, a folder whose files of the same names are replaced,
    all at one moment, and whose others stay.
    """
    target = follow(path)
    try:
        if replace and target.is_dir() and (os.path.ismount(target) or target.samefile(Path.cwd())):
            raise UsageError(f"{path} cannot be replaced in one step: name a folder inside it")
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary(target.parent, folder=True) as made:
            fill(made)
            _share(made)
            if replace and target.is_dir() and any(target.iterdir()):
                _replace_together(target, made)
            else:
                made.replace(target)
    except OSError as error:
        raise write_error(path, error) from error


def _replace_together(target: Path, made: Path) -> None:
    """Exchange two folders; what only the old one holds goes along."""
    for old in target.iterdir():
        new = made / old.name
        if not os.path.lexists(new):
            _link(old, new)
    _exchange(made, target)
    for late in made.iterdir():  # came between the two steps
        if not os.path.lexists(target / late.name):
            late.rename(target / late.name)


def _link(old: Path, new: Path) -> None:
    """The same files under another name, or copies where links cannot be made."""
    if old.is_dir() and not old.is_symlink():
        shutil.copytree(old, new, symlinks=True, copy_function=_link_file)
    else:
        _link_file(old, new)


def _link_file(old: str | Path, new: str | Path) -> None:
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(old, new, follow_symlinks=False)


def _exchange(a: Path, b: Path) -> None:
    """Swap two names in one step, where the system can; otherwise in two."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(a), os.fsencode(b)
    if hasattr(libc, "renameat2"):
        here = -100  # AT_FDCWD
        done = libc.renameat2(here, names[0], here, names[1], _EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        done = libc.renamex_np(*names, _EXCHANGE)
    else:
        done, _ = -1, ctypes.set_errno(errno.ENOSYS)
    if done == 0:
        return
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = a.with_name(f"{a.name}.aside")
    b.rename(aside)
    a.rename(b)
    aside.rename(a)


@contextmanager
def temporary(parent: Path, folder: bool = False) -> Iterator[Path]:
    """A new file or folder with our mark, gone at the end unless it was renamed; stale ones go too."""
    sweep(parent)
    if folder:
        made = Path(tempfile.mkdtemp(dir=parent, prefix=MARK))
    else:
        handle, name = tempfile.mkstemp(dir=parent, prefix=MARK)
        os.close(handle)
        made = Path(name)
    lock = _lock(made)
    try:
        yield made
    finally:
        _remove(made)
        if lock is not None:
            os.close(lock)


def sweep(parent: Path) -> None:
    """Remove what writers left that are no more."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            if not entry.name.startswith(MARK):
                continue
            with suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime < YOUNG:
                    continue
                lock = _lock(Path(entry.path))
                if lock is not None:
                    _remove(Path(entry.path))
                    os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _lock(path: Path) -> int | None:
    """A lock on a file or folder, as an open handle; None where another process has it."""
    handle = os.open(path, os.O_RDONLY)
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
    return handle


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Be the only writer of a folder; waits a while for another, who will be done in moments."""
    deadline = time.monotonic() + PATIENCE
    while (lock := _lock(path)) is None:
        if time.monotonic() > deadline:
            raise ProlipError(f"{path} is being written by {_holder(path)}: try again later")
        time.sleep(0.05)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """A file to add lines to, which ends with a whole line whatever happens; for one writer at a time."""
    target = follow(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a", encoding="utf-8", newline="") as file:
            _claim(path, file)
            drop_partial_line(target)
            file.seek(0, os.SEEK_END)
            try:
                yield file
            except OSError:
                with suppress(OSError):
                    drop_partial_line(target)
                raise
    except OSError as error:
        raise write_error(path, error, "the lines before that are kept") from error


def _claim(path: Path, file: IO[Any]) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return  # a file system without locks
        raise UsageError(
            f"{path} is being written by {_holder(path)}: wait for it, or name another file"
        ) from error


def _holder(path: Path) -> str:
    """Who holds the lock on a file, as Linux tells it."""
    with suppress(OSError):
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return f"process {fields[4]}"
    return "another process"


def drop_partial_line(path: Path) -> None:
    """Cut off what an interrupted run left of a last line, before more lines are appended."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - (1 << 20))
        file.seek(start)
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(start + tail.rfind(b"\n") + 1)


def follow(path: Path) -> Path:
    """Where a path leads; a link that leads nowhere is refused."""
    try:
        path = path.expanduser()
        if path.is_symlink() and not path.exists():
            raise UsageError(f"{path} is a link to {path.readlink()}, which is not there: name another place")
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user; a null character
        raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def write_error(path: Path, error: OSError, left: str = "nothing was written") -> ProlipError:
    """What to tell when a path cannot be written; `left` is what is there after a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ProlipError(f"no space left on the disk while writing {path}; {left}")
    return ProlipError(f"cannot write {path}: {error.strerror or error}")


def _share(folder: Path) -> None:
    """The user's usual permissions: temporary folders, and some libraries' files, are their owner's only."""
    mask = _umask()
    folder.chmod(0o777 & ~mask)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
