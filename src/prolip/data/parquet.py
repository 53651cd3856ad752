"""Read Parquet tables with pyarrow; images that they hold are read on access, a group of rows at a time."""

import bisect
import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from prolip.core.errors import InputError, ProlipError
from prolip.data.imageset import LazyImage
from prolip.data.tables import KINDS, Record, TableOptions
from prolip.io.environment import require
from prolip.io.reading import ReadError


def parquet_records(table: Path, options: TableOptions) -> Iterator[Record]:
    """Yield the records of a Parquet file."""
    parquet = require("pyarrow.parquet", "tables", f"reading {table.name}")
    try:
        yield from _records(table, parquet.ParquetFile(table), options)
    except ProlipError:
        raise
    except Exception as error:  # of pyarrow, on a damaged file
        raise ReadError(table, f"it is not a Parquet file: {str(error)[:200]}") from error


def _records(table: Path, source: Any, options: TableOptions) -> Iterator[Record]:
    columns = {name.strip().lower(): name for name in source.schema_arrow.names}
    wanted = {options.column(kind, columns) for kind in KINDS} - {None}
    image = options.column("image", columns)
    kind = "" if image is None else str(source.schema_arrow.field(columns[image]).type)
    embedded = kind.startswith("struct") or "binary" in kind
    content = _Images(source, columns[image], options, table.parent) if embedded and image else None
    names, row = _class_names(source.schema_arrow), 0
    small = [columns[name] for name in wanted if name is not None and not (embedded and name == image)]
    for batch in source.iter_batches(columns=small):
        values = {name.strip().lower(): batch.column(name).to_pylist() for name in small}
        for name in values.keys() & names.keys():
            known = dict(enumerate(names[name]))
            values[name] = [known.get(value) for value in values[name]]
        for i in range(batch.num_rows):
            cells = {name: column[i] for name, column in values.items()}
            if content is not None and image is not None:
                cells[image] = LazyImage(f"{table}:{row}", partial(content.read, row))
            yield Record(f"{table}, row {row}", f"{table}:{row}", cells, table.parent, tuple(columns))
            row += 1


def _class_names(schema: Any) -> dict[str, list[str]]:
    """Return the names of numeric labels, where Hugging Face's `datasets` wrote the file."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {
            name.strip().lower(): list(map(str, feature["names"]))
            for name, feature in features.items()
            if feature.get("_type") == "ClassLabel"
        }
    except (TypeError, KeyError, ValueError, AttributeError):  # another library wrote it
        return {}


class _Images:
    """The images of a file by row; the group of rows that was read last stays in memory."""

    def __init__(self, source: Any, column: str, options: TableOptions, folder: Path) -> None:
        groups = [source.metadata.row_group(i).num_rows for i in range(source.metadata.num_row_groups)]
        self._starts = [0, *itertools.accumulate(groups)]
        self._source, self._column, self._options, self._folder = source, column, options, folder
        self._group, self._cells, self._lock = -1, None, Lock()

    def read(self, row: int) -> Any:
        """Return the bytes of an image, or its path."""
        with self._lock:
            group = bisect.bisect_right(self._starts, row) - 1
            if group != self._group:
                self._cells = self._source.read_row_group(group, columns=[self._column]).column(self._column)
                self._group = group
            assert self._cells is not None
            value = self._cells[row - self._starts[group]].as_py()
        if isinstance(value, dict):  # as Hugging Face stores images
            value = value.get("bytes") or value.get("path")
        if value is None:
            raise InputError("the table has no image here")
        return self._options.find(value, self._folder) if isinstance(value, str) else value
