"""Where predictions and embeddings go: a table, copies of images in a folder for each class, an array."""

from __future__ import annotations

import csv
import filecmp
import itertools
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.io.files import portable_name
from prolip.io.writing import as_cells, write_atomic

NONE_OF_THESE, UNSURE = "none-of-these", "unsure"
LONGEST_NAME = 80  # characters of a folder: file systems allow 255 bytes


def write_predictions(path: Path, rows: Iterable[dict[str, Any]], top: int, sets: bool) -> int:
    """Write rows of `Predictions.to_json` as they come to a .csv file, and return their number."""
    ranks = [f"{name}_{rank}" for rank in range(2, top + 1) for name in ("class", "probability")]
    columns = ["image", "class", "probability", "rejected", *["set"] * sets, *ranks]
    count = 0

    def write(draft: Path) -> None:
        nonlocal count
        with draft.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(columns)
            for row in rows:
                cells = {**row, "set": "; ".join(map(str, row.get("set", ())))}
                for rank, other in enumerate(row["top"][1:], 2):
                    cells |= {f"{name}_{rank}": value for name, value in other.items()}
                if "rejected" in row:
                    cells["rejected"] = str(row["rejected"]).lower()
                table.writerow(as_cells(cells.get(column) for column in columns))
                count += 1

    write_atomic(path, write)
    return count


@dataclass(frozen=True)
class Sorter:
    """Copies each image into the folder of its prediction, and counts what it did."""

    target: Path
    folders: dict[Any, str]  # by class
    unsure: float = 0.0  # images below this probability go to the folder `unsure`
    counts: Counter[str] = field(default_factory=Counter)  # images by folder
    failed: list[tuple[str, str]] = field(default_factory=list)  # (image, reason)

    def copy(self, image: Any, row: dict[str, Any]) -> None:
        """Copy an image that was predicted; what cannot be copied is noted, and does not stop the others."""
        if not isinstance(image, Path):
            raise UsageError(f"{image} is not a file of its own: unpack it to sort it")
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
    """Write names [n] and rows [n, D] as arrays `paths` and `embeddings` of an .npz file."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:  # given a name, NumPy would add a suffix
            np.savez(file, paths=np.array(names), embeddings=rows.astype(np.float32))

    write_atomic(path, write)
