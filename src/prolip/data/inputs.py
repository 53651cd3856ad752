"""Read images from whatever a user names or passes: as an `ImageSet`, or as a list of images.

| source | reader |
| --- | --- |
| a folder per class; train/ val/ test/ of those | folders |
| .csv, .tsv, .jsonl; metadata.csv and others in a folder | tables |
| .parquet | parquet |
| .zip, .tar, .tar.gz | archives |
| datasets and data frames in memory, a folder of `save_to_disk` | objects |
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, UnknownNameError, UsageError
from prolip.data.archives import ArchiveFolder, is_archive, open_archive
from prolip.data.files import existing, images_below, is_file, is_image
from prolip.data.folders import SPLITS, Folder, choose_split, class_folders, split_of, splits_in, table_in
from prolip.data.imageset import ImageSet, LazyImage, class_names
from prolip.data.objects import is_saved_dataset, load_saved_dataset, object_records
from prolip.data.parquet import parquet_records
from prolip.data.tables import TABLE_SUFFIXES, Find, Record, TableOptions, TableRow, read_rows, text_records

Source = str | os.PathLike[str]
Records = dict[str, Iterator[Record]]  # by the names of splits, "" without splits


def read_images(
    source: Any,
    split: str | None = None,
    *,
    min_classes: int = 2,
    image_column: str | None = None,
    label_column: str | None = None,
    images_dir: Source | None = None,
    absolute_paths: bool = False,
    group_by: str | None = None,
) -> ImageSet:
    """Read images and their labels.

    Parameters
    ----------
    source
        A path or an object of the table above.
    split
        "train", "val" or "test", where the source has splits; a source without any is read whole. None
        takes train where there are splits. `ImageSet.split` says what was taken.
    min_classes
        Fewer classes are an error. Fitting needs two; an evaluation can do with one.
    image_column, label_column
        The columns of a table, where they have other names than those of docs/guides/data.md.
    images_dir
        The folder of the files that a table names; None is the folder of the table.
    absolute_paths
        Whether a table may name files outside that folder.
    group_by
        What images of one group share, for `ImageSet.groups`: "parent" is the folder below the class (an
        animal, a day, a camera), where a photo directly in the class folder is a group of its own; anything
        else is a column of a table. None takes a table's column `group`, if there is one.
    """
    options = TableOptions(image_column, label_column, images_dir, absolute_paths, group_by)
    if split is not None and split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    if isinstance(source, (str, os.PathLike)):
        images = _from_path(existing(source), split, options)
    elif (records := _object_records(source, options)) is not None:
        images = _from_records(records, _anywhere(options), options, type(source).__name__, split)
    else:
        raise UsageError(
            f"images with labels are a folder, a table or a dataset, not {type(source).__name__}"
        )
    if not len(images):
        raise InputError(f"no images in {images.root} (a folder per class is expected)")
    if len(images.classes) < min_classes:
        raise InputError(
            f"only {len(images.classes)} class in {images.root} ({images.classes[0]!r}): "
            f"at least {min_classes} are needed, so add a folder of images of another class"
        )
    class_names(images.classes)  # rejects names that would give the same prompt
    return images


def list_images(
    sources: Source | Iterable[Source],
    *,
    image_column: str | None = None,
    images_dir: Source | None = None,
    absolute_paths: bool = False,
) -> list[Path | LazyImage]:
    """List images without labels: files, all images below folders and in archives, rows of tables.

    For the options of tables see `read_images`.
    """
    options = TableOptions(image_column, None, images_dir, absolute_paths)
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    images = [image for path in map(existing, paths) for image in _listed(path, options)]
    if not images:
        raise InputError("no images were given")
    return images


def images_in(source: Any) -> list[Any] | None:
    """Return the images of a frame or a dataset in memory; None for anything else."""
    options = TableOptions()
    records = _object_records(source, options)
    return None if records is None else _images(records, _anywhere(options), options)


def is_source(value: Any) -> bool:
    """Whether this is an object with images and labels."""
    return _object_records(value, TableOptions()) is not None


def _object_records(source: Any, options: TableOptions) -> Records | None:
    return object_records(source, type(source).__name__, _anywhere(options), options)


def _from_path(path: Path, split: str | None, options: TableOptions) -> ImageSet:
    if (records := _records_at(path, options)) is not None:
        folder = "" if path.is_dir() else path.parent.name
        return _from_records(records, options.find_in(path.parent), options, str(path), split, folder)
    if path.is_dir() or is_archive(path):
        root = path if path.is_dir() else open_archive(path)
        return _from_folder(root, split, options)
    raise InputError(
        f"{path} is a file: give the folder that holds a folder per class, a table or an archive"
    )


def _records_at(path: Path, options: TableOptions) -> Records | None:
    """Return the records of a table or of a saved dataset; None of anything else."""
    if path.is_dir() and is_saved_dataset(path):
        return object_records(load_saved_dataset(path), str(path), options.find_in(path), options)
    if path.is_dir() or path.suffix.lower() not in TABLE_SUFFIXES:
        return None
    return {"": _table_records(path, options.find_in(path.parent), options)}


def _from_folder(root: Folder, split: str | None, options: TableOptions) -> ImageSet:
    chosen, folder = split, root
    if not (table := table_in(root)):
        splits = splits_in(root)
        if not splits:
            return class_folders(root, None, options.group_by)
        chosen = choose_split(splits, split, root)
        folder = splits[chosen]
        if not (table := table_in(folder)):
            return class_folders(folder, chosen, options.group_by)
    find = _files(folder, options)
    return _from_records(
        {"": _table_records(table, find, options)}, find, options, str(table), chosen, folder.name
    )


def _from_records(
    records: Records, find: Find, options: TableOptions, place: str, split: str | None, folder: str = ""
) -> ImageSet:
    """Make an image set of records; the name of the folder around them may be that of a split."""
    chosen = split_of(folder)
    if "" not in records:
        known = {found: each for name, each in records.items() if (found := split_of(name))}
        chosen = choose_split(known or records, split, place)
        records, split = {"": known[chosen]}, None
    rows = read_rows(records[""], find, options)
    if not rows:
        raise InputError(f"no images in {place}: it has no rows")
    if any(row.split for row in rows):
        splits = [_row_split(row) for row in rows]
        chosen = choose_split([s for s in SPLITS if s in splits], split, place)
        rows = [row for row, own in zip(rows, splits, strict=True) if own == chosen]
    classes = sorted({str(row.label) for row in rows})
    index = {name: label for label, name in enumerate(classes)}
    images, labels = [row.image for row in rows], [index[str(row.label)] for row in rows]
    groups = tuple(row.group for row in rows if row.group is not None)
    return ImageSet(images, labels, classes, place, chosen, groups or None)


def _row_split(row: TableRow) -> str:
    split = split_of(row.split or "")
    if split is None:
        raise InputError(f"{row.where}: split is {row.split!r}, not train, val or test")
    return split


def _listed(path: Path, options: TableOptions) -> list[Any]:
    images: list[Any] = []
    if path.is_dir() or is_archive(path):
        images = list(images_below(path) if path.is_dir() else open_archive(path).images())
    if not images and (records := _records_at(path, options)) is not None:
        images = _images(records, options.find_in(path.parent), options)
        if not images:
            raise InputError(f"no images in {path}: it has no rows")
    if images:
        return images
    if path.is_dir() or is_archive(path):
        raise InputError(f"no images in {path} (files with suffixes like .jpg, .png, .webp)")
    if path.suffix and not is_image(path):
        raise InputError(f"{path} is not an image: its suffix is {path.suffix!r}")
    if not is_file(path):
        raise InputError(f"{path} is not a regular file")
    return [path]


def _images(records: Records, find: Find, options: TableOptions) -> list[Any]:
    return [row.image for each in records.values() for row in read_rows(each, find, options, labelled=False)]


def _table_records(table: Path | LazyImage, find: Find, options: TableOptions) -> Iterator[Record]:
    if table.suffix.lower() != ".parquet":
        return text_records(table)
    if not isinstance(table, Path):
        raise InputError(f"{table} is a Parquet table in an archive: unpack it, and name the table")
    return parquet_records(table, find, options)


def _files(folder: Folder, options: TableOptions) -> Find:
    if isinstance(folder, ArchiveFolder):
        return folder.find if options.images_dir is None else options.find_in(Path())
    return options.find_in(folder)


def _anywhere(options: TableOptions) -> Find:
    """Find the files of tables in memory: the user's own, relative to the working folder."""
    return replace(options, absolute_paths=True).find_in(Path())
