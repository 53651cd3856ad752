"""Files into other folders, by copy, link or move: never over another file, and never half."""

import errno
import filecmp
import itertools
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from prolip.core.errors import InputError
from prolip.core.writing import temporary, write_error

How = Literal["copy", "link", "move"]

_FORBIDDEN = {ord(mark): "_" for mark in '<>:"/\\|?*'} | dict.fromkeys([*range(32), 127], "_")
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
_LONGEST = 100  # characters of a folder's name; 255 bytes are the limit of most file systems


def place(source: Path, folder: Path, how: How, name: str | None = None) -> Path:
    """Put a file into a folder, under its own name or the next free one like it, and return where it is.

    Where the same content is there already under such a name, that is the place: a second run changes
    nothing. A link is moved itself, wherever it leads.
    """
    try:
        if not (movable(source) if how == "move" else source.is_file()):
            raise InputError(f"{source} is not there any more, or no file")
        folder.mkdir(parents=True, exist_ok=True)
        for target in numbered(folder / (name or source.name)):
            if _put(source, target, how):
                return target
    except OSError as error:
        raise write_error(folder, error, "what was there before stays") from error
    raise AssertionError


def movable(path: Path) -> bool:
    """Whether a regular file or a link is there."""
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
        cleaned = name.translate(_FORBIDDEN)[:_LONGEST].strip()
        cleaned = cleaned.encode("utf-8", "backslashreplace")[:200].decode("utf-8", "ignore")
        cleaned = "_" * (len(cleaned) - len(cleaned.lstrip("."))) + cleaned.lstrip(".")
        cleaned = cleaned.rstrip(". ") or "_"
        if cleaned.partition(".")[0].lower() in _DEVICES:
            cleaned += "_"
        tries = itertools.chain([cleaned], (f"{cleaned}-{n}" for n in itertools.count(2)))
        chosen = next(each for each in tries if each.casefold() not in taken)
        taken.add(chosen.casefold())
        found.append(chosen)
    return found


def numbered(target: Path) -> Iterable[Path]:
    """cat.jpg, cat-2.jpg, cat-3.jpg, ..."""
    yield target
    for n in itertools.count(2):
        yield target.with_name(f"{target.stem}-{n}{target.suffix}")


def _put(source: Path, target: Path, how: How) -> bool:
    """Whether the file is at `target` now; not where another one is."""
    if os.path.lexists(target):
        if not same_content(source, target):
            return False
        if how == "move" and target.is_symlink() and not source.is_symlink():
            return False  # it would lead nowhere
        if how == "move":
            source.unlink()  # the same content stands there
        return True
    try:
        if how == "link":
            target.symlink_to(source.resolve())
        elif how == "move" and source.is_symlink():
            target.symlink_to(os.path.realpath(source))  # which takes links that go round, too
            source.unlink()
        elif how == "move" and _hard_link(source, target):
            source.unlink()
        else:
            with temporary(target.parent) as made:
                shutil.copy2(source, made)
                _flush(made)
                if not _hard_link(made, target):
                    made.rename(target)
            if how == "move":
                source.unlink()
    except FileExistsError:  # came in between
        return _put(source, target, how)
    return True


def _hard_link(source: Path, target: Path) -> bool:
    """A second name for a file, which fails where the name is taken; False where links cannot be made."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            return False
        raise
    return True


def _flush(path: Path) -> None:
    with suppress(OSError), path.open("rb") as file:
        os.fsync(file.fileno())


def same_content(first: Path, second: Path) -> bool:
    """Whether two files hold the same bytes, or two links to no file name the same place."""
    if not (first.is_file() and second.is_file()):
        links = first.is_symlink() and second.is_symlink()
        return links and os.path.realpath(first) == os.path.realpath(second)
    return first.samefile(second) or filecmp.cmp(first, second, shallow=False)
