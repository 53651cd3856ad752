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
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, UsageError, check_name
from prolip.data.arrow import load_saved_dataset, parquet_table
from prolip.data.folders import (
    SPLITS,
    TEXT_TABLES,
    choose_split,
    class_folders,
    existing,
    images_below,
    is_archive,
    is_image,
    is_saved_dataset,
    splits_in,
    table_in,
)
from prolip.data.imageset import ImageSet, LazyImage, class_names
from prolip.data.objects import column_images, object_tables
from prolip.data.tables import Table, TableOptions, text_table
from prolip.io.reading import Source


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
    folder = None if images_dir is None else existing(images_dir)
    options = TableOptions(image_column, label_column, group_by, folder)
    if split is not None:
        check_name("split", split, SPLITS)
    if isinstance(source, (str, os.PathLike)):
        images = _from_path(existing(source), split, options)
    elif tables := object_tables(source):
        images = _from_tables(tables, options, split)
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
    options = TableOptions(image_column, images_dir=None if images_dir is None else existing(images_dir))
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    images = [image for path in map(existing, paths) for image in _listed(path, options)]
    if not images:
        raise InputError("no images were given")
    return images


def images_in(source: Any) -> list[Any] | None:
    """Return the images of a frame or a dataset in memory, or of a column; None for anything else."""
    tables = object_tables(source)
    return _images_of(tables, TableOptions()) if tables else column_images(source)


def _from_path(path: Path, split: str | None, options: TableOptions) -> ImageSet:
    if is_archive(path):
        from prolip.data.archives import Archive

        archive = Archive(path)
        images = _from_path(archive.root, split, options)
        return replace(images, images=archive.images(images.images), root=path)
    if tables := _tables_at(path):
        return _from_tables(tables, options, split)
    if path.is_dir():
        return _from_folder(path, split, options)
    raise InputError(
        f"{path} is a file: give the folder that holds a folder per class, a table or an archive"
    )


def _tables_at(path: Path) -> list[Table]:
    """Return the table of a file, or those of a saved dataset; none of anything else."""
    if is_saved_dataset(path):
        return object_tables(load_saved_dataset(path), str(path), path)
    if path.suffix.lower() == ".parquet":
        return [parquet_table(path)]
    return [text_table(path)] if path.suffix.lower() in TEXT_TABLES else []


def _from_folder(root: Path, split: str | None, options: TableOptions) -> ImageSet:
    chosen, folder = None, root
    if not table_in(root) and (splits := splits_in(root)):
        chosen = choose_split(splits, split, root)
        folder = splits[chosen]
    if table := table_in(folder):
        images = _from_tables(_tables_at(table), options, split)
        return replace(images, split=chosen or images.split)
    return class_folders(folder, chosen, options.group_by)


def _from_tables(tables: list[Table], options: TableOptions, split: str | None) -> ImageSet:
    rows = [row for table in tables for row in options.rows(table)]
    place = tables[0].place
    chosen = None
    if present := list(dict.fromkeys(row.split for row in rows if row.split is not None)):
        chosen = choose_split(present, split, place)
        rows = [row for row in rows if row.split == chosen]
    classes = sorted({row.label for row in rows})
    number = {name: label for label, name in enumerate(classes)}
    groups = tuple(row.group for row in rows if row.group is not None)
    images, labels = [row.image for row in rows], [number[row.label] for row in rows]
    return ImageSet(images, labels, classes, place, chosen, groups or None)


def _listed(path: Path, options: TableOptions) -> list[Any]:
    if is_archive(path):
        from prolip.data.archives import Archive

        archive = Archive(path)
        return archive.images(_listed(archive.root, options))
    if images := list(images_below(path)) if path.is_dir() else []:
        return images
    if tables := _tables_at(path):
        return _images_of(tables, options)
    if path.is_dir():
        raise InputError(f"no images in {path} (files with suffixes like .jpg, .png, .webp)")
    if path.suffix and not is_image(path):
        raise InputError(f"{path} is not an image: its suffix is {path.suffix!r}")
    if not path.is_file():  # a device has no end, and a pipe may have no writer
        raise InputError(f"{path} is not a regular file")
    return [path]


def _images_of(tables: list[Table], options: TableOptions) -> list[Any]:
    return [row.image for table in tables for row in options.rows(table, labelled=False)]
