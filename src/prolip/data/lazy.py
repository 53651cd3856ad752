"""Images that are part of something larger, and are read when they are asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True, eq=False)
class LazyImage:
    """A member of an archive, a cell of a table, an item of a dataset."""

    name: str  # what answers and messages call it
    # Gives a path, the bytes of a file, a PIL image or an array. Threads may call it at the same time.
    load: Callable[[], Any]
    size: int = 0  # bytes that it takes in memory, where that is known before it is read

    @property
    def suffix(self) -> str:
        """The end of the name, like that of a path."""
        return PurePosixPath(self.name).suffix

    def __str__(self) -> str:
        return self.name
