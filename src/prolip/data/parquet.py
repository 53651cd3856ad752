"""Parquet tables, with pyarrow: file names, or the images themselves, a group of rows at a time."""

from __future__ import annotations

import bisect
import itertools
import json
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from prolip.core.errors import InputError, ProlipError
from prolip.core.reading import Unreadable, open_regular
from prolip.data.lazy import LazyImage
from prolip.data.libraries import required
from prolip.data.tables import BYTES_COLUMNS, FILE_COLUMNS, LABEL_COLUMNS, SPLIT_COLUMNS, Find, Record

GROUP = 2 << 30  # bytes of a group of rows, unpacked, that fit into memory


def parquet_records(table: Path, find: Find) -> Iterator[Record]:
    """The records of a Parquet file. Images in it are read when they are asked for; `find` opens files that
    stand in the place of their bytes.
    """
    parquet = required("pyarrow.parquet", "pyarrow", f"to read {table.name}")
    file = open_regular(table)
    try:
        source = parquet.ParquetFile(file)
        rows = _Rows(table, source, find, file.close)
        yield from _records(table, source, rows)
    except ProlipError:
        raise
    except Exception as error:  # of pyarrow, on a damaged file
        file.close()
        raise Unreadable(table, f"it is no Parquet file: {str(error)[:200]}") from error


def _records(table: Path, source: Any, rows: _Rows) -> Iterator[Record]:
    columns = {name.strip().lower(): name for name in source.schema_arrow.names}
    image = next((name for name in BYTES_COLUMNS + FILE_COLUMNS if name in columns), None)
    small = [name for name in LABEL_COLUMNS + SPLIT_COLUMNS if name in columns]
    kind = "" if image is None else str(source.schema_arrow.field(columns[image]).type)
    embedded = kind.startswith("struct") or "binary" in kind
    if image is not None and not embedded:
        small.append(image)
    found = source.read(columns=[columns[name] for name in small]) if small else None
    cells = {name: found.column(columns[name]).to_pylist() for name in small} if found is not None else {}
    names = _class_labels(source.schema_arrow)
    for row in range(source.metadata.num_rows):
        record = {name: values[row] for name, values in cells.items()}
        for name in record.keys() & names.keys():
            label = record[name]
            record[name] = (
                names[name][label] if isinstance(label, int) and 0 <= label < len(names[name]) else None
            )
        if embedded:
            assert image is not None
            record[image] = LazyImage(f"{table}:{row}", partial(rows.read, columns[image], row))
        yield Record(f"{table}, row {row}", f"{table}:{row}", record or dict.fromkeys(columns))


def _class_labels(schema: Any) -> dict[str, list[str]]:
    """Names of labels that are numbers, where Hugging Face's `datasets` wrote the file."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {
            name.strip().lower(): list(map(str, feature["names"]))
            for name, feature in features.items()
            if feature.get("_type") == "ClassLabel"
        }
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
        return {}


class _Rows:
    """Cells of a file by row; the group of rows that was read last is kept."""

    def __init__(self, table: Path, source: Any, find: Find, close: Any) -> None:
        groups = [source.metadata.row_group(i) for i in range(source.metadata.num_row_groups)]
        if any(group.total_byte_size > GROUP for group in groups):
            raise Unreadable(
                table, f"it has a group of rows of more than {GROUP >> 30} GB: write smaller ones"
            )
        self._starts = list(itertools.accumulate((group.num_rows for group in groups), initial=0))
        self._source, self._find, self._lock = source, find, Lock()
        self._kept: tuple[int, Any] = (-1, None)
        weakref.finalize(self, close)

    def read(self, column: str, row: int) -> Any:
        """The bytes of an image; or its file, where Hugging Face's `datasets` wrote the path alone."""
        group = bisect.bisect_right(self._starts, row) - 1
        with self._lock:
            if self._kept[0] != group:
                self._kept = group, self._source.read_row_group(group, columns=[column]).column(0)
            value = self._kept[1][row - self._starts[group]].as_py()
        content = (value.get("bytes") or value.get("path")) if isinstance(value, dict) else value
        if isinstance(content, str):
            return self._find(content)
        if not isinstance(content, bytes):
            raise InputError("the table has neither bytes nor a path here: fill in one of them")
        return content
