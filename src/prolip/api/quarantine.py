"""Images moved to a quarantine folder, and back again. Nothing is ever deleted.

The folder holds a list of every file that is to come there, from where, and why. The list is written first,
whole; then each file is moved under a name that no other has. So whenever a run ends, each file is in one of
the two places that the list names, and `restore` finds it. A move that fails takes what did not come off the
list again. One place is below the quarantine folder, the other below the root that the images came from: a
list by someone else cannot name others.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

from prolip.core import InputError, ProlipError, UsageError
from prolip.io.files import lies_in
from prolip.io.placing import is_movable, numbered, put, same_content
from prolip.io.reading import read_json
from prolip.io.writing import write_json

LIST = "prolip-quarantine.json"
_FORMAT = "prolip-quarantine"


class OutsideError(InputError):
    """A list names a `path` that does not lie below `folder`."""

    def __init__(self, path: str, folder: Path) -> None:
        super().__init__(f"{LIST} is damaged, or made to do harm: {path!r} does not lie below {folder}")
        self.path, self.folder = path, folder


@dataclass(frozen=True)
class QuarantinedFile:
    """Where a file was below the root, where it is below the quarantine, and why."""

    source: str
    place: str
    why: str


@dataclass(frozen=True)
class Quarantine:
    """A quarantine folder, the folder that its files came from, and the files that are not back."""

    folder: Path
    root: Path
    files: list[QuarantinedFile]


def quarantine(
    folder: Path, images: Sequence[tuple[Path, str]], root: Path
) -> tuple[list[QuarantinedFile], list[tuple[Path, str]]]:
    """Move images, each with a reason, into a folder, in the order of folders that they have below `root`.

    Those that were moved, and (path, reason) of those that cannot be, such as pipes.
    """
    folder, root = folder.resolve(), root.resolve()
    if lies_in(folder, root):
        raise UsageError(f"{folder} lies inside {root}, where it would be a class: name a folder elsewhere")
    if folder.is_dir() and not (folder / LIST).exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files: name a new folder")
    there = _read(folder) if (folder / LIST).exists() else Quarantine(folder, root, [])
    if there.root != root and not lies_in(root, there.root):
        raise UsageError(f"{folder} holds images of {there.root}: name another folder for those of {root}")
    taken: set[str] = {one.place for one in there.files}
    moved: list[QuarantinedFile] = []
    left: list[tuple[Path, str]] = []
    for image, why in images:
        source = image.parent.resolve() / image.name  # a link is moved, not what it leads to
        if root not in source.parents:
            raise UsageError(f"{source} lies outside {root}: nothing was moved")
        if not is_movable(source):
            left.append(
                (image, "it is not a regular file" if source.exists() else "it is not there any more")
            )
            continue
        below = source.relative_to(root)
        free = _free(folder, below, taken)
        taken.add(free)
        moved.append(QuarantinedFile(below.as_posix(), free, why))
    _write(Quarantine(folder, root, there.files + moved))
    try:
        for one in moved:
            if not put(root / one.source, folder / one.place, "move"):
                raise ProlipError(f"another process has written {folder / one.place}: run the same again")
    except ProlipError:
        _write(Quarantine(folder, root, there.files + _away(folder, root, moved)))
        raise
    return moved, left


def read_quarantine(folder: Path, root: Path | None = None) -> Quarantine:
    """What `restore` is to move back: to the folder that the list names, or to another `root`."""
    return _read(folder.resolve(), None if root is None else root.resolve())


def restore(found: Quarantine) -> tuple[list[QuarantinedFile], list[tuple[QuarantinedFile, str]]]:
    """Move all back to where they were: those that were moved, and (file, reason) of those that cannot be.

    A file that is there already stays, and so does the one in the quarantine.
    """
    back: list[QuarantinedFile] = []
    left: list[tuple[QuarantinedFile, str]] = []
    for one in found.files:
        source, here = found.root / one.source, found.folder / one.place
        if not os.path.lexists(here):
            left.append((one, "it is in neither place"))
        elif put(here, source, "move"):
            back.append(one)
        else:
            left.append(
                (one, f"{'the same' if same_content(source, here) else 'another'} file is at {source}")
            )
    _write(Quarantine(found.folder, found.root, [one for one, _ in left]))
    return back, left


def _away(folder: Path, root: Path, listed: Sequence[QuarantinedFile]) -> list[QuarantinedFile]:
    """The files of a list that are not where they came from: in quarantine, or lost."""
    return [
        one for one in listed if os.path.lexists(folder / one.place) or not os.path.lexists(root / one.source)
    ]


def _free(folder: Path, below: Path, taken: set[str]) -> str:
    """The path below the folder, or the next one like it that is not taken."""
    names = (tried.as_posix() for tried in numbered(below) if not os.path.lexists(folder / tried))
    return next(name for name in names if name not in taken)


def _write(state: Quarantine) -> None:
    """The list; nothing stays of a folder in which there is nothing."""
    if state.files:
        files = [asdict(one) for one in state.files]
        write_json(state.folder / LIST, {"format": _FORMAT, "root": str(state.root), "files": files})
    else:
        (state.folder / LIST).unlink(missing_ok=True)
    _remove_empty(state.folder)


def _read(folder: Path, root: Path | None = None) -> Quarantine:
    """The list; a path that does not lie below its folder is refused."""
    if not (folder / LIST).is_file():
        raise UsageError(f"{folder} has no {LIST}: name the folder that images were moved to")
    found = read_json(folder / LIST)
    try:
        if found["format"] != _FORMAT:
            raise ValueError("it is another kind of file")
        root = root or Path(found["root"])
        files = [
            QuarantinedFile(str(one["source"]), str(one["place"]), str(one["why"])) for one in found["files"]
        ]
        for one in files:
            _check_below(one.source, root)
            _check_below(one.place, folder)
    except OutsideError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / LIST} is damaged: {error}") from error
    return Quarantine(folder, root, _away(folder, root, files))


def _check_below(path: str, folder: Path) -> None:
    """Refuse a path that leads out of a folder, by itself or through a link."""
    pure = PurePath(path)
    if pure.anchor or ".." in pure.parts or not pure.parts or not lies_in((folder / path).parent, folder):
        raise OutsideError(path, folder)


def _remove_empty(folder: Path) -> None:
    """Folders that nothing is left in, the inner ones first."""
    inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
    for path in [*inner, folder]:
        with suppress(OSError):
            path.rmdir()
