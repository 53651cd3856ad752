"""Where predictions and embeddings go: a table, copies of images in a folder for each class, an array."""

from __future__ import annotations

import csv
import filecmp
import io
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.io.csv import csv_row, csv_text
from prolip.io.environment import require
from prolip.io.files import portable_name, readable
from prolip.io.writing import write_atomic

FORMATS = (".csv", ".jsonl")
NONE_OF_THESE, UNSURE = "none-of-these", "unsure"
LONGEST_NAME = 80  # characters of a folder: file systems allow 255 bytes


class PredictionFile:
    """A new .csv or .jsonl file of predictions, or one that grows; `done` has the images in it."""

    def __init__(self, path: Path, top: int = 1, append: bool = False, sets: bool = False) -> None:
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"predictions go to .csv or .jsonl, not to {path.name}")
        if os.path.lexists(path) and not append:
            raise UsageError(f"{path} exists: name another file, or append to it")
        self.path, self.append, self.is_csv = path, append, path.suffix.lower() == ".csv"
        ranks = [f"{name}_{rank}" for rank in range(2, top + 1) for name in ("class", "probability")]
        self.columns = ["image", "class", "probability", "rejected", *["set"] * sets, *ranks]
        self.done = self._read() if path.exists() else set()
        self._file: TextIO | None = None

    @contextmanager
    def opened(self) -> Iterator[PredictionFile]:
        """Close the file afterwards; the first prediction creates it."""
        try:
            yield self
        finally:
            if self._file is not None:
                self._file.close()

    def write(self, row: dict[str, Any], path: str | None) -> None:
        """Write a prediction; `path` is `absolute_path` of the image, None for one that is not a file."""
        row = row if path is None else {**row, "image": path}
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a" if self.append else "x", encoding="utf-8", newline="")
            if self.is_csv and not self._file.tell():
                self._file.write(csv_row(self.columns))
        line = csv_row(self._cells(row)) if self.is_csv else json.dumps(row, ensure_ascii=False) + "\n"
        self._file.write(line)
        self._file.flush()

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        for rank, other in enumerate(row["top"][1:], 2):
            row = {**row, f"class_{rank}": other["class"], f"probability_{rank}": other["probability"]}
        row = {**row, "set": "; ".join(map(str, row.get("set", ())))}
        cells = [row.get(column) for column in self.columns]
        return [str(cell).lower() if isinstance(cell, bool) else cell for cell in cells]

    def _read(self) -> set[str]:
        """Return the images in the file; a last line that an interrupted run left incomplete is removed."""
        content = self.path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        lines = io.StringIO(complete.decode("utf-8", "replace"), newline="")
        try:
            if self.is_csv and complete and next(csv.reader(lines)) != self.columns:
                raise ValueError("other columns")
            images = (
                [row[0] for row in csv.reader(lines)]
                if self.is_csv
                else [json.loads(line)["image"] for line in lines]
            )
        except (ValueError, LookupError, TypeError, csv.Error) as error:
            raise UsageError(f"{self.path} has other rows than these predictions: name a new file") from error
        if len(complete) < len(content):
            os.truncate(self.path, len(complete))
        return set(map(csv_text, images)) if self.is_csv else set(images)


def absolute_path(image: str | Path) -> str:
    """Return the absolute path of a file, by which a file of predictions knows it."""
    return readable(str(Path(image).absolute()))


@dataclass(frozen=True)
class Sorter:
    """Copies each image into the folder of its prediction, and counts what it did."""

    target: Path
    folders: dict[Any, str]  # by class
    unsure: float = 0.0  # images below this probability go to the folder `unsure`
    counts: Counter[str] = field(default_factory=Counter)  # images by folder
    failed: list[tuple[str, str]] = field(default_factory=list)  # (image, reason)

    @classmethod
    def of(cls, target: Path, sources: Iterable[Path], classes: Sequence[Any], unsure: float = 0.0) -> Sorter:
        """Refuse a target inside a source, which would be sorted again, and a source inside the target."""
        root = target.resolve()
        for source in map(Path.resolve, sources):
            if source.is_relative_to(root) or (source.is_dir() and root.is_relative_to(source)):
                raise UsageError(f"{target} and {source} lie in each other: sort into another folder")
        return cls(target, folder_names(classes), unsure)

    def copy(self, image: Path, row: dict[str, Any]) -> None:
        """Copy an image that was predicted; what cannot be copied is noted, and does not stop the others."""
        folder = UNSURE if row["probability"] < self.unsure else self.folders.get(row["class"], NONE_OF_THESE)
        try:
            copy_file(image, self.target / folder)
            self.counts[folder] += 1
        except OSError as error:
            self.failed.append((str(image), error.strerror or str(error)))


def copy_file(source: Path, folder: Path) -> None:
    """Copy a file under its name or the next free one, unless there is such a copy; replace nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        target = folder / (source.name if number == 1 else f"{source.stem}-{number}{source.suffix}")
        try:
            target.open("xb").close()  # this reserves the name
        except FileExistsError:
            if target.is_file() and filecmp.cmp(source, target, shallow=False):
                return
            continue
        try:
            shutil.copy2(source, target)
        except BaseException:
            target.unlink()
            raise
        return


def folder_names(classes: Sequence[Any]) -> dict[Any, str]:
    """Return a folder name for each class, all different where case does not matter.

    Examples
    --------
    >>> folder_names(["cat", "a/b", "Cat", "unsure"])
    {'cat': 'cat', 'a/b': 'a_b', 'Cat': 'Cat-2', 'unsure': 'unsure-2'}
    """
    names: dict[Any, str] = {}
    used = {NONE_OF_THESE, UNSURE}
    for label in classes:
        name = portable_name(str(label)[:LONGEST_NAME])
        tries = (name if n == 1 else f"{name}-{n}" for n in itertools.count(1))
        names[label] = next(each for each in tries if each.casefold() not in used)
        used.add(names[label].casefold())
    return names


def write_embeddings(path: Path, names: Sequence[str], rows: Array) -> None:
    """Write names [n] and rows [n, D]: arrays `paths`, `embeddings`, or columns `path`, `embedding`."""
    rows = rows.astype(np.float32)

    def write_npz(draft: Path) -> None:
        with draft.open("wb") as file:  # given a name, NumPy would add a suffix
            np.savez(file, paths=np.array(names), embeddings=rows)

    def write_parquet(draft: Path) -> None:
        arrow = require("pyarrow", "pyarrow", "Parquet", "tables")
        parquet = require("pyarrow.parquet", "pyarrow", "Parquet", "tables")
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), rows.shape[1])
        parquet.write_table(arrow.table({"path": list(names), "embedding": column}), draft)

    writers = {".npz": write_npz, ".parquet": write_parquet}
    if path.suffix.lower() not in writers:
        raise UsageError(f"embeddings go to {' or '.join(writers)}, not to {path.name}")
    write_atomic(path, writers[path.suffix.lower()])
