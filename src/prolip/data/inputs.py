"""The one door for images: whatever a user names or hands over, to an `ImageSet`, or to a list of images.

| what | reader |
| --- | --- |
| a folder per class; train/ val/ test/ of those | folders |
| .csv, .tsv, .jsonl; metadata.csv and others in a folder | tables |
| .parquet | parquet |
| .zip, .tar, .tar.gz | archives |
| a folder of `save_to_disk`, a `datasets.Dataset` or `DatasetDict` | hf_datasets |
| a frame of pandas or polars, a table of pyarrow | frames |
| a dataset of torchvision, a `Subset`, a `DataLoader` | indexed |
"""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, UsageError, unknown_name
from prolip.data.archives import ArchiveFolder, is_archive, open_archive
from prolip.data.files import existing, images_below, is_file, is_image
from prolip.data.folders import SPLITS, Folder, choose_split, class_folders, split_of, splits_in, table_in
from prolip.data.frames import frame_records, is_frame
from prolip.data.hf_datasets import dataset_records, dataset_splits, is_dataset, is_saved_dataset, load_saved
from prolip.data.imageset import ImageSet, class_names
from prolip.data.indexed import indexed_records, is_indexed
from prolip.data.lazy import LazyImage
from prolip.data.parquet import parquet_records
from prolip.data.tables import TABLE_SUFFIXES, Find, Record, TableRow, files_in, read_rows, text_records

Source = str | os.PathLike[str]


def read_images(
    source: Any, split: str | None = None, *, min_classes: int = 2, absolute_paths: bool = False
) -> ImageSet:
    """Read images and their labels.

    Parameters
    ----------
    source
        A path or an object of the list above.
    split
        "train", "val" or "test", where the source has splits; a source without any is read whole. None
        takes train where there are splits. `ImageSet.split` says what was taken.
    min_classes
        Fewer classes are refused. Fitting needs two; an evaluation can do with one.
    absolute_paths
        Whether a table may name files outside its own folder.
    """
    if split is not None and split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if isinstance(source, (str, os.PathLike)):
        images = _from_path(existing(source), split, absolute_paths)
    elif is_dataset(source):
        images = _from_dataset(source, type(source).__name__, split, _anywhere())
    elif is_frame(source):
        images = _from_records(frame_records(source), _anywhere(), "the frame", split)
    elif is_indexed(source):
        images = _from_records(indexed_records(source), _anywhere(), type(source).__name__, split)
    else:
        raise UsageError(
            f"images with labels are a folder, a table or a dataset, not {type(source).__name__}"
        )
    return _checked(images, min_classes)


def list_images(
    sources: Source | Iterable[Source], *, absolute_paths: bool = False
) -> list[Path | LazyImage]:
    """Images without labels: files as they are named, folders with all that is in them, rows of tables."""
    named = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    found: list[Path | LazyImage] = []
    for path in map(existing, named):
        found += _listed(path, absolute_paths)
    if not found:
        raise InputError("no images were named")
    return found


def images_in(source: Any) -> list[Any] | None:
    """The images of a frame or a dataset in memory; None of anything else."""
    if is_dataset(source):
        parts = dataset_splits(source) or {type(source).__name__: source}
        records = [dataset_records(part, name, _anywhere()) for name, part in parts.items()]
        return [row.image for each in records for row in _rows(each)]
    if is_frame(source):
        return [row.image for row in _rows(frame_records(source))]
    if is_indexed(source):
        return [row.image for row in _rows(indexed_records(source))]
    return None


def is_source(value: Any) -> bool:
    """Whether this is an object that brings images and labels."""
    return is_dataset(value) or is_frame(value) or is_indexed(value)


def _from_path(path: Path, split: str | None, absolute_paths: bool) -> ImageSet:
    if path.is_dir():
        if is_saved_dataset(path):
            return _from_dataset(load_saved(path), str(path), split, files_in(path, absolute_paths))
        return _from_folder(path, split, absolute_paths)
    if is_archive(path):
        return _from_folder(open_archive(path), split, absolute_paths)
    if path.suffix.lower() in TABLE_SUFFIXES:
        return _from_table(path, path.parent, split, absolute_paths)
    raise InputError(
        f"{path} is a file: give the folder that holds a folder per class, a table or an archive"
    )


def _from_folder(root: Folder, split: str | None, absolute_paths: bool) -> ImageSet:
    if table := table_in(root):
        return _from_table(table, root, split, absolute_paths)
    splits = splits_in(root)
    if not splits:
        return class_folders(root, None)
    chosen = choose_split(splits, split, root)
    folder = splits[chosen]
    if table := table_in(folder):
        return _from_table(table, folder, chosen, absolute_paths)
    return class_folders(folder, chosen)


def _from_table(table: Path | LazyImage, folder: Folder, split: str | None, absolute_paths: bool) -> ImageSet:
    find = _files(folder, absolute_paths)
    return _from_records(_table_records(table, find), find, str(table), split, folder.name)


def _from_dataset(source: Any, place: str, split: str | None, find: Find) -> ImageSet:
    if parts := dataset_splits(source):
        known = {found: part for name, part in parts.items() if (found := split_of(name))}
        chosen = choose_split(known or parts, split, place)
        return _from_records(dataset_records(known[chosen], place, find), find, place, None, chosen)
    return _from_records(dataset_records(source, place, find), find, place, split)


def _from_records(
    records: Iterator[Record], find: Find, place: str, split: str | None, home: str = ""
) -> ImageSet:
    """The images of records; `home` is the name of the folder around them, which may be that of a split."""
    rows = read_rows(records, find)
    if not rows:
        raise InputError(f"no images in {place}: it has no rows")
    chosen = split_of(home)
    if any(row.split for row in rows):
        splits = [_row_split(row) for row in rows]
        chosen = choose_split([s for s in SPLITS if s in splits], split, place)
        rows = [row for row, own in zip(rows, splits, strict=True) if own == chosen]
    classes = sorted({str(row.label) for row in rows})
    index = {name: label for label, name in enumerate(classes)}
    return ImageSet(
        [row.image for row in rows], [index[str(row.label)] for row in rows], classes, place, chosen
    )


def _row_split(row: TableRow) -> str:
    split = split_of(row.split or "")
    if split is None:
        raise InputError(f"{row.where}: split is {row.split!r}, not train, val or test")
    return split


def _listed(path: Path, absolute_paths: bool) -> list[Any]:
    """The images of one path, whatever it is."""
    if path.is_dir() or is_archive(path):
        inside: list[Any] = list(images_below(path) if path.is_dir() else open_archive(path).images())
        if not inside and is_saved_dataset(path):
            saved, find = load_saved(path), files_in(path, absolute_paths)
            parts = {f"{path}/{name}": part for name, part in dataset_splits(saved).items()}
            records = [dataset_records(p, name, find) for name, p in (parts or {str(path): saved}).items()]
            inside = [row.image for each in records for row in _rows(each)]
        if not inside:
            raise InputError(f"no images in {path} (suffixes like .jpg, .png, .webp are looked for)")
        return inside
    if path.suffix.lower() in TABLE_SUFFIXES:
        find = _files(path.parent, absolute_paths)
        rows = read_rows(_table_records(path, find), find, labelled=False)
        if not rows:
            raise InputError(f"no images in {path}: it has no rows")
        return [row.image for row in rows]
    if path.suffix and not is_image(path):
        raise InputError(f"{path} is not an image: its suffix is {path.suffix!r}")
    if not is_file(path):
        raise InputError(f"{path} is not a regular file")
    return [path]


def _rows(records: Iterator[Record]) -> list[TableRow]:
    return read_rows(records, _anywhere(), labelled=False)


def _table_records(table: Path | LazyImage, find: Find) -> Iterator[Record]:
    if table.suffix.lower() != ".parquet":
        return text_records(table)
    if not isinstance(table, Path):
        raise InputError(f"{table} is a Parquet table in an archive: unpack it, and name the table")
    return parquet_records(table, find)


def _files(folder: Folder, absolute_paths: bool) -> Find:
    if isinstance(folder, ArchiveFolder):
        return partial(_member, folder)
    return files_in(folder, absolute_paths)


def _member(folder: ArchiveFolder, name: str) -> LazyImage:
    found = folder.find(name)
    if found is None:
        raise InputError(f"{name!r:.200} is not a file in {folder}")
    return found


def _anywhere() -> Find:
    """Files of tables in memory: the user's own, relative to where the program runs."""
    return files_in(Path(), absolute_paths=True)


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
