"""Sort images into a folder for each predicted class."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from prolip.core import UsageError
from prolip.io.files import lies_in
from prolip.io.placing import PlaceMode, folder_names, place
from prolip.io.writing import WriteError, temporary

NONE_OF_THESE, UNSURE = "none-of-these", "unsure"


class SameFolderError(UsageError):
    """Images would be moved from `source` to `target`, which are one folder under two paths."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__(
            f"{source} and {target} are one folder, or one is in the other: nothing was moved, name another"
        )
        self.source, self.target = source, target


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

        Before images are moved, all paths are checked: a SameFolderError if one is in a target folder.
        """
        found = self._outside(images)
        if self.how == "move":
            found = iter(list(found))
            self._check_folders({path.parent for path in self.paths.values()})
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

    def _check_folders(self, sources: set[Path]) -> None:
        """Refuse to move files within one folder.

        A folder can have two paths: by links, mounts, or a file system that ignores case. Device and inode do
        not reveal all of these, such as two mounts of one network disk. But a new file that appears in both
        shows that they are one.
        """
        names = (NONE_OF_THESE, UNSURE, *self._folders.values())
        with ExitStack() as stack:
            try:
                targets = [
                    folder for folder in (self.root, *map(self.root.joinpath, names)) if folder.is_dir()
                ]
                probes = {stack.enter_context(temporary(folder)).name: folder for folder in targets}
            except OSError as error:
                raise WriteError(self.root, error) from error
            for source in {place for each in sources for place in (each, *each.resolve().parents)}:
                for probe, folder in probes.items():
                    if (source / probe).exists():
                        raise SameFolderError(source, folder)

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
