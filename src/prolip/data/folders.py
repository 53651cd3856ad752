"""A folder per class, perhaps under train/ val/ test/, on the disk or in an archive.

photos/cat/1.jpg                    photos/train/cat/1.jpg          photos/metadata.csv
photos/dog/puppies/2.jpg            photos/test/dog/2.jpg           photos/anything/1.jpg

A class is a folder of the first level. Folders in it, however deep, belong to it. Folders without images and
images beside the class folders are skipped with a warning.
"""

import warnings
from collections.abc import Collection
from pathlib import Path

from prolip.core.errors import InputError, UsageError
from prolip.data.files import images_below, is_image, listing
from prolip.data.imageset import ImageSet
from prolip.data.tables import PARENT, TABLE_NAMES, split_of


class SkippedWarning(UserWarning):
    """A part of a folder is not read."""


class MissingSplitError(InputError):
    """A source with splits lacks the requested one."""


def choose_split(present: Collection[str], split: str | None, source: object) -> str:
    """Return the requested split, train by default; it must exist."""
    chosen = split or "train"
    if chosen not in present:
        raise MissingSplitError(
            f"{source} has no {chosen} split, only {', '.join(present)}: name the folder to read"
        )
    return chosen


def table_in(folder: Path) -> Path | None:
    """Return the table of the images of a folder, if there is one."""
    tables = (folder / name for name in TABLE_NAMES)
    return next((table for table in tables if table.is_file()), None)


def splits_in(root: Path) -> dict[str, Path]:
    """Return the folders of splits. A folder `train` that holds images itself is a class (of railways)."""
    found: dict[str, Path] = {}
    for folder in listing(root)[0]:
        split = split_of(folder.name)
        if split is None:
            continue
        folders, files = listing(folder)
        if table_in(folder) or (folders and not any(map(is_image, files))):
            if split in found:
                raise InputError(f"{found[split]} and {folder} are both the {split} split: keep one")
            found[split] = folder
    return found


def class_folders(root: Path, split: str | None, group_by: str | None = None) -> ImageSet:
    """Read a folder per class, with groups by the folders in them if `group_by` is PARENT."""
    if group_by not in (None, PARENT):
        raise UsageError(f"{group_by!r} is a column, and {root} is not a table: use {PARENT!r}")
    folders, files = listing(root)
    classes = {folder: paths for folder in folders if (paths := list(images_below(folder)))}
    beside = [file for file in files if is_image(file)]
    if beside and not classes:
        raise InputError(
            f"the images lie directly in {root} (like {beside[0].name}): give each class a folder of its own"
        )
    if beside:
        _skip(f"{len(beside)} of {root}, beside its class folders", beside)
    if empty := [folder for folder in folders if folder not in classes]:
        _skip(f"{len(empty)} of {root}, folders without images", empty)
    images = [path for paths in classes.values() for path in paths]
    labels = [label for label, paths in enumerate(classes.values()) for _ in paths]
    groups = tuple(_group(path, folder) for folder, paths in classes.items() for path in paths)
    names = [folder.name for folder in classes]
    return ImageSet(images, labels, names, root, split, groups if group_by else None)


def _skip(what: str, paths: list[Path]) -> None:
    names = ", ".join(path.name for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
    warnings.warn(f"skipped {what}: {names}", SkippedWarning, stacklevel=2)


def _group(file: Path, folder: Path) -> str:
    """Return the folder of a file below that of its class: `day 1` of cat/day 1/2.jpg and of dog/day 1/2.jpg.

    A file directly in the class folder is a group of its own.
    """
    inside = file.relative_to(folder)
    return inside.parent.as_posix() if len(inside.parts) > 1 else f"{folder.name}/{inside.name}"
