"""Writes that happen whole or not at all, and one writer at a time.

Whatever is being written has a temporary name with our mark, beside its place, and its writer holds a lock on
it. A writer that was killed leaves the name but no lock, since locks end with their process: the next write
into the same folder takes such names away.
"""

import ctypes
import errno
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import ProlipError, UsageError
from prolip.core.locks import try_lock

MARK = ".prolip-tmp-"
YOUNG = 60.0  # seconds in which a temporary name may not have its lock yet
NAME_LIMIT, PATH_LIMIT = 255, 4000  # bytes; of paths, with room for a temporary name below 4,096
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


Writer = Callable[[Path], None]


def write_atomic(path: Path, write: Writer) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it there.

    A reader sees the old file or the new one, never a part; after a failure nothing is left behind. A link is
    followed: what it points to is replaced. Permissions of the old file are the new one's.
    """
    write_files((path, write))


def write_files(main: tuple[Path, Writer], *others: tuple[Path, Writer | None]) -> None:
    """Write a file and others that belong to it, each as `write_atomic` does, once all of them are filled.

    Before the main file is replaced the old others go, so that whenever this is stopped, none of them stands
    beside a main file that it does not belong to. Without a writer, that is all.
    """
    files = (main, *others)
    targets = [follow(path) for path, _ in files]
    try:
        with ExitStack() as stack:
            filled = []
            for target, (_, write) in zip(targets, files, strict=True):
                if write is not None:
                    make_folders(target.parent)
                    made = stack.enter_context(temporary(target.parent))
                    write(made)
                    made.chmod(_mode(target))
                    filled.append((made, target))
            for target in targets[1:]:
                target.unlink(missing_ok=True)
            for made, target in filled:
                made.replace(target)
    except OSError as error:
        raise write_error(main[0], error) from error


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file, whole or not at all."""
    write_atomic(path, bytes_writer(payload))


def bytes_writer(payload: bytes, durable: bool = False) -> Writer:
    """What fills a file with these bytes; `durable` waits until they would outlast a power cut."""

    def write(made: Path) -> None:
        with made.open("wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                os.fsync(file.fileno())

    return write


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people."""
    write_bytes(path, as_json(value))


def as_json(value: Any) -> bytes:
    """JSON for people: indented, keys in the order given. What is no text in UTF-8 becomes JSON's escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write arrays, NumPy's or torch's, as a safetensors file."""
    write_bytes(path, as_safetensors(tensors, metadata))


def as_safetensors(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """The content of a safetensors file with these arrays."""
    from safetensors.numpy import save

    return save({name: np.asarray(to_numpy(x), order="C") for name, x in tensors.items()}, metadata)


def write_folder(path: Path, fill: Writer, replace: bool = False) -> None:
    """Let `fill` write files into a temporary folder beside `path`, then put it there in one step.

    `path` is new or an empty folder; or, with `replace`, a folder whose files of the same names are replaced,
    all at one moment, and whose others stay.
    """
    target = check_exchangeable(path)
    try:
        make_folders(target.parent)
        with temporary(target.parent, folder=True) as made:
            fill(made)
            _share(made)
            if target.is_dir():
                shutil.copymode(target, made)
            if replace and target.is_dir() and any(target.iterdir()):
                _replace_together(target, made)
            else:
                made.replace(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise UsageError(f"{path} holds files by now, of another process: name a new folder") from error
        raise write_error(path, error) from error


def check_exchangeable(path: Path) -> Path:
    """Where a path leads, if another folder can be put there in one step."""
    target = check_place(path)
    if target.is_dir() and (os.path.ismount(target) or target == Path.cwd()):
        raise UsageError(f"{path} cannot be replaced in one step: name a folder inside it")
    return target


def _replace_together(target: Path, made: Path) -> None:
    """Exchange two folders; what only the old one holds goes along."""
    for old in target.iterdir():
        new = made / old.name
        if not os.path.lexists(new):
            _link(old, new)
        elif old.is_file() and new.is_file():
            shutil.copymode(old, new)
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
    aside = b.with_name(f".{b.name}.before")  # without our mark: it may hold what is the user's
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
    lock = os.open(made, os.O_RDONLY)
    try_lock(lock)
    try:
        yield made
    finally:
        _remove(made)
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
                lock = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
                if try_lock(lock):
                    _remove(Path(entry.path))
                os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def follow(path: Path) -> Path:
    """Where a path leads; a link that leads nowhere is refused."""
    try:
        path = path.expanduser()
        if path.is_symlink() and not path.exists():
            raise UsageError(f"{path} is a link to {path.readlink()}, which is not there: name another place")
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user; a null character
        raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def check_place(path: Path) -> Path:
    """Where a path leads, if something can be written there; otherwise an error, before any work is done."""
    target = follow(path)
    there = next(place for place in (target, *target.parents) if os.path.lexists(place))
    folder = there if there.is_dir() else there.parent
    new = target.relative_to(there).parts
    code = 0
    if len(os.fsencode(target)) > PATH_LIMIT or any(len(os.fsencode(name)) > NAME_LIMIT for name in new):
        code = errno.ENAMETOOLONG
    elif new and folder != there:
        code = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EACCES
    if code:
        raise write_error(path, OSError(code, os.strerror(code)))
    return target


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, however deep."""
    missing = list(takewhile(lambda place: not place.is_dir(), (folder, *folder.parents)))
    for place in reversed(missing):
        try:
            place.mkdir(exist_ok=True)
        except FileExistsError as error:  # not as a folder
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def write_error(path: Path, error: OSError, remaining: str = "nothing was written") -> ProlipError:
    """What to tell when a path cannot be written; `remaining` is what is there after a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ProlipError(f"no space left on the disk while writing {path}; {remaining}")
    return ProlipError(f"cannot write {path}: {error.strerror or error}")


def _share(folder: Path) -> None:
    """The user's usual permissions: temporary folders, and some libraries' files, are their owner's only."""
    mask = _umask(folder)
    folder.chmod(0o777 & ~mask)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _mode(target: Path) -> int:
    """The permissions of a file that is written over, or the usual ones."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return 0o666 & ~_umask(target.parent)


def _umask(folder: Path) -> int:
    """What new files here lack, seen from one: to ask the system is to set the mask, for every thread."""
    place = folder / f"{MARK}{secrets.token_hex(8)}"
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777)
    try:
        return 0o777 & ~os.fstat(handle).st_mode
    finally:
        os.close(handle)
        place.unlink()
