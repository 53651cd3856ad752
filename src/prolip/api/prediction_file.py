"""A .csv or .jsonl file of predictions, written as they come.

An image is its absolute path with its size and the time of its last change in nanoseconds: a run that appends
skips what the file has in this state.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from prolip.core import UsageError
from prolip.io.csv import csv_row, csv_text
from prolip.io.files import readable
from prolip.io.writing import write_lock

FORMATS = (".csv", ".jsonl")
State = tuple[str, int, int]  # absolute path, bytes, nanoseconds


class PredictionFile:
    """A new file of predictions, or one that grows."""

    def __init__(self, path: Path, top: int = 1, append: bool = False) -> None:
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"predictions go to .csv or .jsonl, not to {path.name}")
        if os.path.lexists(path) and not append:
            raise UsageError(f"{path} exists: name another file, or append to it")
        self.path, self.append, self.is_csv = path, append, path.suffix.lower() == ".csv"
        ranks = [f"{name}_{rank}" for rank in range(2, top + 1) for name in ("class", "probability")]
        self.columns = ["image", "class", "probability", "rejected", *ranks, "size", "modified"]
        self.done = self._read() if append and path.exists() else set()
        self._file: TextIO | None = None

    @contextmanager
    def opened(self) -> Iterator[PredictionFile]:
        """Be the only writer of the file, and close it afterwards; the first prediction creates it."""
        with write_lock(self.path):
            if self.append and self.path.exists():
                self.done = self._read()  # another process may have added rows
            try:
                yield self
            finally:
                if self._file is not None:
                    self._file.close()

    def write(self, row: dict[str, Any], state: State | None) -> None:
        """Write a prediction; `state` is None for an image that is not a file."""
        path, size, modified = (row["image"], None, None) if state is None else state
        row = {**row, "image": path, "size": size, "modified": modified}
        if self._file is None:
            self._file = self._open()
        self._file.write(
            csv_row(self._cells(row)) if self.is_csv else json.dumps(row, ensure_ascii=False) + "\n"
        )
        self._file.flush()

    def _open(self) -> TextIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a" if self.append else "x", encoding="utf-8", newline="")
        if self.is_csv and not file.tell():
            file.write(csv_row(self.columns))
        return file

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        for rank, other in enumerate(row["top"][1:], 2):
            row |= {f"class_{rank}": other["class"], f"probability_{rank}": other["probability"]}
        cells = [row.get(column) for column in self.columns]
        return [str(cell).lower() if isinstance(cell, bool) else cell for cell in cells]

    def _read(self) -> set[State]:
        """Return the images in the file; a last line that an interrupted run left incomplete is removed."""
        content = self.path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        try:
            lines = io.StringIO(complete.decode("utf-8"), newline="")
            rows: list[Any] = list(csv.reader(lines)) if self.is_csv else list(map(json.loads, lines))
            if self.is_csv:
                if rows and rows.pop(0) != self.columns:
                    raise ValueError("other columns")
                rows = [dict(zip(self.columns, map(csv_text, row), strict=True)) for row in rows]
            states = {(row["image"], int(row["size"]), int(row["modified"])) for row in rows if row["size"]}
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            raise UsageError(f"{self.path} has other rows than these predictions: name a new file") from error
        if len(complete) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(complete))
        return states


def file_identity(image: str | Path) -> State:
    """Return the absolute path, the size and the time of the last change of a file."""
    path = Path(image).absolute()
    stat = path.stat()
    return readable(str(path)), stat.st_size, stat.st_mtime_ns
