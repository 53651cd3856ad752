"""Read Parquet tables with pyarrow: file names, or the images themselves, a group of rows at a time.

What a column unpacks to is checked first, by the headers of its pages: nothing checks the sizes in the file's
footer, but a page is unpacked to exactly the size in its header. Headers are structs of Thrift's compact
protocol:

    page    1 kind   2 bytes unpacked   3 bytes packed   5 data page {2 encoding}   8 data page {4 encoding}
"""

from __future__ import annotations

import bisect
import itertools
import json
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Any

from prolip.core.errors import InputError, ProlipError
from prolip.data.imageset import LazyImage
from prolip.data.tables import SPLIT_COLUMNS, Find, Record, TableOptions
from prolip.io.environment import require
from prolip.io.reading import MEGABYTE, ReadError, open_regular

ROWS = 1_000_000
LIMIT = 512 * MEGABYTE  # bytes of a group of rows, unpacked
_HEADER = MEGABYTE
_DELTA_BYTE_ARRAY = 7  # texts by their difference to the one before: a few bytes may become gigabytes


def parquet_records(table: Path, find: Find, options: TableOptions) -> Iterator[Record]:
    """Yield the records of a Parquet file. Images are read on access; `find` opens files that it names."""
    parquet = require("pyarrow.parquet", "tables", f"reading {table.name}")
    file = open_regular(table)
    try:
        with open_regular(table) as pages:
            source = parquet.ParquetFile(file)
            # Equal texts and images are in memory once, as in the file.
            leaves = [source.schema.column(i) for i in range(len(source.schema.names))]
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            source = parquet.ParquetFile(file, read_dictionary=texts)
            if source.metadata.num_rows > ROWS:
                raise ReadError(table, f"it has more than {ROWS:,} rows: split it into several")
            rows = _Rows(table, source, find, file.close)
            yield from _records(table, source, rows, pages, options)
    except ProlipError:
        file.close()
        raise
    except Exception as error:  # of pyarrow, on a damaged file
        file.close()
        raise ReadError(table, f"it is not a Parquet file: {str(error)[:200]}") from error


def _records(
    table: Path, source: Any, rows: _Rows, pages: IO[bytes], options: TableOptions
) -> Iterator[Record]:
    columns = {name.strip().lower(): name for name in source.schema_arrow.names}
    image = next((name for name in options.image_columns if name in columns), None)
    wanted = options.label_columns + SPLIT_COLUMNS + options.group_columns
    small = [name for name in wanted if name in columns]
    kind = "" if image is None else str(source.schema_arrow.field(columns[image]).type)
    embedded = kind.startswith("struct") or "binary" in kind
    if image is not None and not embedded:
        small.append(image)
    check_pages(
        pages,
        table,
        _chunks(source, range(source.metadata.num_row_groups), [columns[name] for name in small]),
    )
    content = source.read(columns=[columns[name] for name in small])
    cells = {name: _values(content.column(columns[name])) for name in small}
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


def _chunks(source: Any, groups: Iterable[int], columns: Sequence[str]) -> list[Any]:
    """Return the metadata of columns, with their nested columns, in groups of rows."""
    return [
        chunk
        for group in map(source.metadata.row_group, groups)
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema.partition(".")[0] in columns
    ]


def _values(column: Any) -> list[Any]:
    """Return the values of a column; equal texts of a dictionary are one object."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            texts = chunk.dictionary.to_pylist()
            values += [None if i is None else texts[i] for i in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _class_labels(schema: Any) -> dict[str, list[str]]:
    """Return the names of numeric labels, where Hugging Face's `datasets` wrote the file."""
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
    """Cells of a file by row; the group of rows that was read last stays in memory."""

    def __init__(self, table: Path, source: Any, find: Find, close: Any) -> None:
        groups = [source.metadata.row_group(i) for i in range(source.metadata.num_row_groups)]
        self._starts = list(itertools.accumulate((group.num_rows for group in groups), initial=0))
        self._table, self._source, self._find, self._lock = table, source, find, Lock()
        self._group: tuple[int, Any] = (-1, None)
        weakref.finalize(self, close)

    def read(self, column: str, row: int) -> Any:
        """Return the bytes of an image; or its file, where Hugging Face's `datasets` wrote the path alone."""
        group = bisect.bisect_right(self._starts, row) - 1
        with self._lock:
            if self._group[0] != group:
                with open_regular(self._table) as pages:
                    check_pages(pages, self._table, _chunks(self._source, [group], [column]))
                self._group = group, self._source.read_row_group(group, columns=[column]).column(0)
            value = self._group[1][row - self._starts[group]].as_py()
        content = (value.get("bytes") or value.get("path")) if isinstance(value, dict) else value
        if isinstance(content, str):
            return self._find(content)
        if not isinstance(content, bytes):
            raise InputError("the table has neither bytes nor a path here: fill in one of them")
        return content


def check_pages(file: IO[bytes], table: Path, columns: list[Any]) -> None:
    """Reject columns (their metadata of pyarrow) that unpack to more than the limit."""
    total = 0
    for column in columns:
        if not column.num_values:
            continue
        offsets = (column.dictionary_page_offset, column.data_page_offset)
        place = min(offset for offset in offsets if offset is not None)
        end = place + column.total_compressed_size
        while 0 <= place < end:
            file.seek(place)
            header = _Compact(file.read(_HEADER))
            try:
                page = header.struct()
                unpacked, packed = page[2], page[3]
            except (IndexError, KeyError, RecursionError) as error:
                raise ReadError(table, "the header of a page is damaged") from error
            encoding = page.get(5, {}).get(2) if 5 in page else page.get(8, {}).get(4)
            if encoding == _DELTA_BYTE_ARRAY:
                raise ReadError(table, "it is encoded as DELTA_BYTE_ARRAY: write it with plain encoding")
            total += max(0, unpacked)
            if total > LIMIT:
                raise ReadError(
                    table, f"it has a group of rows of more than {LIMIT >> 20} MB: write smaller groups"
                )
            if packed < 0:
                raise ReadError(table, "the header of a page is damaged")
            place += header.place + packed


class _Compact:
    """A partial reader of Thrift's compact protocol: structs as dictionaries by field number."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self) -> dict[int, Any]:
        """Read the fields of a struct."""
        fields: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            fields[field] = head & 15 == 1 if head & 15 in (1, 2) else self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):  # truth values in a list take a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind in (7, 8):
            return self._skip(8 if kind == 7 else self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15) for _ in range(min(count, _HEADER))]
        if kind == 12:
            return self.struct()
        raise IndexError(f"a field of kind {kind}")

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _skip(self, count: int) -> None:
        self.place += count

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return value

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
