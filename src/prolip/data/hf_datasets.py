"""Datasets of Hugging Face's `datasets`: folders of `save_to_disk`, and datasets in memory."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, UsageError
from prolip.data.lazy import LazyImage
from prolip.data.libraries import comes_from
from prolip.data.tables import BYTES_COLUMNS, FILE_COLUMNS, LABEL_COLUMNS, SPLIT_COLUMNS, Find, Record
from prolip.io.environment import require


def is_saved_dataset(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def load_saved(folder: Path) -> Any:
    """The dataset of a folder; its images are read when they are asked for."""
    datasets = require("datasets", "datasets", f"reading {folder}, a dataset of Hugging Face,")
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # of pyarrow, JSON or datasets, on a damaged folder
        raise InputError(f"{folder} cannot be read: {str(error)[:200]}") from error


def is_dataset(source: Any) -> bool:
    """Whether this is a dataset, or a dictionary of them by split."""
    return comes_from(source, "datasets") and (hasattr(source, "features") or hasattr(source, "num_columns"))


def dataset_splits(source: Any) -> dict[str, Any]:
    """The datasets of a dictionary by their own names; a single one has none."""
    return dict(source) if isinstance(source, dict) else {}


def dataset_records(source: Any, place: str, find: Find) -> Iterator[Record]:
    """The records of a dataset, labels by their names; `find` opens files that it names."""
    if not hasattr(source, "cast_column") or not hasattr(source, "__len__"):
        raise UsageError(f"{place} is read as it streams, and has no length: collect it into a Dataset first")
    columns = {name.strip().lower(): name for name in source.column_names}
    kinds = {name: type(source.features[column]).__name__ for name, column in columns.items()}
    pictures = [name for name, kind in kinds.items() if kind == "Image"]
    image = pictures[0] if pictures else next((n for n in BYTES_COLUMNS + FILE_COLUMNS if n in columns), None)
    if image is None:
        raise InputError(f"{place} has no column of images (columns: {', '.join(columns)[:200]})")
    label = next((name for name, kind in kinds.items() if kind == "ClassLabel"), None)
    if label is None or any(name in columns for name in LABEL_COLUMNS[:1]):
        label = next((name for name in LABEL_COLUMNS if name in columns), label)
    split = next((name for name in SPLIT_COLUMNS if name in columns), None)
    labels = _labels(source, columns[label]) if label else None
    splits = source[columns[split]][:] if split else None
    content = _content(source, columns[image], bool(pictures), find)
    for row in range(len(source)):
        cells: dict[str, Any] = {"image": LazyImage(f"{place}:{row}", partial(content, row))}
        cells |= {} if labels is None else {"label": labels[row]}
        cells |= {} if splits is None else {"split": splits[row]}
        yield Record(f"{place}, row {row}", f"{place}:{row}", cells)


def _labels(source: Any, column: str) -> list[Any]:
    values = list(source[column])
    names = getattr(source.features[column], "names", None)
    if names is None:
        return values
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in values]


def _content(source: Any, column: str, picture: bool, find: Find) -> Any:
    """What gives the bytes or the path of a row's image."""
    images = source.select_columns([column]).with_format(None)
    if picture:
        images = images.cast_column(column, type(source.features[column])(decode=False))

    def read(row: int) -> Any:
        value = images[row][column]
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path")
        if value is None:
            raise InputError("the dataset has no image here")
        return find(value) if isinstance(value, str) else value

    return read
