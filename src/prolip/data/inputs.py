"""Read images from whatever a user names or passes: as an `ImageSet`, or as a list of images.

| source | reader |
| --- | --- |
| a folder per class; train/ val/ test/ of those | folders |
| .csv, .tsv, .jsonl; metadata.csv and others in a folder | tables |
| .parquet; a dataset of Hugging Face, also a folder of `save_to_disk` | arrow |
| .zip, .tar, .tar.gz | archives |
| datasets and data frames in memory | objects |
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, UnknownNameError, UsageError
from prolip.data.archives import Archive, is_archive
from prolip.data.arrow import is_saved_dataset, load_saved_dataset, parquet_records
from prolip.data.files import existing, images_below, is_file, is_image
from prolip.data.folders import choose_split, class_folders, splits_in, table_in
from prolip.data.imageset import ImageSet, LazyImage, class_names
from prolip.data.objects import column_images, object_records
from prolip.data.tables import SPLITS, TABLE_SUFFIXES, Record, TableOptions, split_of, text_records

Source = str | os.PathLike[str]


def read_images(
    source: Any,
    split: str | None = None,
    *,
    min_classes: int = 2,
    image_column: str | None = None,
    label_column: str | None = None,
    images_dir: Source | None = None,
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
    group_by
        What images of one group share, for `ImageSet.groups`: "parent" is the folder below the class (an
        animal, a day, a camera), where a photo directly in the class folder is a group of its own; anything
        else is a column of a table. None takes a table's column `group`, if there is one.
    """
    options = _options(image_column, label_column, group_by, images_dir)
    if split is not None and split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    if isinstance(source, (str, os.PathLike)):
        images = _from_path(existing(source), split, options)
    elif (records := object_records(source, options)) is not None:
        images = _from_records(records, options, type(source).__name__, split)
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
) -> list[Path | LazyImage]:
    """List images without labels: files, all images below folders and in archives, rows of tables.

    For the options of tables see `read_images`.
    """
    options = _options(image_column, None, None, images_dir)
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    images = [image for path in map(existing, paths) for image in _listed(path, options)]
    if not images:
        raise InputError("no images were given")
    return images


def images_in(source: Any) -> list[Any] | None:
    """Return the images of a frame or a dataset in memory, or of a column; None for anything else."""
    options = TableOptions()
    records = object_records(source, options)
    return column_images(source) if records is None else _images(records, options)


def is_source(value: Any) -> bool:
    """Whether this is an object with images and labels."""
    return object_records(value, TableOptions()) is not None


def _options(
    image_column: str | None, label_column: str | None, group_by: str | None, images_dir: Source | None
) -> TableOptions:
    folder = None if images_dir is None else existing(images_dir)
    return TableOptions(image_column, label_column, group_by, folder)


def _from_path(path: Path, split: str | None, options: TableOptions) -> ImageSet:
    if is_archive(path):
        with Archive(path).reading() as archive:
            images = _from_path(archive.root, split, replace(options, inside=archive.folder))
            return replace(images, images=archive.images(images.images), root=path)
    if (records := _records_at(path, options)) is not None:
        folder = "" if path.is_dir() else path.parent.name
        return _from_records(records, options, str(path), split, folder)
    if path.is_dir():
        return _from_folder(path, split, options)
    raise InputError(
        f"{path} is a file: give the folder that holds a folder per class, a table or an archive"
    )


def _records_at(path: Path, options: TableOptions) -> Iterator[Record] | None:
    """Return the records of a table or of a saved dataset; None of anything else."""
    if path.is_dir():
        if not is_saved_dataset(path):
            return None
        return object_records(load_saved_dataset(path), options, str(path), path)
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        return None
    return parquet_records(path, options) if suffix == ".parquet" else text_records(path)


def _from_folder(root: Path, split: str | None, options: TableOptions) -> ImageSet:
    chosen, folder = split, root
    if not (table := table_in(root)):
        splits = splits_in(root)
        if not splits:
            return class_folders(root, None, options.group_by)
        chosen = choose_split(splits, split, root)
        folder = splits[chosen]
        if not (table := table_in(folder)):
            return class_folders(folder, chosen, options.group_by)
    records = _records_at(table, options) or iter(())
    return _from_records(records, options, str(table), chosen, folder.name)


def _from_records(
    records: Iterator[Record], options: TableOptions, place: str, split: str | None, folder: str = ""
) -> ImageSet:
    """Make an image set of records; the name of the folder around them may be that of a split."""
    rows: list[tuple[Path | LazyImage, str, str | None, str | None]] = []
    label_of: dict[Path, str] = {}
    for record in records:
        options.check(record, labelled=True)
        image, label = options.image(record), options.label(record)
        if isinstance(image, Path) and label_of.setdefault(image, label) != label:
            raise InputError(f"{record.where}: {image} is both {label_of[image]!r} and {label!r}")
        rows.append((image, label, options.split(record), options.group(record, image)))
    if not rows:
        raise InputError(f"no images in {place}: it has no rows")
    chosen = split_of(folder)
    present = {row[2] for row in rows}
    if present != {None}:
        chosen = choose_split([name for name in SPLITS if name in present], split, place)
        rows = [row for row in rows if row[2] == chosen]
    images, labels, _, groups = zip(*rows, strict=True)
    classes = sorted(set(labels))
    number = {name: label for label, name in enumerate(classes)}
    grouped = None if None in groups else groups
    return ImageSet(list(images), [number[name] for name in labels], classes, place, chosen, grouped)


def _listed(path: Path, options: TableOptions) -> list[Any]:
    if is_archive(path):
        with Archive(path).reading() as archive:
            return archive.images(_listed(archive.root, replace(options, inside=archive.folder)))
    images: list[Any] = list(images_below(path)) if path.is_dir() else []
    if not images and (records := _records_at(path, options)) is not None:
        images = _images(records, options)
        if not images:
            raise InputError(f"no images in {path}: it has no rows")
    if images:
        return images
    if path.is_dir():
        raise InputError(f"no images in {path} (files with suffixes like .jpg, .png, .webp)")
    if path.suffix and not is_image(path):
        raise InputError(f"{path} is not an image: its suffix is {path.suffix!r}")
    if not is_file(path):
        raise InputError(f"{path} is not a regular file")
    return [path]


def _images(records: Iterator[Record], options: TableOptions) -> list[Any]:
    images = []
    for record in records:
        options.check(record, labelled=False)
        images.append(options.image(record))
    return images
