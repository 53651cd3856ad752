"""Images into a folder for each answer."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from prolip.core import UsageError
from prolip.core.placing import How, folder_names, place

NONE_OF_THESE, UNSURE = "none-of-these", "unsure"


@dataclass(frozen=True)
class Sorting:
    """Where images go by their answers."""

    root: Path  # holds a folder for each class, for what is rejected, and for what is unsure
    classes: Sequence[Any]  # the answers that there may be
    how: How = "copy"  # or "link" (a symbolic one), or "move"
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
        """(name, path) pairs as they are asked about, but those in `root`, where an earlier run put them."""
        root = self.root.resolve()
        for name, path in images:
            if not isinstance(path, (str, os.PathLike)):
                raise UsageError(f"{name} is no file of its own, which could be sorted: unpack it")
            if root not in Path(path).resolve().parents:
                self.paths[name] = Path(path)
                yield name, path

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
