"""Tables of images: each row has a file or bytes, a label, and perhaps a split and a group.

Every kind of table (.csv, .tsv, .jsonl, .parquet, a data frame, a dataset) is a `Table`; `TableOptions` finds
image, label, split and group in its columns.
"""

import csv
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError, Parameter
from prolip.data.folders import PARENT, split_of
from prolip.data.imageset import LazyImage, normalize_name
from prolip.io.reading import read_bytes, reading
from prolip.io.writing import FORMULA_STARTS

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


@dataclass(frozen=True)
class Table:
    """A table, wherever it is stored.

    `read` takes the names of columns by their kinds, and yields the number of each row and its cells by kind.
    """

    place: str  # for messages
    columns: Sequence[Any]
    read: Callable[[dict[str, Any]], Iterable[tuple[int, dict[str, Any]]]]
    folder: Path = Path()  # that file names are relative to
    types: Mapping[str, str] = field(default_factory=dict)  # columns by kind, where their types say it
    split: str | None = None


@dataclass(frozen=True)
class Row:
    """An image of a table."""

    image: Path | LazyImage
    label: str
    split: str | None
    group: str | None


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table have images, labels and groups, and where the files are that it names."""

    image_column: str | None = None  # None: by its type, or the first of COLUMNS that there is
    label_column: str | None = None
    group_by: str | None = None  # PARENT, or a column
    images_dir: Path | None = None  # None: the folder of the table

    def rows(self, table: Table, labelled: bool = True) -> Iterator[Row]:
        """Yield the rows of a table, whose labels are empty unless `labelled`."""
        columns = self._columns(table, labelled)
        for number, cells in table.read(columns):
            where = f"{table.place}:{number}"
            image = self._image(cells["image"], table.folder, where)
            label = _label(cells["label"], where) if labelled else ""
            split, group = table.split, None
            if "split" in columns:
                split = split_of(_text(cells["split"])) or _text(cells["split"])
            if self.group_by == PARENT:
                group = image.parent.as_posix() if isinstance(image, Path) else where
            elif "group" in columns:
                group = _text(cells["group"]) or where  # without one it is alone
            yield Row(image, label, split, group)

    def _columns(self, table: Table, labelled: bool) -> dict[str, Any]:
        """Return the columns by kind; an image, a label if `labelled`, and what has a name must be there."""
        grouped = self.group_by if labelled and self.group_by != PARENT else None
        named = {"image": self.image_column, "label": self.label_column, "group": grouped}
        required = {"image": True, "label": labelled, "group": grouped is not None}
        present = {column_key(name): name for name in table.columns}
        columns, missing = {}, {}
        for kind, usual in COLUMNS.items():
            name = named.get(kind) or table.types.get(kind)
            keys = usual if name is None else (column_key(name),)
            if key := next((key for key in keys if key in present), None):
                columns[kind] = present[key]
            elif required.get(kind):
                missing[f"{kind}s ({', '.join(keys)})"] = "group_by" if kind == "group" else f"{kind}_column"
        if missing:
            parameters: list[Any] = [
                part for name in missing.values() for part in (" and ", Parameter(name, "..."))
            ]
            raise InputError(
                f"{table.place}: no column of {' and of '.join(missing)}, only {', '.join(present)[:200]}: "
                "rename one, or name it with ",
                *parameters[1:],
            )
        return columns

    def _image(self, value: Any, folder: Path, where: str) -> Path | LazyImage:
        """Return a file, or content; on access if `value` is a function that reads the cell."""
        if callable(value):
            return LazyImage(where, lambda: self._content(value(), folder, where))
        content = self._content(value, folder, where)
        return content if isinstance(content, Path) else LazyImage(where, lambda: content)

    def _content(self, value: Any, folder: Path, where: str) -> Any:
        """Return the file that a cell names, or the image that it holds."""
        if isinstance(value, dict):  # as Hugging Face stores images
            value = value.get("bytes") or value.get("path")
        if isinstance(value, (str, os.PathLike)):
            return self._file(os.fspath(value), self.images_dir or folder, where)
        if value is None or isinstance(value, (int, float, list)):
            raise InputError(f"{where}: the image is {value!r:.80}, expected a file name")
        return value

    def _file(self, name: str, folder: Path, where: str) -> Path:
        for spelling in (name, name.strip().replace("\\", "/")):  # of Windows
            path = folder / spelling
            if os.path.isfile(path):  # noqa: PTH113 - False for a name that no file can have
                return path
        raise InputError(f"{where}: {name!r:.200} is not a file in {folder}")


def _label(value: Any, where: str) -> str:
    if isinstance(value, float) and value.is_integer():  # a frame has floats where integers are missing
        value = int(value)
    if not isinstance(value, (str, int)) or not str(value).strip():
        raise InputError(f"{where}: the label is {value!r:.80}, expected a class name")
    return normalize_name(str(value))


def _text(value: Any) -> str:
    """Return a cell as text; empty if it is missing."""
    return "" if value is None or value != value else str(value).strip()  # NaN differs from itself


def column_key(name: Any) -> str:
    """Return the name of a column as it is compared."""
    return str(name).strip().lower()


def text_table(path: Path) -> Table:
    """Read a .csv, .tsv or .jsonl: UTF-8, or Windows-1252 as spreadsheets write it."""
    content = read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    rows = _parse_jsonl(path, text) if path.suffix.lower() == ".jsonl" else _parse_csv(path, text)
    if not rows:
        raise InputError(f"no images in {path}: it has no rows")

    def read(columns: dict[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, cells in rows:
            yield number, {kind: cells.get(name) for kind, name in columns.items()}

    return Table(str(path), list(rows[0][1]), read, path.parent)


def _parse_csv(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    first = next((line for line in text.splitlines() if line.strip(" ,;\t")), "")
    # Spreadsheets write semicolons where the comma is the decimal mark.
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max((",", ";", "\t"), key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    with reading(path):
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    header = rows[0][1] if rows else []
    if repeated := [name for name in header if name and header.count(name) > 1]:
        raise InputError(f"{path}: two columns are called {repeated[0]!r}: rename one")
    for number, row in rows:
        if any(row[len(header) :]):
            raise InputError(f"{path}:{number}: it has more cells than the header ({len(header)})")
    return [
        (number, dict(itertools.zip_longest(header, map(_unescape, row[: len(header)]))))
        for number, row in rows[1:]
    ]


def _unescape(cell: str) -> str:
    """Return the text of a cell without the apostrophe that `write_csv` puts in front of a formula."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA_STARTS) else cell


def _parse_jsonl(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            with reading(f"{path}:{number}"):
                rows.append((number, {**json.loads(line)}))
    return rows
