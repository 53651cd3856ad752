"""The values of a project: classes, images, and changes from one state to the next.

A state is two tables. A change puts rows into them (None removes a row), so that it can be written in one
transaction, applied by the server and by every open page, and undone by the rows that were there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prolip.data.imageset import is_negative


@dataclass(frozen=True)
class ClassRow:
    """A class: its name, and optionally a text that prompts use in its place."""

    name: str
    text: str = ""

    @property
    def prompt_name(self) -> str:
        """What prompts call the class."""
        return self.text or self.name


@dataclass(frozen=True)
class ImageRow:
    """An image: its file name, its class, whether the user confirmed that, and whether it is a test image."""

    name: str
    label: str | None = None  # None: not labelled yet
    checked: bool = False
    test: bool = False  # never trained on
    machine: bool = False  # labelled by a prediction: not trained on until a person confirms it


@dataclass(frozen=True)
class Change:
    """Rows to put, by id; None removes."""

    about: str  # a description for the user
    classes: dict[str, ClassRow | None] = field(default_factory=dict)
    images: dict[str, ImageRow | None] = field(default_factory=dict)
    group: str = ""  # changes of one group, such as the files of one drop, are undone together
    undoes: bool = False  # whether this undoes an earlier change

    def __len__(self) -> int:
        return len(self.classes) + len(self.images)

    def rows(self) -> dict[str, Any]:
        """Return the rows as JSON."""
        return {"classes": write_rows(self.classes), "images": write_rows(self.images)}


def write_rows(rows: Mapping[str, ClassRow | ImageRow | None]) -> dict[str, Any]:
    """Return rows by id as JSON."""
    return {key: row and dict(vars(row)) for key, row in rows.items()}


def read_rows(rows: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Parse what `write_rows` wrote."""
    return {key: row and kind(**row) for key, row in rows.items()}


@dataclass
class State:
    """The two tables, by id, after so many changes."""

    classes: dict[str, ClassRow] = field(default_factory=dict)
    images: dict[str, ImageRow] = field(default_factory=dict)
    revision: int = 0  # number of changes; the one that adds a class gives it its id

    def apply(self, change: Change) -> None:
        """Put the rows of a change into the tables."""
        _put(self.classes, change.classes)
        _put(self.images, change.images)
        self.revision += 1

    def rows_before(self, change: Change) -> Change:
        """Return the change that undoes another one."""
        classes = {key: self.classes.get(key) for key in change.classes}
        return Change("", classes, {key: self.images.get(key) for key in change.images})

    def copy(self) -> State:
        """Return a copy that later changes leave alone."""
        return State(dict(self.classes), dict(self.images), self.revision)

    def members(self, label: str | None) -> list[str]:
        """List the images of a class."""
        return [key for key, row in self.images.items() if row.label == label]

    def ordered_classes(self) -> list[str]:
        """List the ids of the classes, oldest first."""
        return sorted(self.classes, key=int)

    def negative_classes(self) -> list[str]:
        """List the ids of classes whose images show none of the others."""
        return [key for key, row in self.classes.items() if is_negative(row.name)]


def _put(table: dict[str, Any], rows: Mapping[str, Any]) -> None:
    for key, row in rows.items():
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row
