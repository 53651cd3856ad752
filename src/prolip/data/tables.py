"""Tables of images: each row has a file or bytes, a label, and perhaps a split and a group.

Every kind of table (.csv, .tsv, .jsonl, .parquet, a data frame, a dataset) is read as records; `TableOptions`
finds image, label, split and group in their cells.
"""

import base64
import binascii
import codecs
import csv
import io
import itertools
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, Parameter
from prolip.core.names import normalize_name
from prolip.data.files import is_file
from prolip.data.imageset import LazyImage
from prolip.io.csv import csv_text
from prolip.io.reading import ReadError

TEXT_TABLES = (".csv", ".tsv", ".jsonl")
TABLE_SUFFIXES = (*TEXT_TABLES, ".parquet")
TABLE_NAMES = tuple(f"metadata{suffix}" for suffix in TABLE_SUFFIXES)

BYTES_COLUMNS = ("bytes", "image_bytes")
# The first column of a kind that a table has is used.
COLUMNS = {
    "image": (
        *BYTES_COLUMNS, "file_name", "filename", "file", "image_path", "filepath", "file_path", "path",
        "image", "img",
    ),
    "label": ("label", "labels", "class", "class_name", "label_name", "category", "target"),
    "split": ("split", "subset"),
    "group": ("group", "group_id"),
}  # fmt: skip
KINDS = tuple(COLUMNS)
PARENT = "parent"  # the value of `group_by` that groups images by their folders

csv.field_size_limit(2**31 - 1)  # of the process: a cell may hold an image


@dataclass(frozen=True)
class Record:
    """A row of a table."""

    where: str  # the place, for messages
    name: str  # of its image, where that has no file
    cells: dict[str, Any]  # by column, in lower case
    folder: Path = Path()  # that file names are relative to
    columns: Sequence[str] | None = None  # of the table, where `cells` has only the known ones


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table have images, labels and groups, and where the files are that it names."""

    image_column: str | None = None  # None: the first of COLUMNS that there is
    label_column: str | None = None
    group_by: str | None = None  # PARENT, or a column
    images_dir: Path | None = None  # None: the folder of the table
    inside: Path | None = None  # an unpacked archive, whose tables may not name files outside of it

    def is_named(self, kind: str) -> bool:
        """Whether the column of this kind has a name of the user's."""
        return self._own_name(kind) is not None

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names that a column of this kind may have, in lower case."""
        name = self._own_name(kind)
        return COLUMNS[kind] if name is None else (column_key(name),)

    def _own_name(self, kind: str) -> str | None:
        group = None if self.group_by == PARENT else self.group_by
        return {"image": self.image_column, "label": self.label_column, "group": group}.get(kind)

    def column(self, kind: str, columns: Collection[str]) -> str | None:
        """Return which of these columns is the one of this kind."""
        return next((name for name in self.names(kind) if name in columns), None)

    def check(self, record: Record, labelled: bool) -> None:
        """Refuse a row without a column of images, of labels if it is `labelled`, or of named groups."""
        grouped = labelled and self.group_by not in (None, PARENT)
        needed = ["image", *["label"] * labelled, *["group"] * grouped]
        missing = {k: self.names(k) for k in needed if self.column(k, record.cells) is None}
        for kind, names in missing.items():
            present = ", ".join(record.columns or record.cells)[:200] or "none"
            raise InputError(
                f"{record.where}: no column of {kind}s ({', '.join(names)}), only {present}: rename or pass ",
                Parameter("group_by" if kind == "group" else f"{kind}_column", "..."),
            )

    def image(self, record: Record) -> Path | LazyImage:
        """Return the image of a row: the file that it names, or the content that it holds."""
        column = self.column("image", record.cells) or ""
        value = record.cells[column]
        if isinstance(value, dict):  # as Hugging Face stores images: {"bytes", "path"}
            value = value.get("bytes") or value.get("path")
        elif isinstance(value, str) and column in BYTES_COLUMNS:
            value = _from_base64(value, record, column)
        if isinstance(value, LazyImage):
            return value
        if isinstance(value, (str, os.PathLike)) and os.fspath(value).strip():
            try:
                return self.find(os.fspath(value), record.folder)
            except InputError as error:
                raise InputError(f"{record.where}: {error}") from error
        if value is None or isinstance(value, (str, bool, int, float, list)):
            raise InputError(f"{record.where}: {column} is {value!r:.80}, expected a file name")
        return LazyImage(record.name, lambda: value)

    def find(self, name: str, folder: Path) -> Path:
        """Return the file of this name, relative to `images_dir` or to the folder of the table."""
        folder = folder if self.images_dir is None else self.images_dir
        for spelling in (name, name.strip(), name.replace("\\", "/")):  # of Windows, last
            path = folder / spelling
            if is_file(path):
                if self.inside is not None and not path.resolve().is_relative_to(self.inside):
                    raise InputError(f"{name!r:.200} is outside of the archive")
                return path
        raise InputError(f"{name!r:.200} is not a file in {folder}")

    def label(self, record: Record) -> str:
        """Return the label of a row."""
        column = self.column("label", record.cells) or ""
        value = record.cells[column]
        if isinstance(value, float) and value.is_integer():  # a frame has floats where integers are missing
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
            raise InputError(f"{record.where}: {column} is {value!r:.80}, expected a class name")
        return normalize_name(str(value))

    def split(self, record: Record) -> str | None:
        """Return the split of a row, as it is written; None without such a column."""
        column = self.column("split", record.cells)
        return None if column is None else str(record.cells[column])

    def group(self, record: Record, image: Path | LazyImage) -> str | None:
        """Return the group of a row, by its folder or its cell; alone if that is empty; None without any."""
        if self.group_by == PARENT:
            return image.parent.as_posix() if isinstance(image, Path) else record.name
        column = self.column("group", record.cells)
        if column is None:
            return None
        value = record.cells[column]
        missing = value is None or value != value or not str(value).strip()  # NaN differs from itself
        return record.name if missing else str(value).strip()


def column_key(name: Any) -> str:
    """Return the name of a column as it is compared."""
    return str(name).strip().lower()


def by_column(names: Sequence[Any], place: str) -> list[str]:
    """Return the names of columns as they are compared; two that are the same are an error."""
    keys = list(map(column_key, names))
    if twice := next((name for name, n in Counter(keys).items() if n > 1 and name), None):
        raise InputError(f"{place} has two columns called {twice!r}")
    return keys


def text_records(table: Path) -> Iterator[Record]:
    """Read the records of a .csv, .tsv or .jsonl."""
    text, suffix = _read_text(table), table.suffix.lower()
    if suffix == ".jsonl":
        return _jsonl_records(table, text)
    # Spreadsheets write semicolons where the comma is the decimal mark.
    header = next((line for line in text.splitlines() if line.strip(" ,;\t")), "")
    return _csv_records(table, text, "\t" if suffix == ".tsv" else max((",", ";", "\t"), key=header.count))


def _read_text(table: Path) -> str:
    """Read UTF-8, or what spreadsheets write: Windows-1252 and UTF-16."""
    try:
        content = table.read_bytes()
    except OSError as error:
        raise ReadError(table, error.strerror or str(error)) from error
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ("utf-16",) if wide else ("utf-8-sig", "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise ReadError(table, "it is not text: save it as UTF-8")


def _csv_records(table: Path, text: str, separator: str) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header: list[str] | None = None
    try:
        for row in reader:
            where = f"{table}, line {reader.line_num}"
            if not any(cell.strip() for cell in row):
                continue
            if header is None:
                header = by_column(row, str(table))
                continue
            if any(row[len(header) :]):
                raise InputError(f"{where}: it has more cells than the header ({len(header)})")
            cells = itertools.zip_longest(header, map(csv_text, row[: len(header)]))
            yield Record(where, f"{table}:{reader.line_num}", dict(cells), table.parent)
    except csv.Error as error:
        raise InputError(f"{table}, line {reader.line_num}: {error}") from error


def _jsonl_records(table: Path, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{table}, line {number}"
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({str(error)[:200]})") from error
        if not isinstance(cells, dict):
            raise InputError(f"{where}: expected an object like {{...}}, got {line[:40]!r}")
        cells = {column_key(name): value for name, value in cells.items()}
        yield Record(where, f"{table}:{number}", cells, table.parent)


def _from_base64(text: str, record: Record, column: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)  # `base64 FILE` breaks its lines
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{record.where}: {column} is not base64: {error}") from error
