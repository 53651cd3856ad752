"""The writer of every CSV file: texts come back as they were, and spreadsheets take none for a formula."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prolip.io.writing import write_text

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "'")


def csv_row(values: Iterable[Any]) -> str:
    r"""Return a row of CSV that any reader parses, whatever the texts hold.

    A text that a spreadsheet would take for a formula gets an apostrophe in front, and so does one that
    starts with an apostrophe: `csv_text` removes it.

    Examples
    --------
    >>> csv_row(["a.jpg", "=cmd()", 0.5])
    "a.jpg,'=cmd(),0.5\n"
    """
    stream = io.StringIO(newline="")
    # The writer quotes the characters of its terminator: with "\r\n", either line ending.
    csv.writer(stream, lineterminator="\r\n").writerow([_guard(value) for value in values])
    return stream.getvalue().removesuffix("\r\n") + "\n"


def csv_text(cell: str) -> str:
    """Return the text of a cell that `csv_row` wrote."""
    return cell[1:] if cell.startswith("'") else cell


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a file of rows, the header first."""
    write_text(path, "".join(map(csv_row, rows)))


def _guard(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
