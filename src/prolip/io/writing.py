"""Writes that happen whole or not at all, and one writer at a time.

Whatever is being written has a temporary name with our mark, beside its final path, and its writer holds a
lock for that name. A writer that was killed leaves the name but no lock, since locks end with their process:
the next write into the same folder removes such names. Nothing is renamed while it is open (see Windows).
"""

import ctypes
import errno
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import ProlipError, UsageError
from prolip.io.files import fsync, fsync_folder, portable_name
from prolip.io.locks import MARK, LockedError, locked

NAME_LIMIT, PATH_LIMIT = 235, 4000  # bytes; file systems take 255 and 4,096, temporary names need the rest
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
                    made = stack.enter_context(temporary(target.parent, private=target.exists()))
                    write(made)
                    if target.exists():
                        shutil.copymode(target, made)
                    filled.append((made, target))
            for target in targets[1:]:
                target.unlink(missing_ok=True)
            for made, target in filled:
                rename(made, target)
    except OSError as error:
        raise write_error(main[0], error) from error


def write_bytes(path: Path, payload: bytes, durable: bool = False) -> None:
    """Write a file, whole or not at all; `durable` waits until it would outlast a power cut, name and all."""
    write_atomic(path, bytes_writer(payload, durable))
    if durable:
        fsync_folder(path.parent)


def bytes_writer(payload: bytes, durable: bool = False) -> Writer:
    """What fills a file with these bytes; `durable` waits until they would outlast a power cut."""

    def write(made: Path) -> None:
        with made.open("wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                fsync(file.fileno())

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
    """Let `fill` write files into a temporary folder beside `path`, then rename it to `path`.

    `path` is new or an empty folder; or, with `replace`, a folder whose files of the same names are replaced,
    all at one moment, and whose others stay.
    """
    target = check_exchangeable(path)
    try:
        make_folders(target.parent)
        with temporary(target.parent, folder=True, private=target.is_dir()) as made:
            fill(made)
            _share(made, target if target.is_dir() else made)
            if replace and target.is_dir() and any(target.iterdir()):
                _replace_folder(target, made)
            else:
                if target.is_dir():
                    target.rmdir()
                rename(made, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise UsageError(f"another process wrote files into {path}: name a new folder") from error
        raise write_error(path, error) from error


def check_exchangeable(path: Path) -> Path:
    """Where a path leads, if another folder can take its place; undoes a replacement that was cut short."""
    target = check_place(path)
    before = _before(target)
    if before.is_dir():
        try:
            _take_over(before, target) if target.is_dir() else rename(before, target)
        except OSError as error:
            raise write_error(path, error) from error
    if target.is_dir() and (os.path.ismount(target) or target == Path.cwd()):
        raise UsageError(f"{path} cannot be replaced in one step: name a folder inside it")
    return target


def _replace_folder(target: Path, made: Path) -> None:
    """Replace a folder by a new one, to which its other files are added first."""
    for old in target.iterdir():
        new = made / old.name
        if not os.path.lexists(new):
            _link(old, new)
        elif old.is_file() and new.is_file():
            shutil.copymode(old, new)
    if _exchange(made, target):
        _take_over(made, target)
        return
    before = _before(target)
    rename(target, before)
    try:
        rename(made, target)
    except BaseException:
        rename(before, target)
        raise
    _take_over(before, target)


def _before(target: Path) -> Path:
    """The name of a folder while another takes its place; without our mark: it may hold the user's files."""
    return target.with_name(f".{target.name}.prolip-old")


def _take_over(old: Path, target: Path) -> None:
    """Remove a folder that was replaced; files that came into it during the replacement are moved."""
    for late in old.iterdir():
        if not os.path.lexists(target / late.name):
            rename(late, target / late.name)
    _remove(old)


def _link(old: Path, new: Path) -> None:
    """The same files under another name, or copies where links cannot be made."""
    if old.is_dir() and not old.is_symlink():
        shutil.copytree(old, new, symlinks=True, copy_function=_link_file)
    else:
        _link_file(old, new)


def _link_file(old: str | Path, new: str | Path) -> None:
    try:
        os.link(old, new, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(old, new, follow_symlinks=False)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step, where the system can."""
    names = os.fsencode(a), os.fsencode(b)
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return bool(libc.renamex_np(*names, _EXCHANGE) == 0)
        here = -100  # AT_FDCWD
        return bool(libc.renameat2(here, names[0], here, names[1], _EXCHANGE) == 0)
    except (AttributeError, OSError, TypeError):  # another C library; Windows
        return False


def rename(old: Path, new: Path) -> None:
    """Rename a file, over one that is there, or a folder.

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
    """A new file or folder with our mark, gone at the end unless it was renamed; stale ones go too.

    It has the user's usual permissions, or is `private` where it takes the place of what may be.
    """
    sweep(parent)
    made = parent / f"{MARK}{secrets.token_hex(8)}"
    with locked(made.with_suffix(".lock"), made, timeout=10):
        try:
            if folder:
                made.mkdir(0o700 if private else 0o777)
            else:
                made.touch(0o600 if private else 0o666, exist_ok=False)
            yield made
        finally:
            _remove(made)


def sweep(parent: Path) -> None:
    """Remove what killed writers left; a living one holds the lock of its temporary name."""
    with suppress(OSError):
        for name in {Path(entry.name).stem for entry in os.scandir(parent) if entry.name.startswith(MARK)}:
            with suppress(OSError, LockedError), locked(parent / f"{name}.lock", parent / name, timeout=0):
                _remove(parent / name)


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
    elif sys.platform == "win32" and any(portable_name(name) != name for name in new):
        code = errno.EINVAL  # Windows takes "a:b" for a part of "a", "a." for "a", "con" for the console
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


def _share(folder: Path, like: Path) -> None:
    """Permissions like those of a folder: some libraries write files that only their owner may read."""
    mode = like.stat().st_mode
    for path in folder.rglob("*"):
        path.chmod(mode & (0o777 if path.is_dir() else 0o666))
    shutil.copymode(like, folder)
