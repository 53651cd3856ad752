"""Tables of images: each row has a file or bytes, a label, and perhaps a split.

Every kind of table (.csv, .tsv, .jsonl, .parquet, a data frame) is read as records; `read_rows` turns them
into images and labels.
"""

import base64
import binascii
import csv
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from prolip.core.errors import InputError
from prolip.core.names import normalize_name
from prolip.data.files import existing, is_file
from prolip.data.imageset import LazyImage
from prolip.io.reading import TEXT_LIMIT, TEXTS, ReadError, csv_rows, parse_json, read_text

TEXT_TABLES = (".csv", ".tsv", ".jsonl")
TABLE_SUFFIXES = (*TEXT_TABLES, ".parquet")
TABLE_NAMES = tuple(f"metadata{suffix}" for suffix in TABLE_SUFFIXES)

# The first of these columns that a table has is used.
BYTES_COLUMNS = ("bytes", "image_bytes")
FILE_COLUMNS = (
    "file_name", "filename", "file", "image_path", "filepath", "file_path", "path", "image", "img",
)  # fmt: skip
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "label_name", "category", "target")
SPLIT_COLUMNS = ("split", "subset")
GROUP_COLUMNS = ("group", "group_id")
PARENT = "parent"  # the value of `group_by` that groups images by their folders

Find = Callable[[str], Any]  # returns the image of a file name, or raises an InputError


@dataclass(frozen=True)
class Record:
    """A row of a table: its place, for messages; its name; and its cells by column."""

    where: str
    name: str
    cells: dict[str, Any]


@dataclass(frozen=True)
class TableRow:
    """An image of a table, its label and its split."""

    image: Any
    label: str | None
    split: str | None
    where: str
    group: str | None


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table have images and labels, and where the files are that it names."""

    image_column: str | None = None  # None: the first of BYTES_COLUMNS and FILE_COLUMNS
    label_column: str | None = None  # None: the first of LABEL_COLUMNS
    images_dir: str | os.PathLike[str] | None = None  # None: the folder of the table
    absolute_paths: bool = False  # whether a table may name files outside that folder
    group_by: str | None = None  # PARENT, or a column; None: the first of GROUP_COLUMNS that there is

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The names that the column of groups may have, in lower case."""
        return GROUP_COLUMNS if self.group_by in (None, PARENT) else (_lowered(self.group_by),)

    @property
    def image_columns(self) -> tuple[str, ...]:
        """The names that the column of images may have, in lower case."""
        return BYTES_COLUMNS + FILE_COLUMNS if self.image_column is None else (_lowered(self.image_column),)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The names that the column of labels may have, in lower case."""
        return LABEL_COLUMNS if self.label_column is None else (_lowered(self.label_column),)

    def find_in(self, folder: Path) -> Find:
        """Return a function that finds the files that a table in this folder names."""
        return files_in(folder if self.images_dir is None else existing(self.images_dir), self.absolute_paths)


class MissingColumnError(InputError):
    """A table lacks a column; `names` are those that it may have."""

    def __init__(self, record: Record, kind: str, names: tuple[str, ...]) -> None:
        columns, expected = ", ".join(record.cells)[:200] or "none", ", ".join(names)
        super().__init__(
            f"{record.where}: no column of {kind}s (columns: {columns}): call it one of {expected}, "
            f'or pass {kind}_column="..."'
        )
        self.names = names


def read_rows(
    records: Iterable[Record], find: Find, options: TableOptions, labelled: bool = True
) -> list[TableRow]:
    """Return the images and labels of records. A missing label, and two labels for one file, are errors."""
    rows: list[TableRow] = []
    label_of: dict[Path, str] = {}
    for record in records:
        image = _image(record, find, options.image_columns)
        label = _label(record, options.label_columns) if labelled else None
        if label is not None and isinstance(image, Path) and label_of.setdefault(image, label) != label:
            raise InputError(f"{record.where}: {image.name} is both {label_of[image]!r} and {label!r}")
        split = _column(record.cells, SPLIT_COLUMNS)
        split = None if split is None else str(record.cells[split])
        group = _group(record, image, options) if labelled else None
        rows.append(TableRow(image, label, split, record.where, group))
    return rows


def _group(record: Record, image: Any, options: TableOptions) -> str | None:
    """Return the group of a row: its folder or its cell, None without such a column; alone if it is empty."""
    if options.group_by == PARENT:
        return image.parent.as_posix() if isinstance(image, Path) else record.name
    column = _column(record.cells, options.group_columns)
    if column is None:
        if options.group_by is not None:
            raise MissingColumnError(record, "group", options.group_columns)
        return None
    value = record.cells[column]
    missing = value is None or value != value or not str(value).strip()  # NaN differs from itself
    return record.name if missing else str(value).strip()


def text_records(table: Path | LazyImage) -> Iterator[Record]:
    """Read the records of a .csv, .tsv or .jsonl, on the disk or in an archive."""
    text = read_text(table) if isinstance(table, Path) else _archived_text(table)
    if table.suffix.lower() == ".jsonl":
        return _jsonl_records(str(table), text)
    # Spreadsheets write semicolons where the comma is the decimal mark.
    header = text.partition("\n")[0]
    separator = "\t" if table.suffix.lower() == ".tsv" else max((",", ";", "\t"), key=header.count)
    return _csv_records(str(table), text, separator)


def files_in(folder: Path, absolute_paths: bool = False) -> Find:
    """Return a function that finds files by their names relative to a folder.

    Without `absolute_paths`, a name outside the folder is an error: an untrusted table cannot read other
    files.
    """

    def find(name: str) -> Path:
        posix, windows = PurePosixPath(name), PureWindowsPath(name)
        # Both conventions, so that a table means the same on every system.
        outside = posix.is_absolute() or windows.anchor or ".." in posix.parts or ".." in windows.parts
        if outside and not absolute_paths:
            raise InputError(
                f"{name!r:.200} is outside of {folder}: name files inside it, or trust the table "
                "(absolute_paths=True)"
            )
        for spelling in (name, name.strip()):
            if is_file(folder / spelling):
                return folder / spelling
        raise InputError(f"{name!r:.200} is not a file in {folder}")

    return find


def _csv_records(table: str, text: str, separator: str) -> Iterator[Record]:
    header: list[str] | None = None
    line = 0
    try:
        for line, row in csv_rows(text, separator):
            if header is None:
                header = row
                continue
            if not row:
                continue
            where = f"{table}, line {line}"
            if any(row[len(header) :]):
                raise InputError(f"{where}: it has more cells than the header ({len(header)})")
            cells = itertools.zip_longest(header, map(_unguarded, row[: len(header)]))
            yield Record(where, f"{table}:{line}", _by_column(dict(cells)))
    except csv.Error as error:
        raise InputError(f"{table}, line {line + 1}: {error}") from error


def _unguarded(cell: str) -> str:
    """Remove the apostrophe that keeps spreadsheets from evaluating a formula (`=cmd()`)."""
    return re.sub(r"\A'(?=[-=+@\t\r'])", "", cell)


def _jsonl_records(table: str, text: str) -> Iterator[Record]:
    for line, found in enumerate(re.finditer(r"[^\n]*\n|[^\n]+", text), start=1):
        if line > TEXTS:
            raise InputError(f"{table} has more than {TEXTS:,} lines")
        if not (content := found[0].strip()):
            continue
        where = f"{table}, line {line}"
        try:
            cells = parse_json(content)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({str(error)[:200]})") from error
        if not isinstance(cells, dict):
            raise InputError(f"{where}: expected an object like {{...}}, got {content[:40]!r}")
        yield Record(where, f"{table}:{line}", _by_column(cells))


def _archived_text(table: LazyImage) -> str:
    try:
        content: bytes = table.load()
        if len(content) > TEXT_LIMIT:
            raise ValueError(f"it has more than {TEXT_LIMIT >> 20} MB")
        return content.decode("utf-8-sig")
    except Exception as error:
        raise ReadError(Path(table.name), str(error)[:200]) from error


def _by_column(cells: dict[Any, Any]) -> dict[str, Any]:
    return {_lowered(name): value for name, value in cells.items()}


def _lowered(name: Any) -> str:
    return str(name).strip().lower()


def _column(cells: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in cells), None)


def _image(record: Record, find: Find, columns: tuple[str, ...]) -> Any:
    """Return the image of a row: the file that it names, or the content that it holds."""
    column = _column(record.cells, columns)
    if column is None:
        raise MissingColumnError(record, "image", columns)
    value = record.cells[column]
    if isinstance(value, dict):  # as Hugging Face stores images: {"bytes", "path"}
        value = value.get("bytes") or value.get("path")
    elif isinstance(value, str) and column in BYTES_COLUMNS:
        value = _from_base64(value, record, column)
    if isinstance(value, LazyImage):
        return value
    if isinstance(value, (str, os.PathLike)) and os.fspath(value).strip():
        try:
            return find(os.fspath(value))
        except InputError as error:
            raise InputError(f"{record.where}: {error}") from error
    if value is None or isinstance(value, (str, bool, int, float, list)):
        raise InputError(f"{record.where}: {column} is {_shown(value)}, expected text")
    return LazyImage(record.name, lambda: value)


def _from_base64(text: str, record: Record, column: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)  # `base64 FILE` breaks its lines
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{record.where}: {column} is not base64: {error}") from error


def _label(record: Record, columns: tuple[str, ...]) -> str:
    column = _column(record.cells, columns)
    if column is None:
        raise MissingColumnError(record, "label", columns)
    value = record.cells[column]
    if isinstance(value, float) and value.is_integer():  # a data frame has floats where integers are missing
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InputError(f"{record.where}: {column} is {_shown(value)}, expected text")
    return normalize_name(str(value))


def _shown(value: Any) -> str:
    return repr(value)[:80]
