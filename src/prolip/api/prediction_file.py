"""Answers in a .csv or .jsonl, to which an interrupted run goes on adding."""

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
    """A .csv or .jsonl of answers that grows, and knows which images it has.

    Every answer carries the `run` that it comes from (see `run_name`): a file with anything else in it
    is left as it is. It belongs to one process at a time, from before it is read until the last answer is
    written; each answer is in the file as soon as it is found.
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
        """Take the file, and read what is done; another process that has it is an error."""
        with appending(self.path, self._read) as self._lines:
            yield self
        self._lines = None

    def write(self, found: Iterable[dict[str, Any]]) -> int:
        """Append answers as they come, while the file is open; those that are there are left out."""
        assert self._lines is not None
        count = 0
        for answer in found:
            if answer["image"] in self.done:
                continue
            if self.csv and not self._lines.size:
                self._lines.write(csv_row(self.columns))
            text = json.dumps({**answer, "run": self.run}, ensure_ascii=False) + "\n"
            self._lines.write(csv_row(self._row(answer)) if self.csv else text)
            count += 1
        return count

    def _row(self, answer: dict[str, Any]) -> list[Any]:
        row = [answer["image"], "" if answer["class"] is None else answer["class"], answer["probability"]]
        if "rejected" in answer:
            row.append(str(answer["rejected"]).lower())
        for rank in answer["top"][1:]:
            row += [rank["class"], rank["probability"]]
        return [*row, *[""] * (len(self.columns) - len(row) - 1), self.run]

    def _read(self, file: IO[bytes]) -> int:
        """Note the images in the file; returns where its last whole answer ends."""
        end, header = 0, csv_row(self.columns).encode()
        for row in self._rows(file):
            if not row.endswith(b"\n"):  # what an interruption left, unless it is something else
                begun = header if self.csv else b'{"image": '
                whole = not self.csv and row.endswith(b"}")
                if not end and (whole or not begun.startswith(row[: len(begun)])):
                    raise self._foreign("is not a file of answers")
                break
            if self.csv and not end:
                if row != header:
                    raise self._foreign("has other columns than these answers")
            else:
                self._note(row)
            end += len(row)
        return end

    def _rows(self, file: IO[bytes]) -> Iterator[bytes]:
        """Rows as they lie in the file: a line, or in a CSV several, up to an end outside of quotes."""
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
                answer = parse_json(text)
                image, run = answer["image"], answer["run"]
            if not isinstance(image, str):
                raise TypeError
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            raise self._foreign("has a line that is no answer") from error
        if run != self.run:
            raise self._foreign(f"holds answers of another model or with other options (run {run!r:.40})")
        self.done.add(image)

    def _foreign(self, what: str) -> UsageError:
        return UsageError(f"{self.path} {what}: name another file, or remove this one")


def check_prediction_file(path: Path) -> None:
    """Refuse a place where no answers can go, before any work."""
    if path.suffix not in FORMATS:
        raise UsageError(f"answers go to .csv or .jsonl, not to {path.name}")
    if check_place(path).is_dir():
        raise UsageError(f"{path} is a folder: name a file")
