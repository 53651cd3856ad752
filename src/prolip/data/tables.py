"""Tables of images: each row has a file or bytes, a label, and perhaps a split and a group.

Every kind of table (.csv, .tsv, .jsonl, .parquet, a data frame, a dataset) is read as records; `TableOptions`
finds image, label, split and group in their cells.
"""

import csv
import itertools
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, Parameter
from prolip.core.names import normalize_name
from prolip.data.files import is_file
from prolip.data.imageset import LazyImage
from prolip.io.csv import csv_text
from prolip.io.reading import ReadError, read_bytes

TEXT_TABLES = (".csv", ".tsv", ".jsonl")
TABLE_SUFFIXES = (*TEXT_TABLES, ".parquet")
TABLE_NAMES = tuple(f"metadata{suffix}" for suffix in TABLE_SUFFIXES)

# The first column of a kind that a table has is used.
COLUMNS = {
    "image": (
        "bytes", "image_bytes", "file_name", "filename", "file", "image_path", "filepath", "file_path",
        "path", "image", "img",
    ),
    "label": ("label", "labels", "class", "class_name", "label_name", "category", "target"),
    "split": ("split", "subset"),
    "group": ("group", "group_id"),
}  # fmt: skip
KINDS = tuple(COLUMNS)
PARENT = "parent"  # the value of `group_by` that groups images by their folders
SPLITS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}

csv.field_size_limit(2**31 - 1)  # of the process


@dataclass(frozen=True)
class Record:
    """A row of a table."""

    where: str  # the place, for messages
    name: str  # of its image, where that has no file
    cells: dict[str, Any]  # by column, in lower case
    folder: Path = Path()  # that file names are relative to


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table have images, labels and groups, and where the files are that it names."""

    image_column: str | None = None  # None: the first of COLUMNS that there is
    label_column: str | None = None
    group_by: str | None = None  # PARENT, or a column
    images_dir: Path | None = None  # None: the folder of the table
    inside: Path | None = None  # an unpacked archive, whose tables may not name files outside of it

    def named(self, kind: str) -> str | None:
        """Return the name that the user gave to the column of this kind."""
        group = None if self.group_by == PARENT else self.group_by
        return {"image": self.image_column, "label": self.label_column, "group": group}.get(kind)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names that a column of this kind may have, in lower case."""
        name = self.named(kind)
        return COLUMNS[kind] if name is None else (column_key(name),)

    def column(self, kind: str, columns: Collection[str]) -> str | None:
        """Return which of these columns is the one of this kind."""
        return next((name for name in self.names(kind) if name in columns), None)

    def check(self, record: Record, labelled: bool) -> None:
        """Refuse a row without a column of images, of labels if it is `labelled`, or of named groups."""
        grouped = labelled and self.named("group") is not None
        kinds = ("image", *["label"] * labelled, *["group"] * grouped)
        missing = [kind for kind in kinds if self.column(kind, record.cells) is None]
        if missing:
            columns = " and ".join(f"{kind}s ({', '.join(self.names(kind))})" for kind in missing)
            present = ", ".join(record.cells)[:200] or "none"
            advice: list[str | Parameter] = []
            for kind in missing:
                name = "group_by" if kind == "group" else f"{kind}_column"
                advice += [" and ", Parameter(name, "...")]
            raise InputError(
                f"{record.where}: no column of {columns}, only {present}: rename or pass ", *advice[1:]
            )

    def _cell(self, kind: str, record: Record) -> Any:
        column = self.column(kind, record.cells)
        return None if column is None else record.cells[column]

    def image(self, record: Record) -> Path | LazyImage:
        """Return the image of a row: the file that it names, or the content that it holds."""
        value = self._cell("image", record)
        if isinstance(value, dict):  # as Hugging Face stores images: {"bytes", "path"}
            value = value.get("bytes") or value.get("path")
        if isinstance(value, (str, os.PathLike)) and os.fspath(value).strip():
            return self.find(os.fspath(value), record.folder, record.where)
        if value is None or isinstance(value, (str, bool, int, float, list)):
            raise InputError(f"{record.where}: the image is {value!r:.80}, expected a file name")
        return value if isinstance(value, LazyImage) else LazyImage(record.name, lambda: value)

    def find(self, name: str, folder: Path, where: str) -> Path:
        """Return the file of this name, relative to `images_dir` or to the folder of the table."""
        folder = folder if self.images_dir is None else self.images_dir
        for spelling in (name, name.strip(), name.replace("\\", "/")):  # of Windows, last
            path = folder / spelling
            if is_file(path):
                if self.inside is not None and not path.resolve().is_relative_to(self.inside):
                    raise InputError(f"{where}: {name!r:.200} is outside of the archive")
                return path
        raise InputError(f"{where}: {name!r:.200} is not a file in {folder}")

    def label(self, record: Record) -> str:
        """Return the label of a row."""
        value = self._cell("label", record)
        if isinstance(value, float) and value.is_integer():  # a frame has floats where integers are missing
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
            raise InputError(f"{record.where}: the label is {value!r:.80}, expected a class name")
        return normalize_name(str(value))

    def split(self, record: Record) -> str | None:
        """Return the split of a row; None without such a column."""
        value = self._cell("split", record)
        if value is not None and split_of(str(value)) is None:
            raise InputError(f"{record.where}: split is {value!r}, not train, val or test")
        return None if value is None else split_of(str(value))

    def group(self, record: Record, image: Path | LazyImage) -> str | None:
        """Return the group of a row, by its folder or its cell; alone if that is empty; None without any."""
        if self.group_by == PARENT:
            return image.parent.as_posix() if isinstance(image, Path) else record.name
        if self.column("group", record.cells) is None:
            return None
        value = self._cell("group", record)
        missing = value is None or value != value or not str(value).strip()  # NaN differs from itself
        return record.name if missing else str(value).strip()


def split_of(name: str) -> str | None:
    """Return the split that a folder name, or a cell of a table, names."""
    lowered = name.strip().lower()
    return next((split for split, aliases in SPLITS.items() if lowered in aliases), None)


def column_key(name: Any) -> str:
    """Return the name of a column as it is compared."""
    return str(name).strip().lower()


def text_records(table: Path) -> Iterator[Record]:
    """Read the records of a .csv, .tsv or .jsonl: UTF-8, or Windows-1252 as spreadsheets write it."""
    content, suffix = read_bytes(table), table.suffix.lower()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    if "\0" in text:
        raise ReadError(table, "it is not text: save it as UTF-8")
    if suffix == ".jsonl":
        return _jsonl_records(table, text)
    # Spreadsheets write semicolons where the comma is the decimal mark.
    header = next((line for line in text.splitlines() if line.strip(" ,;\t")), "")
    return _csv_records(table, text, "\t" if suffix == ".tsv" else max((",", ";", "\t"), key=header.count))


def _csv_records(table: Path, text: str, delimiter: str) -> Iterator[Record]:
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    header: list[str] | None = None
    try:
        for row in reader:
            where = f"{table}, line {reader.line_num}"
            if not any(cell.strip() for cell in row):
                continue
            if header is None:
                header = list(map(column_key, row))
                if repeated := [name for name in header if name and header.count(name) > 1]:
                    raise InputError(f"{where}: two columns are called {repeated[0]!r}: rename one")
                continue
            if any(row[len(header) :]):
                raise InputError(f"{where}: it has more cells than the header ({len(header)})")
            cells = itertools.zip_longest(header, map(csv_text, row[: len(header)]))
            yield Record(where, f"{table}:{reader.line_num}", dict(cells), table.parent)
    except csv.Error as error:
        raise InputError(f"{table}, line {reader.line_num}: {error}") from error


def _jsonl_records(table: Path, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                cells = {column_key(name): value for name, value in json.loads(line).items()}
            except (ValueError, RecursionError, AttributeError) as error:
                raise InputError(f"{table}, line {number}: not a JSON object ({error!s:.200})") from error
            yield Record(f"{table}, line {number}", f"{table}:{number}", cells, table.parent)
