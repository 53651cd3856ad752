"""Copy, link or move files into other folders, without ever replacing another file.

A move removes the old name only after this call has made the new one. An existing file is never taken for the
moved one, even with the same content: it may be the same file under another path.
"""

import errno
import filecmp
import itertools
import os
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from prolip.core.errors import InputError, ProlipError
from prolip.io.files import fsync, fsync_folder, portable_name
from prolip.io.writing import WriteError, make_folders, rename, temporary

PlaceMode = Literal["copy", "link", "move"]

_LONGEST = 100  # characters of a folder's name; 255 bytes are the limit of most file systems


def place(source: Path, folder: Path, mode: PlaceMode) -> Path:
    """Put a file into a folder, under its own name or the next free one, and return the new path.

    If a copy or a link with the same content exists under such a name, its path is returned: a second run
    changes nothing. Of a symbolic link the link itself is moved.
    """
    for target in numbered(folder / source.name):
        if put(source, target, mode) or (mode != "move" and same_content(source, target)):
            return target
    raise AssertionError


def put(source: Path, target: Path, mode: PlaceMode) -> bool:
    """Put a file at a path; return False if the path exists."""
    try:
        if not (is_movable(source) if mode == "move" else source.is_file()):
            raise InputError(f"{source} does not exist any more, or is not a file")
        make_folders(target.parent)
        if os.path.lexists(target):
            return False
        {"copy": _copy, "link": _link, "move": _move}[mode](source, target)
    except FileExistsError:  # made by another process since
        return False
    except OSError as error:
        raise WriteError(target, error, "existing files are unchanged") from error
    return True


def is_movable(path: Path) -> bool:
    """Whether this is a regular file or a symbolic link."""
    return path.is_symlink() or path.is_file()


def folder_names(names: Iterable[str]) -> list[str]:
    """Return unique folder names that are valid on every file system, also if it ignores case.

    Examples
    --------
    >>> folder_names(["cat", "a/b", "..", "CAT", "con"])
    ['cat', 'a_b', '__', 'CAT-2', 'con_']
    """
    used: set[str] = set()
    result = []
    for name in names:
        shortened = (
            name[:_LONGEST].strip().encode("utf-8", "backslashreplace")[:200].decode("utf-8", "ignore")
        )
        visible = shortened.lstrip(".")
        cleaned = portable_name("_" * (len(shortened) - len(visible)) + visible)
        tries = itertools.chain([cleaned], (f"{cleaned}-{n}" for n in itertools.count(2)))
        chosen = next(each for each in tries if _fold(each) not in used)
        used.add(_fold(chosen))
        result.append(chosen)
    return result


def numbered(target: Path) -> Iterable[Path]:
    """Yield cat.jpg, cat-2.jpg, cat-3.jpg, ..."""
    yield target
    for n in itertools.count(2):
        yield target.with_name(f"{target.stem}-{n}{target.suffix}")


def same_content(first: Path, second: Path) -> bool:
    """Whether two files hold the same bytes."""
    return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)


def _fold(name: str) -> str:
    """Return a name that is equal for names that macOS or Windows treats as equal."""
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
        target.symlink_to(os.path.realpath(source))  # which accepts circular links
        source.unlink()
        return
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target)
        fsync_folder(target.parent)
        with _undone_if_it_fails(source, target):
            source.unlink()


def _rename(source: Path, target: Path) -> None:
    """Rename a file to a free name; a FileExistsError where it is not free."""
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # there are no hard links here
        target.touch(exist_ok=False)  # this reserves the name: renaming over it replaces no other file
        with _undone_if_it_fails(source, target):
            rename(source, target)
    else:
        with _undone_if_it_fails(source, target):
            source.unlink()


@contextmanager
def _undone_if_it_fails(source: Path, target: Path) -> Iterator[None]:
    """Finish a move; if that fails, remove the target, and the source stays."""
    try:
        yield
    except BaseException:
        if source.exists():
            target.unlink()
        raise
