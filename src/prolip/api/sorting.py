"""Sort images into a folder for each predicted class."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from prolip.core import UsageError
from prolip.io.files import lies_in
from prolip.io.placing import PlaceMode, folder_names, place

NONE_OF_THESE, UNSURE = "none-of-these", "unsure"


@dataclass(frozen=True)
class Sorting:
    """Where images go, by their predictions."""

    root: Path  # has a folder for each class, for rejected and for unsure images
    classes: Sequence[Any]  # that may be predicted
    how: PlaceMode = "copy"  # or "link" (a symbolic one), or "move"
    unsure: float = 0.0  # images below this probability go to `unsure`
    counts: Counter[str] = field(default_factory=Counter)  # images per folder, counted as they come
    paths: dict[str, Path] = field(default_factory=dict)  # of images without a prediction yet, by name

    def __post_init__(self) -> None:
        if not 0 <= self.unsure <= 1:
            raise UsageError(f"unsure must be a probability, 0 to 1, got {self.unsure}")
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root} is a file: name a folder to sort into")

    def folder(self, row: dict[str, Any]) -> str:
        """Return the name of the folder for a prediction."""
        if row["class"] is None:
            return NONE_OF_THESE
        return UNSURE if row["probability"] < self.unsure else self._folders[row["class"]]

    def remember(self, images: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the (name, path) pairs that are not in `root`, where an earlier run put them.

        Before images are moved, all paths are checked: one in the folder of a class is an error.
        """
        found = self._outside(images)
        if self.how == "move":
            found = iter(list(found))
            names = (NONE_OF_THESE, UNSURE, *self._folders.values())
            targets = [folder for folder in map(self.root.joinpath, names) if folder.is_dir()]
            for source in {path.parent for path in self.paths.values()}:
                if target := next((each for each in targets if lies_in(source, each)), None):
                    raise UsageError(
                        f"{source} and {target} are the same folder: nothing was moved, name another"
                    )
        yield from found

    def _outside(self, images: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        sorted_before: dict[Path, bool] = {}  # by folder
        for name, image in images:
            if not isinstance(image, (str, os.PathLike)):
                raise UsageError(f"{name} is not a file that could be sorted: unpack it")
            path = Path(image)
            if path.parent not in sorted_before:
                sorted_before[path.parent] = lies_in(path.parent, self.root)
            if not sorted_before[path.parent]:
                self.paths[name] = path
                yield name, image

    def place_all(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Put each image into its folder, then yield its prediction; see `io.placing.place`."""
        for row in rows:
            folder = self.folder(row)
            place(self.paths.pop(row["image"]), self.root / folder, self.how)
            self.counts[folder] += 1
            yield row

    @cached_property
    def _folders(self) -> dict[Any, str]:
        """Return a safe folder name for each class, other than the two reserved ones."""
        names = folder_names([NONE_OF_THESE, UNSURE, *map(str, self.classes)])[2:]
        return dict(zip(self.classes, names, strict=True))
