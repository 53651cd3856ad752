"""Files into other folders, by copy, link or move: never over another file, and never half.

A move removes the old name only after this call has made the new one. A file that is there already is never
taken for the one that is moved, whatever it holds: it may be the same file under another path.
"""

import errno
import filecmp
import itertools
import os
import shutil
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from prolip.core.errors import InputError, ProlipError
from prolip.io.files import fsync, fsync_folder, portable_name
from prolip.io.writing import WriteError, make_folders, rename, temporary

How = Literal["copy", "link", "move"]

_NO_LINKS = (
    errno.EPERM,
    errno.EACCES,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EINVAL,
)
_LONGEST = 100  # characters of a folder's name; 255 bytes are the limit of most file systems


def place(source: Path, folder: Path, how: How) -> Path:
    """Put a file into a folder, under its own name or the next free one like it, and return where it is.

    Where a copy or a link of the same content is there already under such a name, that is the place: a second
    run changes nothing. A symbolic link is moved itself, wherever it leads.
    """
    for target in numbered(folder / source.name):
        if put(source, target, how) or (how != "move" and same_content(source, target)):
            return target
    raise AssertionError


def put(source: Path, target: Path, how: How) -> bool:
    """Put a file at a path; False if the path is taken."""
    try:
        if not (is_movable(source) if how == "move" else source.is_file()):
            raise InputError(f"{source} is not there any more, or not a file")
        make_folders(target.parent)
        if os.path.lexists(target):
            return False
        {"copy": _copy, "link": _link, "move": _move}[how](source, target)
    except FileExistsError:  # made by another process since
        return False
    except OSError as error:
        raise WriteError(target, error, "what was there before stays") from error
    return True


def is_movable(path: Path) -> bool:
    """Whether a regular file or a symbolic link is there."""
    return path.is_symlink() or path.is_file()


def folder_names(names: Iterable[str]) -> list[str]:
    """A name for each that every file system takes, no two the same, whatever the case of their letters.

    Examples
    --------
    >>> folder_names(["cat", "a/b", "..", "CAT", "con"])
    ['cat', 'a_b', '__', 'CAT-2', 'con_']
    """
    taken: set[str] = set()
    found = []
    for name in names:
        shortened = (
            name[:_LONGEST].strip().encode("utf-8", "backslashreplace")[:200].decode("utf-8", "ignore")
        )
        visible = shortened.lstrip(".")
        cleaned = portable_name("_" * (len(shortened) - len(visible)) + visible)
        tries = itertools.chain([cleaned], (f"{cleaned}-{n}" for n in itertools.count(2)))
        chosen = next(each for each in tries if _folded(each) not in taken)
        taken.add(_folded(chosen))
        found.append(chosen)
    return found


def numbered(target: Path) -> Iterable[Path]:
    """cat.jpg, cat-2.jpg, cat-3.jpg, ..."""
    yield target
    for n in itertools.count(2):
        yield target.with_name(f"{target.stem}-{n}{target.suffix}")


def same_content(first: Path, second: Path) -> bool:
    """Whether two files hold the same bytes."""
    return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)


def _folded(name: str) -> str:
    """What names have in common that macOS or Windows takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def _copy(source: Path, target: Path) -> None:
    with temporary(target.parent) as made:
        shutil.copy2(source, made)
        with suppress(OSError), made.open("r+b") as file:
            fsync(file.fileno())
        _rename(made, target)


def _link(source: Path, target: Path) -> None:
    """Make a symbolic link, or a hard one where Windows or the file system does not allow that."""
    try:
        target.symlink_to(source.resolve())
    except FileExistsError:
        raise
    except OSError:
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError as error:
            reason = error.strerror or error
            raise ProlipError(
                f"cannot make a link to {source} at {target}: {reason}; copy or move"
            ) from error


def _move(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(os.path.realpath(source))  # which takes links that go round, too
        source.unlink()
        return
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target)
        fsync_folder(target.parent)
        _remove_old_name(source, target)


def _rename(source: Path, target: Path) -> None:
    """Rename a file to a name that is free; a FileExistsError where it is not."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        _remove_old_name(source, target)
        return
    target.touch(exist_ok=False)  # the name is ours now: to rename over it harms no other file
    try:
        rename(source, target)
    except BaseException:
        if source.exists():
            target.unlink()
        raise


def _remove_old_name(source: Path, target: Path) -> None:
    """End a move: without its source, or without its target where the source cannot be removed."""
    try:
        source.unlink()
    except BaseException:
        if source.exists():
            target.unlink()
        raise
