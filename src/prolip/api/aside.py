"""Images put aside, and back again. Nothing is ever deleted.

The folder for what is put aside holds a list of every file that is to come there, from where, and why. The
list is written first, whole; then each file is moved under a name that no other has. So whenever a run ends,
each file is in one of the two places that the list names, and `put_back` finds it. A move that fails takes
what did not come off the list again.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from prolip.core import InputError, ProlipError, UsageError
from prolip.core.placing import movable, numbered, place, same_content
from prolip.core.reading import read_json
from prolip.core.writing import write_json

LIST = "prolip-aside.json"
_FORMAT = "prolip-aside"


@dataclass(frozen=True)
class Moved:
    """A file that was put aside: where it was, its place below the folder for it, and why it is there."""

    source: str
    place: str
    why: str


def put_aside(
    folder: Path, images: Sequence[tuple[Path, str]], root: Path
) -> tuple[list[Moved], list[tuple[Path, str]]]:
    """Move images, each with a reason, into a folder, in the order of folders that they have below `root`.

    Those that were moved, and (path, reason) of those that cannot be, such as pipes.
    """
    folder, root = folder.resolve(), root.resolve()
    if root == folder or root in folder.parents:
        raise UsageError(f"{folder} lies inside {root}, where it would be a class: name a folder elsewhere")
    if folder.is_dir() and not (folder / LIST).exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files: name a new folder")
    listed = _away(folder, _read(folder)) if (folder / LIST).exists() else []
    taken: set[str] = {one.place for one in listed}
    moved: list[Moved] = []
    left: list[tuple[Path, str]] = []
    for image, why in images:
        source = image.parent.resolve() / image.name  # a link is moved, not what it leads to
        if root not in source.parents:
            raise UsageError(f"{source} lies outside {root}: nothing was moved")
        if not movable(source):
            left.append((image, "it is no regular file" if source.exists() else "it is not there any more"))
            continue
        below = _free(folder, source.relative_to(root), taken)
        taken.add(below)
        moved.append(Moved(str(source), below, why))
    _write(folder, listed + moved)
    try:
        for one in moved:
            target = folder / one.place
            place(Path(one.source), target.parent, "move", target.name)
    except ProlipError:
        _write(folder, listed + _away(folder, moved))
        raise
    return moved, left


def put_back(folder: Path) -> tuple[list[Moved], list[tuple[Moved, str]]]:
    """Move all back to where they were: those that were moved, and (file, reason) of those that cannot be.

    A file that stands in the way stays, and so does the one that was put aside, until they are told apart.
    """
    folder = folder.resolve()
    back: list[Moved] = []
    left: list[tuple[Moved, str]] = []
    for one in _away(folder, _read(folder)):
        source, aside = Path(one.source), folder / one.place
        if not os.path.lexists(aside):
            left.append((one, "it is in neither place"))
            continue
        if os.path.lexists(source) and not same_content(source, aside):
            left.append((one, f"another file is at {source}"))
            continue
        place(aside, source.parent, "move", source.name)
        back.append(one)
    _write(folder, [one for one, _ in left])
    return back, left


def _away(folder: Path, listed: Sequence[Moved]) -> list[Moved]:
    """The files of a list that are not where they came from: put aside, or lost."""
    return [one for one in listed if os.path.lexists(folder / one.place) or not os.path.lexists(one.source)]


def _free(folder: Path, below: Path, taken: set[str]) -> str:
    """The path below the folder, or the next one like it that is not taken."""
    names = (tried.as_posix() for tried in numbered(below) if not os.path.lexists(folder / tried))
    return next(name for name in names if name not in taken)


def _write(folder: Path, moved: Sequence[Moved]) -> None:
    """The list; nothing stays of a folder in which there is nothing."""
    if moved:
        write_json(folder / LIST, {"format": _FORMAT, "moved": [asdict(one) for one in moved]})
    else:
        (folder / LIST).unlink(missing_ok=True)
    _remove_empty(folder)


def _read(folder: Path) -> list[Moved]:
    """The list; a path that leads out of the folder is refused."""
    if not (folder / LIST).is_file():
        raise UsageError(f"{folder} has no {LIST}: name the folder that images were put aside in")
    found = read_json(folder / LIST)
    try:
        if found["format"] != _FORMAT:
            raise ValueError("it is another kind of file")
        moved = [Moved(str(one["source"]), str(one["place"]), str(one["why"])) for one in found["moved"]]
        for one in moved:
            if not (folder / one.place).parent.resolve().is_relative_to(folder):
                raise ValueError(f"{one.place!r} leads out of the folder")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / LIST} is damaged: {error}") from error
    return moved


def _remove_empty(folder: Path) -> None:
    """Folders that nothing is left in, the inner ones first."""
    inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
    for path in [*inner, folder]:
        with suppress(OSError):
            path.rmdir()
