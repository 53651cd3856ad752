"""A folder per class, perhaps under train/ val/ test/; or a table beside the images.

photos/cat/1.jpg                    photos/train/cat/1.jpg          photos/metadata.csv
photos/dog/2.jpg                    photos/test/dog/2.jpg           photos/anything/1.jpg
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prolip.core.errors import InputError, unknown_name
from prolip.data.files import existing, images_below, is_image, listing
from prolip.data.imageset import ImageSet, class_names
from prolip.data.tables import TABLE_NAMES, TABLE_SUFFIXES, TableRow, read_table

SPLITS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


class MissingSplit(InputError):  # noqa: N818 - reads as what it is where it is caught
    """A source with splits lacks the one that was asked for."""


def read_images(
    source: str | os.PathLike[str], split: str | None = None, *, min_classes: int = 2
) -> ImageSet:
    """Read the images and labels of a folder.

    Parameters
    ----------
    source
        A folder with a folder per class; or with train/ val/ test/ folders of those; or with a
        metadata.csv or metadata.jsonl (columns `file_name` and `label`, perhaps `split`), as Hugging
        Face's imagefolder has it; or such a table itself.
    split
        "train", "val" or "test", where the source has splits; a source without any is read whole. None
        takes train where there are splits. `ImageSet.split` says what was taken.
    min_classes
        Fewer classes are refused. Fitting needs two; an evaluation can do with one.
    """
    if split is not None and split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    path = existing(source)
    if path.is_file():
        if path.suffix.lower() not in TABLE_SUFFIXES:
            raise InputError(f"{path} is a file: give the folder that holds a folder per class")
        return _from_table(path, split, min_classes)
    if table := _table_in(path):
        return _from_table(table, split, min_classes)
    splits = _splits_in(path)
    if not splits:
        return _from_folders(path, None, min_classes)
    chosen = _choose(splits, split, path)
    folder = splits[chosen]
    if table := _table_in(folder):
        return _from_table(table, chosen, min_classes)
    return _from_folders(folder, chosen, min_classes)


def split_of(name: str) -> str | None:
    """The split that a folder name, or a cell of a table, stands for."""
    lowered = name.strip().lower()
    return next((split for split, aliases in SPLITS.items() if lowered in aliases), None)


def _choose(present: Iterable[str], split: str | None, source: Path) -> str:
    present = list(present)
    wanted = split or "train"
    if wanted not in present:
        raise MissingSplit(
            f"{source} has no {wanted} split, only {', '.join(present)}: name the folder to read"
        )
    return wanted


def _splits_in(root: Path) -> dict[str, Path]:
    """Folders for train, val and test. A folder `train` that holds images itself is a class (of railways)."""
    found: dict[str, Path] = {}
    for folder in listing(root)[0]:
        split = split_of(folder.name)
        if split is None:
            continue
        folders, files = listing(folder)
        if _table_in(folder) or (folders and not any(map(is_image, files))):
            if split in found:
                raise InputError(f"{found[split]} and {folder} are both the {split} split: keep one")
            found[split] = folder
    return found


def _table_in(folder: Path) -> Path | None:
    tables = [folder / name for name in TABLE_NAMES if (folder / name).is_file()]
    if len(tables) > 1:
        raise InputError(f"{folder} has both {' and '.join(t.name for t in tables)}: keep one")
    return tables[0] if tables else None


def _from_folders(root: Path, split: str | None, min_classes: int) -> ImageSet:
    folders, files = listing(root)
    paths: list[Path] = []
    labels: list[int] = []
    ignored = sum(not is_image(file) for file in files)
    beside = [file for file in files if is_image(file)]
    if beside and not folders:
        raise InputError(
            f"the images lie directly in {root} (like {beside[0].name}): give each class a folder of its own"
        )
    if beside:
        raise InputError(
            f"mixed depth: {beside[0]} lies beside the class folders of {root}: move it into one"
        )
    for label, folder in enumerate(folders):
        nested, inside = listing(folder)
        for inner in nested:
            if deeper := next(images_below(inner), None):
                raise InputError(
                    f"mixed depth: {deeper} lies deeper than a class folder of {root}: "
                    f"put the images of a class directly into its folder"
                )
        images = [file for file in inside if is_image(file)]
        if not images:
            raise InputError(f"class {folder.name!r} has no images: {folder} is empty; fill or remove it")
        ignored += len(inside) - len(images)
        paths += images
        labels += [label] * len(images)
    return _checked(ImageSet(paths, labels, [f.name for f in folders], root, split, ignored), min_classes)


def _from_table(table: Path, split: str | None, min_classes: int) -> ImageSet:
    rows = read_table(table)
    chosen = split_of(table.parent.name)
    if any(row.split for row in rows):
        splits = {row.line: _row_split(table, row) for row in rows}
        chosen = _choose([s for s in SPLITS if s in splits.values()], split, table)
        rows = [row for row in rows if splits[row.line] == chosen]
    classes = sorted({row.label for row in rows})
    index = {name: label for label, name in enumerate(classes)}
    return _checked(
        ImageSet(
            [row.path for row in rows], [index[row.label] for row in rows], classes, table.parent, chosen
        ),
        min_classes,
    )


def _row_split(table: Path, row: TableRow) -> str:
    split = split_of(row.split or "")
    if split is None:
        raise InputError(f"{table}, line {row.line}: split is {row.split!r}, not train, val or test")
    return split


def _checked(images: ImageSet, min_classes: int) -> ImageSet:
    """An image set whose classes can be told apart."""
    if not len(images):
        raise InputError(f"no images in {images.root} (a folder per class is looked for)")
    if len(images.classes) < min_classes:
        raise InputError(
            f"only {len(images.classes)} class in {images.root} ({images.classes[0]!r}): "
            f"at least {min_classes} are needed"
        )
    class_names(images.classes)  # refuses names that no prompt can tell apart
    return images
