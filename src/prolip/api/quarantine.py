"""Move images to a quarantine folder, and back. Nothing is ever deleted.

The folder has a list of every file: where it came from, and why. The list is written first, in full; then
each file is moved under a new name. So whenever a run ends, each file is in one of the two places in the
list, and `restore` finds it. If a move fails, files that were not moved are removed from the list. One place
is below the quarantine folder, the other below the root of the images: a list cannot name other places.
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


@dataclass(frozen=True)
class QuarantinedFile:
    """The place of a file below the root, its place below the quarantine, and why it was moved."""

    source: str
    place: str
    why: str


@dataclass(frozen=True)
class Quarantine:
    """A quarantine folder, the folder that its files came from, and the files in it."""

    folder: Path
    root: Path
    files: list[QuarantinedFile]


def quarantine(
    folder: Path, images: Sequence[tuple[Path, str]], root: Path
) -> tuple[list[QuarantinedFile], list[tuple[Path, str]]]:
    """Move images, each with a reason, into a folder, with the subfolders that they have below `root`.

    Returns what was moved, and (path, reason) of what cannot be moved, such as pipes.
    """
    folder, root = folder.resolve(), root.resolve()
    if lies_in(folder, root):
        raise UsageError(f"{folder} is inside {root}, where it would be a class: name a folder elsewhere")
    if folder.is_dir() and not (folder / LIST).exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} has other files: name a new folder")
    known = _read(folder) if (folder / LIST).exists() else Quarantine(folder, root, [])
    if known.root != root and not lies_in(root, known.root):
        raise UsageError(f"{folder} has images of {known.root}: name another folder for those of {root}")
    taken: set[str] = {one.place for one in known.files}
    moved: list[QuarantinedFile] = []
    left: list[tuple[Path, str]] = []
    for image, why in images:
        source = image.parent.resolve() / image.name  # a link is moved, not its target
        if root not in source.parents:
            raise UsageError(f"{source} is outside {root}: nothing was moved")
        if not is_movable(source):
            left.append((image, "it is not a regular file" if source.exists() else "it no longer exists"))
            continue
        below = source.relative_to(root)
        free = _free(folder, below, taken)
        taken.add(free)
        moved.append(QuarantinedFile(below.as_posix(), free, why))
    _write(Quarantine(folder, root, known.files + moved))
    try:
        for one in moved:
            if not put(root / one.source, folder / one.place, "move"):
                raise ProlipError(f"another process wrote {folder / one.place}: run the command again")
    except ProlipError:
        _write(Quarantine(folder, root, known.files + _away(folder, root, moved)))
        raise
    return moved, left


def read_quarantine(folder: Path, root: Path | None = None) -> Quarantine:
    """Read what `restore` moves back: to the folder in the list, or to another `root`."""
    return _read(folder.resolve(), None if root is None else root.resolve())


def restore(found: Quarantine) -> tuple[list[QuarantinedFile], list[tuple[QuarantinedFile, str]]]:
    """Move files back; return those that were moved, and (file, reason) of those that cannot be.

    If another file is in the old place, both files stay where they are.
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
    """Return the files that are not in their old place: in quarantine, or lost."""
    return [
        one for one in listed if os.path.lexists(folder / one.place) or not os.path.lexists(root / one.source)
    ]


def _free(folder: Path, below: Path, taken: set[str]) -> str:
    """Return the path below the folder, with a number if it is taken."""
    names = (tried.as_posix() for tried in numbered(below) if not os.path.lexists(folder / tried))
    return next(name for name in names if name not in taken)


def _write(state: Quarantine) -> None:
    """Write the list, and remove empty folders."""
    if state.files:
        files = [asdict(one) for one in state.files]
        write_json(state.folder / LIST, {"format": _FORMAT, "root": str(state.root), "files": files})
    else:
        (state.folder / LIST).unlink(missing_ok=True)
    _remove_empty(state.folder)


def _read(folder: Path, root: Path | None = None) -> Quarantine:
    """Read the list; refuse a path that is not below its folder."""
    if not (folder / LIST).is_file():
        raise UsageError(f"{folder} has no {LIST}: name the folder that images were moved to")
    found = read_json(folder / LIST)
    try:
        if found["format"] != _FORMAT:
            raise ValueError("it is not a quarantine list")
        root = root or Path(found["root"])
        files = [
            QuarantinedFile(str(one["source"]), str(one["place"]), str(one["why"])) for one in found["files"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / LIST} is damaged: {error}") from error
    for one in files:
        _check_below(one.source, root)
        _check_below(one.place, folder)
    return Quarantine(folder, root, _away(folder, root, files))


def _check_below(path: str, folder: Path) -> None:
    """Refuse a path that leads out of a folder, by itself or through a link."""
    pure = PurePath(path)
    strange = "\0" in path or pure.anchor or ".." in pure.parts or not pure.parts
    if strange or not lies_in((folder / path).parent, folder):
        raise InputError(f"{LIST} is damaged or malicious: {path!r} is not below {folder}")


def _remove_empty(folder: Path) -> None:
    """Remove empty folders, the inner ones first."""
    inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
    for path in [*inner, folder]:
        with suppress(OSError):
            path.rmdir()
