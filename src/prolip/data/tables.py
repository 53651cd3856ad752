"""metadata.csv and metadata.jsonl: one row per image, its file and its label."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from prolip.core.errors import InputError

TABLE_NAMES = ("metadata.csv", "metadata.jsonl")
TABLE_SUFFIXES = frozenset({".csv", ".jsonl"})

# The first of these that a table has is taken.
FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")
LABEL_COLUMNS = ("label", "class", "class_name", "label_name", "category", "target")
SPLIT_COLUMNS = ("split", "subset")


@dataclass(frozen=True)
class TableRow:
    """One image of a table. `line` is where it stands in the file, from 1."""

    path: Path
    label: str
    split: str | None
    line: int


def read_table(table: Path) -> list[TableRow]:
    """The rows of a table; files are named relative to the folder that it lies in.

    A file that is not there, a missing label, and a name that leads out of the folder are refused, so that
    a table from elsewhere cannot read what lies outside its own folder.
    """
    rows: list[TableRow] = []
    label_of: dict[Path, str] = {}
    for line, record in _records(table):
        where = f"{table}, line {line}"
        path = _inside(table.parent, _text(record, FILE_COLUMNS, where), where)
        label = _text(record, LABEL_COLUMNS, where)
        if label_of.setdefault(path, label) != label:
            raise InputError(f"{where}: {path.name} is both {label_of[path]!r} and {label!r}")
        split = _column(record, SPLIT_COLUMNS)
        rows.append(TableRow(path, label, None if split is None else str(record[split]), line))
    if not rows:
        raise InputError(f"no images in {table}: it has no rows")
    return rows


def _records(table: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and records, with column names in lower case."""
    try:
        text = table.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{table} cannot be read as UTF-8 text: {error}") from error
    return _jsonl_records(table, text) if table.suffix.lower() == ".jsonl" else _csv_records(table, text)


def _csv_records(table: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    # Spreadsheets write semicolons where the comma is the decimal mark.
    separator = max((",", ";", "\t"), key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for record in reader:
            yield reader.line_num, {str(k).strip().lower(): v for k, v in record.items() if k is not None}
    except csv.Error as error:
        raise InputError(f"{table}, line {reader.line_num + 1}: {error}") from error


def _jsonl_records(table: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            raise InputError(f"{table}, line {line}: not JSON ({error.msg})") from error
        if not isinstance(record, dict):
            raise InputError(f"{table}, line {line}: expected an object like {{...}}, got {content[:40]!r}")
        yield line, {key.strip().lower(): value for key, value in record.items()}


def _column(record: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in record), None)


def _text(record: dict[str, Any], names: tuple[str, ...], where: str) -> str:
    """The value of the first of these columns, as text; there must be one, and it must not be empty."""
    column = _column(record, names)
    if column is None:
        raise InputError(
            f"{where}: no {names[0]} (columns: {', '.join(record) or 'none'}; {', '.join(names)} would do)"
        )
    value = record[column]
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InputError(f"{where}: {column} is {value!r}, expected text")
    return str(value).strip()


def _inside(folder: Path, name: str, where: str) -> Path:
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    # Both readings, so that a table means the same on every system.
    if posix.is_absolute() or windows.anchor or ".." in posix.parts or ".." in windows.parts:
        raise InputError(f"{where}: {name!r} leads out of {folder}: name files inside it")
    path = folder / name
    if not path.is_file():
        raise InputError(f"{where}: {name!r} is not a file in {folder}")
    return path
