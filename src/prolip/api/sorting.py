"""Images into a folder for each answer."""

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
    """Images are to be moved from `source` to `target`, which are one folder under two paths."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__(f"{source} and {target} are the same folder: nothing was moved, name another")
        self.source, self.target = source, target


@dataclass(frozen=True)
class Sorting:
    """Where images go by their answers."""

    root: Path  # holds a folder for each class, for what is rejected, and for what is unsure
    classes: Sequence[Any]  # the answers that there may be
    how: PlaceMode = "copy"  # or "link" (a symbolic one), or "move"
    unsure: float = 0.0  # answers below this probability go to `unsure`
    counts: Counter[str] = field(default_factory=Counter)  # images by folder, filled as they come
    paths: dict[str, Path] = field(default_factory=dict)  # of each image that waits for its answer, by name

    def __post_init__(self) -> None:
        if not 0 <= self.unsure <= 1:
            raise UsageError(f"unsure must be a probability, 0 to 1, got {self.unsure}")
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root} is a file: name a folder to sort into")

    def folder(self, answer: dict[str, Any]) -> str:
        """The name of the folder for an answer."""
        if answer["class"] is None:
            return NONE_OF_THESE
        return UNSURE if answer["probability"] < self.unsure else self._folders[answer["class"]]

    def remember(self, images: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """(name, path) pairs as they are asked about, but those in `root`, where an earlier run put them.

        Before images are moved all of them are looked at; a SameFolderError if one lies where it is to go.
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
                raise UsageError(f"{name} is not a file of its own, which could be sorted: unpack it")
            path = Path(image)
            if path.parent not in sorted_before:
                sorted_before[path.parent] = lies_in(path.parent, self.root)
            if not sorted_before[path.parent]:
                self.paths[name] = path
                yield name, image

    def _check_folders(self, sources: set[Path]) -> None:
        """Refuse to move files within one folder.

        A folder can have two paths: by links, by mounts, by letters that the file system does not tell apart.
        Not all of these can be told from device and inode, two mounts of one network disk for instance. But a
        new file that is seen in both is in one folder.
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

    def place_all(self, answers: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Answers, each handed on once its image lies in its folder; see `core.placing.place`."""
        for answer in answers:
            folder = self.folder(answer)
            place(self.paths.pop(answer["image"]), self.root / folder, self.how)
            self.counts[folder] += 1
            yield answer

    @cached_property
    def _folders(self) -> dict[Any, str]:
        """A safe name for each class, and not one of the two others."""
        names = folder_names([NONE_OF_THESE, UNSURE, *map(str, self.classes)])[2:]
        return dict(zip(self.classes, names, strict=True))
