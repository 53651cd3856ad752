"""Answers in a .csv or .jsonl, to which an interrupted run goes on adding."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prolip.core import UsageError
from prolip.core.appending import appending

FORMATS = (".csv", ".jsonl")
FLUSH = 16  # answers


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class AnswerFile:
    """A .csv or .jsonl of answers that grows, and knows which images it has.

    Every answer carries the `run` that it comes from: a file with anything else in it is left as it is.

    Parameters
    ----------
    path
        Where; answers of the same run that are there already are kept.
    top, reject
        What the answers hold.
    run
        See `run_name`.
    """

    def __init__(self, path: Path, top: int, reject: bool, run: str) -> None:
        if path.suffix not in FORMATS:
            raise UsageError(f"answers go to .csv or .jsonl, not to {path.name}")
        self.path, self.csv, self.run = path, path.suffix == ".csv", run
        self.columns = ["image", "class", "probability", *(["rejected"] if reject else [])]
        for rank in range(2, top + 1):
            self.columns += [f"class_{rank}", f"probability_{rank}"]
        self.columns.append("run")
        self.done = set(self._read()) if path.is_file() else set()

    def _read(self) -> Iterator[str]:
        """The images in the file; what an interruption left of a last line is no answer yet."""
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            first = file.readline()
            begun = ",".join(self.columns) + "\n" if self.csv else '{"image": '
            if not first.endswith("\n"):
                if first and (not begun.startswith(first[: len(begun)]) or _is_json(first)):
                    raise self._foreign("is not a file of answers")
                return
            if self.csv and first != begun:
                raise self._foreign(f"has the columns {first.strip()}, these answers have {begun.strip()}")
            whole = (line for line in file if line.endswith("\n"))
            rows = ((row[0], row[-1]) for row in csv.reader(whole) if row)
            for image, run in rows if self.csv else map(self._parse, itertools.chain([first], whole)):
                if run != self.run:
                    raise self._foreign(f"holds answers of another model or with other options (run {run})")
                yield image

    def _parse(self, line: str) -> tuple[str, Any]:
        try:
            answer = json.loads(line)
            return str(answer["image"]), answer["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._foreign("has a line that is no answer") from error

    def _foreign(self, what: str) -> UsageError:
        return UsageError(f"{self.path} {what}: name another file, or remove this one")

    def write(self, found: Iterable[dict[str, Any]]) -> int:
        """Append answers as they come."""
        count = 0
        with appending(self.path) as file:
            rows = csv.writer(file, lineterminator="\n")
            if self.csv and not file.tell():
                rows.writerow(self.columns)
            for answer in found:
                if self.csv:
                    rows.writerow(self._row(answer))
                else:
                    file.write(json.dumps({**answer, "run": self.run}, ensure_ascii=False) + "\n")
                count += 1
                if count % FLUSH == 0:
                    file.flush()
        return count

    def _row(self, answer: dict[str, Any]) -> list[Any]:
        row = [answer["image"], "" if answer["class"] is None else answer["class"], answer["probability"]]
        if "rejected" in answer:
            row.append(str(answer["rejected"]).lower())
        for rank in answer["top"][1:]:
            row += [rank["class"], rank["probability"]]
        return [*row, *[""] * (len(self.columns) - len(row) - 1), self.run]
