"""A .csv or .jsonl file of predictions, to which an interrupted run can append."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from prolip.core import UsageError
from prolip.io.appending import Lines, appending
from prolip.io.csv import csv_row, csv_text
from prolip.io.reading import parse_json, read_lines
from prolip.io.writing import check_place

FORMATS = (".csv", ".jsonl")


class PredictionFile:
    """A file of predictions that grows.

    Every row has the `run` that it comes from (see `run_name`): a file with anything else is not changed. One
    process at a time can open it; each prediction is written at once.
    """

    def __init__(self, path: Path, top: int, reject: bool, run: str) -> None:
        check_prediction_file(path)
        self.path, self.csv, self.run = path, path.suffix == ".csv", run
        self.columns = ["image", "class", "probability", *(["rejected"] if reject else [])]
        for rank in range(2, top + 1):
            self.columns += [f"class_{rank}", f"probability_{rank}"]
        self.columns.append("run")
        self.done: set[str] = set()
        self._lines: Lines | None = None

    @contextmanager
    def opened(self) -> Iterator[PredictionFile]:
        """Lock the file, and read which images it has; refuse a file that another process has open."""
        with appending(self.path, self._read) as self._lines:
            yield self
        self._lines = None

    def write(self, rows: Iterable[dict[str, Any]]) -> int:
        """Append predictions as they come, except those that the file has."""
        assert self._lines is not None
        count = 0
        for row in rows:
            if row["image"] in self.done:
                continue
            if self.csv and not self._lines.size:
                self._lines.write(csv_row(self.columns))
            text = json.dumps({**row, "run": self.run}, ensure_ascii=False) + "\n"
            self._lines.write(csv_row(self._cells(row)) if self.csv else text)
            count += 1
        return count

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        cells = [row["image"], "" if row["class"] is None else row["class"], row["probability"]]
        if "rejected" in row:
            cells.append(str(row["rejected"]).lower())
        for rank in row["top"][1:]:
            cells += [rank["class"], rank["probability"]]
        return [*cells, *[""] * (len(self.columns) - len(cells) - 1), self.run]

    def _read(self, file: IO[bytes]) -> int:
        """Read the images in the file; return where its last complete row ends."""
        end, header = 0, csv_row(self.columns).encode()
        for row in self._rows(file):
            if not row.endswith(b"\n"):  # left by an interruption, unless it is another file
                start = header if self.csv else b'{"image": '
                whole = not self.csv and row.endswith(b"}")
                if not end and (whole or not start.startswith(row[: len(start)])):
                    raise self._refusal("is not a file of predictions")
                break
            if self.csv and not end:
                if row != header:
                    raise self._refusal("has other columns than these predictions")
            else:
                self._note(row)
            end += len(row)
        return end

    def _rows(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield rows: lines, or in a CSV several lines up to an end outside of quotes."""
        row, quotes = [], 0
        for line in read_lines(file, self.path):
            row.append(line)
            quotes += line.count(b'"') if self.csv else 0
            if quotes % 2 == 0:
                yield b"".join(row)
                row.clear()
        if row:
            yield b"".join(row).rstrip(b"\n")

    def _note(self, row: bytes) -> None:
        try:
            text = row.decode("utf-8")
            if self.csv:
                (cells,) = csv.reader([text], strict=True)
                if len(cells) != len(self.columns):
                    raise ValueError
                image, run = csv_text(cells[0]), csv_text(cells[-1])
            else:
                parsed = parse_json(text)
                image, run = parsed["image"], parsed["run"]
            if not isinstance(image, str):
                raise TypeError
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            raise self._refusal("has a line that is not a prediction") from error
        if run != self.run:
            raise self._refusal(f"has predictions of another model or with other options (run {run!r:.40})")
        self.done.add(image)

    def _refusal(self, what: str) -> UsageError:
        return UsageError(f"{self.path} {what}: name another file, or remove this one")


def check_prediction_file(path: Path) -> None:
    """Refuse a path that predictions cannot be written to, before any work."""
    if path.suffix not in FORMATS:
        raise UsageError(f"predictions go to .csv or .jsonl, not to {path.name}")
    if check_place(path).is_dir():
        raise UsageError(f"{path} is a folder: name a file")
