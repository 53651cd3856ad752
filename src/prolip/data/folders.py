"""What lies in a folder: images, tables, archives; a folder per class, perhaps under train/ val/ test/.

photos/cat/1.jpg                    photos/train/cat/1.jpg          photos/metadata.csv
photos/dog/puppies/2.jpg            photos/test/dog/2.jpg           photos/anything/1.jpg

A class is a folder of the first level. Folders in it, however deep, belong to it. Folders without images and
images beside the class folders are skipped with a warning.
"""

import os
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

from prolip.core.errors import InputError, UsageError, as_path
from prolip.data.imageset import ImageSet
from prolip.io.reading import Source, reading

# Formats that are opened, by Pillow's names. Its others start another program (EPS), are not images (PDF,
# HDF5, MPEG), or are only stubs; an icon may hold an image of any size, which is decoded whatever it claims.
IMAGE_FORMATS: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heif", ".hif"),
    "JPEG2000": (".jp2", ".j2k", ".jpx", ".jpf", ".j2c", ".jpc"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
}
IMAGE_SUFFIXES = frozenset(suffix for suffixes in IMAGE_FORMATS.values() for suffix in suffixes)

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")  # one slash, as a path has no two; a drive has one letter

# Folders that archive tools and file servers leave beside the data.
_CLUTTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information"})

TEXT_TABLES = (".csv", ".tsv", ".jsonl")
TABLE_NAMES = tuple(f"metadata{suffix}" for suffix in (*TEXT_TABLES, ".parquet"))
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")

PARENT = "parent"  # the value of `group_by` that groups images by their folders
SPLITS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


class MissingSplitError(InputError):
    """A source with splits lacks the requested one."""


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is ignored."""
    return name.startswith(".") or name in _CLUTTER


def is_image(file: Path) -> bool:
    """Whether a file has the suffix of an image."""
    return file.suffix.lower() in IMAGE_SUFFIXES


def existing(source: Source) -> Path:
    """Return an existing path, with ~ expanded; a URL is an error: nothing is downloaded."""
    path = as_path(source, "a source of images")
    refuse_url(os.fspath(source))
    with reading(path):
        path = path.expanduser()
        path.stat()
    return path


def refuse_url(text: str) -> None:
    """Reject a URL: images are read from this machine."""
    if _URL.match(text):
        raise UsageError(
            f"{text} is a URL, and nothing is downloaded: download it yourself, and name the file"
        )


def listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the visible folders and files of a folder, each sorted by name."""
    with reading(folder), os.scandir(folder) as entries:
        visible = sorted((entry.name, entry.is_dir()) for entry in entries if not is_hidden(entry.name))
    folders = [folder / name for name, is_folder in visible if is_folder]
    return folders, [folder / name for name, is_folder in visible if not is_folder]


def images_below(folder: Path) -> Iterator[Path]:
    """Yield every image below a folder, sorted. Links to folders are not followed: they may be circular."""
    folders, files = listing(folder)
    yield from filter(is_image, files)
    for inside in folders:
        if not inside.is_symlink():
            yield from images_below(inside)


def is_archive(path: Path) -> bool:
    """Whether this is a file with the suffix of an archive."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES) and not path.is_dir()


def is_saved_dataset(path: Path) -> bool:
    """Whether `save_to_disk` of Hugging Face's datasets wrote this folder."""
    return (path / "dataset_dict.json").is_file() or (path / "dataset_info.json").is_file()


def split_of(name: str) -> str | None:
    """Return the split that a folder name, or a cell of a table, names."""
    lowered = name.strip().lower()
    return next((split for split, aliases in SPLITS.items() if lowered in aliases), None)


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
    if skipped := [path.name for path in folders if path not in classes] + [path.name for path in beside]:
        some = ", ".join(skipped[:5]) + (", ..." if len(skipped) > 5 else "")
        warnings.warn(
            f"skipped {len(skipped)} of {root}, folders without images and images beside folders: {some}",
            stacklevel=2,
        )
    images = [path for paths in classes.values() for path in paths]
    labels = [label for label, paths in enumerate(classes.values()) for _ in paths]
    groups = tuple(_group(path, folder) for folder, paths in classes.items() for path in paths)
    names = [folder.name for folder in classes]
    return ImageSet(images, labels, names, root, split, groups if group_by else None)


def _group(file: Path, folder: Path) -> str:
    """Return the folder of a file below that of its class: `day 1` of cat/day 1/2.jpg and of dog/day 1/2.jpg.

    A file directly in the class folder is a group of its own.
    """
    inside = file.relative_to(folder)
    return inside.parent.as_posix() if len(inside.parts) > 1 else f"{folder.name}/{inside.name}"
