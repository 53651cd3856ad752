"""Names, which may hold anything, in files that other programs open."""

import csv
import io
from collections.abc import Iterable
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")


def csv_row(values: Iterable[Any]) -> str:
    r"""A row of CSV that any reader of CSV takes apart again, whatever the texts hold.

    A text that a spreadsheet would take for a formula gets an apostrophe before it, and so does one that
    begins with an apostrophe: `csv_text` takes it off.

    Examples
    --------
    >>> csv_row(["a.jpg", "=cmd()", 0.5])
    "a.jpg,'=cmd(),0.5\n"
    """
    stream = io.StringIO(newline="")
    # The terminator tells the writer what to put into quotes: either end of a line.
    csv.writer(stream, lineterminator="\r\n").writerow([_guarded(value) for value in values])
    return stream.getvalue().removesuffix("\r\n") + "\n"


def _guarded(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def csv_text(cell: str) -> str:
    """The text behind a cell that `csv_row` wrote."""
    return cell[1:] if cell.startswith("'") else cell
