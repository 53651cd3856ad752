"""Parquet files and datasets of Hugging Face: tables of Arrow, whose images are read on access."""

import bisect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from prolip.core.errors import InputError, ProlipError, UsageError
from prolip.data.imageset import LazyImage
from prolip.data.tables import KINDS, Record, TableOptions, column_key
from prolip.io.environment import require
from prolip.io.reading import ReadError

Columns = list[str]
ReadCell = Callable[[str, int], Any]  # of a column and a row


def is_saved_dataset(folder: Path) -> bool:
    """Whether `save_to_disk` of Hugging Face's datasets wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def load_saved_dataset(folder: Path) -> Any:
    """Open a saved dataset."""
    datasets = require("datasets", "datasets", f"reading {folder}, a dataset of Hugging Face,")
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # of pyarrow, JSON or datasets, on a damaged folder
        raise InputError(f"{folder} cannot be read: {str(error)[:200]}") from error


def dataset_records(
    source: Any, place: str, folder: Path, options: TableOptions, split: str | None = None
) -> Iterator[Record]:
    """Yield the records of a Dataset in memory or on the disk, which may be a split of a larger one."""
    if not hasattr(source, "with_format") or not hasattr(source, "__len__"):
        raise UsageError(f"{place} is streamed, and has no length: collect it into a Dataset first")

    @cache
    def part(*columns: str) -> Any:
        return source.select_columns(list(columns)).with_format("arrow")

    def batches(columns: Columns) -> Any:
        return part(*columns).iter(1000)

    def read(column: str, row: int) -> Any:
        return part(column)[row].column(0)[0].as_py()

    for record in _records(source.features.arrow_schema, batches, read, place, folder, options):
        yield replace(record, cells={**record.cells, "split": split}) if split else record


def parquet_records(table: Path, options: TableOptions) -> Iterator[Record]:
    """Yield the records of a Parquet file."""
    parquet = require("pyarrow.parquet", "tables", f"reading {table.name}")
    try:
        source = parquet.ParquetFile(table)

        def batches(columns: Columns) -> Any:
            return source.iter_batches(columns=columns)

        cells = _ParquetCells(source)
        yield from _records(source.schema_arrow, batches, cells.read, str(table), table.parent, options)
    except ProlipError:
        raise
    except Exception as error:  # of pyarrow, on a damaged file
        raise ReadError(table, f"it is not a Parquet file: {str(error)[:200]}") from error


def _records(
    schema: Any,
    batches: Callable[[Columns], Iterable[Any]],
    read: ReadCell,
    place: str,
    folder: Path,
    options: TableOptions,
) -> Iterator[Record]:
    columns = {column_key(name): name for name in schema.names}
    features = _features(schema)
    used = {kind: _column(kind, columns, features, options) for kind in KINDS}
    image = used["image"]
    kind = "" if image is None else str(schema.field(columns[image]).type)
    if embedded := kind.startswith("struct") or "binary" in kind:
        used["image"] = None
    # A column that was found by its type gets a usual name.
    small = {
        key if key in options.names(kind) else options.names(kind)[0]: columns[key]
        for kind, key in used.items()
        if key is not None
    }
    number = 0
    for batch in batches(list(small.values()) or schema.names[:1]):
        values = [_named(batch.column(name).to_pylist(), features.get(name)) for name in small.values()]
        for row in range(batch.num_rows):
            cells = {name: column[row] for name, column in zip(small, values, strict=True)}
            if embedded and image is not None:
                load = partial(_image, read, columns[image], number, options, folder)
                cells[options.names("image")[0]] = LazyImage(f"{place}:{number}", load)
            yield Record(
                f"{place}, row {number}", f"{place}:{number}", cells or dict.fromkeys(columns), folder
            )
            number += 1


def _column(
    kind: str, columns: dict[str, str], features: dict[str, Any], options: TableOptions
) -> str | None:
    """Return the column that is named, else the first of the type for it, else that of a usual name."""
    feature = {"image": "Image", "label": "ClassLabel"}.get(kind)
    if feature and options.named(kind) is None:
        for key, name in columns.items():
            if features.get(name, {}).get("_type") == feature:
                return key
    return options.column(kind, columns)


def _features(schema: Any) -> dict[str, Any]:
    """Return the types that Hugging Face's `datasets` writes beside those of Arrow, by column."""
    try:
        return {**json.loads(schema.metadata[b"huggingface"])["info"]["features"]}
    except (TypeError, KeyError, ValueError):  # another library wrote it
        return {}


def _named(values: list[Any], feature: Any) -> list[Any]:
    """Return numeric labels by their names."""
    if not isinstance(feature, dict) or "names" not in feature:
        return values
    names = dict(enumerate(feature["names"]))
    return [names.get(value) for value in values]


def _image(read: ReadCell, column: str, row: int, options: TableOptions, folder: Path) -> Any:
    """Return the bytes or the path of the image in a row."""
    value = read(column, row)
    if isinstance(value, dict):  # as Hugging Face stores images
        value = value.get("bytes") or value.get("path")
    if value is None:
        raise InputError(f"row {row} has no image")
    return options.find(value, folder, f"row {row}") if isinstance(value, str) else value


class _ParquetCells:
    """Cells of a file; the group of rows that was read last stays in memory."""

    def __init__(self, source: Any) -> None:
        rows = [source.metadata.row_group(i).num_rows for i in range(source.metadata.num_row_groups)]
        self._starts = [0, *itertools.accumulate(rows)]
        self._source, self._group, self._cells, self._lock = source, -1, None, Lock()

    def read(self, column: str, row: int) -> Any:
        """Return the value of a cell; always of the same column."""
        with self._lock:
            group = bisect.bisect_right(self._starts, row) - 1
            if group != self._group:
                self._cells = self._source.read_row_group(group, columns=[column]).column(column)
                self._group = group
            assert self._cells is not None
            return self._cells[row - self._starts[group]].as_py()
