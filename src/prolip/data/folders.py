"""A folder per class, perhaps under train/ val/ test/, on the disk or in an archive.

photos/cat/1.jpg                    photos/train/cat/1.jpg          photos/metadata.csv
photos/dog/puppies/2.jpg            photos/test/dog/2.jpg           photos/anything/1.jpg

A class is a folder of the first level. Folders in it, however deep, belong to it.
"""

from collections.abc import Iterable
from pathlib import Path, PurePath

from prolip.core.errors import InputError, UsageError
from prolip.data.archives import ArchiveFolder
from prolip.data.files import images_below, is_image, listing
from prolip.data.imageset import ImageSet, LazyImage
from prolip.data.tables import PARENT, TABLE_NAMES

SPLITS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}

Folder = Path | ArchiveFolder
File = Path | LazyImage


class MissingSplitError(InputError):
    """A source with splits lacks the requested one."""


def split_of(name: str) -> str | None:
    """Return the split that a folder name, or a cell of a table, names."""
    lowered = name.strip().lower()
    return next((split for split, aliases in SPLITS.items() if lowered in aliases), None)


def choose_split(present: Iterable[str], split: str | None, source: object) -> str:
    """Return the requested split, train by default; it must exist."""
    present = list(present)
    chosen = "train" if split is None else split
    if chosen not in present:
        raise MissingSplitError(
            f"{source} has no {chosen} split, only {', '.join(present)}: name the folder to read"
        )
    return chosen


def contents(folder: Folder) -> tuple[list[Folder], list[File]]:
    """Return the visible folders and files of a folder, each sorted by name."""
    if isinstance(folder, ArchiveFolder):
        folders, files = folder.folders, folder.files
        return [folders[name] for name in sorted(folders)], [files[name] for name in sorted(files)]
    inside = listing(folder)
    return list(inside[0]), list(inside[1])


def table_in(folder: Folder) -> File | None:
    """Return the table of the images of a folder, if there is one."""
    if isinstance(folder, ArchiveFolder):
        tables: list[File] = [folder.files[name] for name in TABLE_NAMES if name in folder.files]
    else:
        tables = [folder / name for name in TABLE_NAMES if (folder / name).is_file()]
    if len(tables) > 1:
        both = " and ".join(Path(str(table)).name for table in tables[:2])
        raise InputError(f"{folder} has both {both}: keep one")
    return tables[0] if tables else None


def splits_in(root: Folder) -> dict[str, Folder]:
    """Return the folders of splits. A folder `train` that holds images itself is a class (of railways)."""
    found: dict[str, Folder] = {}
    for folder in contents(root)[0]:
        split = split_of(folder.name)
        if split is None:
            continue
        folders, files = contents(folder)
        if table_in(folder) or (folders and not any(map(is_image, files))):
            if split in found:
                raise InputError(f"{found[split]} and {folder} are both the {split} split: keep one")
            found[split] = folder
    return found


def class_folders(root: Folder, split: str | None, group_by: str | None = None) -> ImageSet:
    """Read a folder per class, with groups by the folders in them if `group_by` is PARENT."""
    if group_by not in (None, PARENT):
        raise UsageError(f"group_by={group_by!r} is a column, and {root} is not a table: use {PARENT!r}")
    folders, files = contents(root)
    beside = [file for file in files if is_image(file)]
    if beside and not folders:
        raise InputError(
            f"the images lie directly in {root} (like {Path(str(beside[0])).name}): "
            "give each class a folder of its own"
        )
    if beside:
        raise InputError(f"{beside[0]} lies beside the class folders of {root}: move it into one")
    images: list[File] = []
    labels: list[int] = []
    groups: list[str] = []
    for label, folder in enumerate(folders):
        inside: list[File] = list(
            folder.images() if isinstance(folder, ArchiveFolder) else images_below(folder)
        )
        if not inside:
            raise InputError(f"class {folder.name!r} has no images: put some into {folder}, or remove it")
        if {"train", "test"} <= set(splits_in(folder)):  # a dataset, whose parent was named
            raise InputError(
                f"{folder} contains train/ and test/: it is not a class of {root}, name it instead"
            )
        images += inside
        labels += [label] * len(inside)
        groups += [_group(file, folder) for file in inside]
    classes = [folder.name for folder in folders]
    return ImageSet(images, labels, classes, root, split, tuple(groups) if group_by else None)


def _group(file: File, folder: Folder) -> str:
    """Return the folder of a file below that of its class: `day 1` of cat/day 1/2.jpg and of dog/day 1/2.jpg.

    A file directly in the class folder is a group of its own.
    """
    inside = PurePath(str(file)).relative_to(str(folder))
    return inside.parent.as_posix() if len(inside.parts) > 1 else f"{folder.name}/{inside.name}"
