"""What a project holds, as values: classes, pictures, and changes from one state to the next.

A state is two tables. A change puts rows into them (None takes a row away), so that it can be written as one
line, applied in one step by the server and by every open page, and undone by the rows that were there before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from prolip.core import InputError

_IMAGE_ID = re.compile(r"[0-9a-f]{64}")  # the SHA-256 of its content
_CLASS_ID = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class ClassRow:
    """A class: its name, and what the model's text tower reads in its place, where that is another."""

    name: str
    text: str = ""

    @property
    def spoken(self) -> str:
        """What the text tower reads."""
        return self.text or self.name


@dataclass(frozen=True)
class ImageRow:
    """A picture: its file's name, its class (None: not labelled yet), and whether that was confirmed."""

    name: str
    label: str | None = None
    checked: bool = False


@dataclass(frozen=True)
class Change:
    """Rows to put, by id; None removes."""

    about: str  # what was done, for people
    classes: dict[str, ClassRow | None] = field(default_factory=dict)
    images: dict[str, ImageRow | None] = field(default_factory=dict)
    group: str = ""  # changes of one group, such as the files of one drop, are undone together
    undoes: bool = False  # whether this takes back an earlier change

    def __bool__(self) -> bool:
        return bool(self.classes or self.images)

    def as_json(self) -> dict[str, Any]:
        """The change as JSON has it."""
        return {
            "about": self.about,
            "classes": {key: row and asdict(row) for key, row in self.classes.items()},
            "images": {key: row and asdict(row) for key, row in self.images.items()},
            "group": self.group,
            "undoes": self.undoes,
        }

    @classmethod
    def from_json(cls, value: Any) -> Change:
        """The inverse of `as_json`; anything else is an error, as a project may come from someone else."""
        try:
            classes = {key: _row(ClassRow, row, str, str) for key, row in value["classes"].items()}
            images = {key: _row(ImageRow, row, str, str | None, bool) for key, row in value["images"].items()}
            about, group = str(value["about"]), str(value["group"])
            undoes = bool(value["undoes"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"it is no change of a project ({type(error).__name__}: {error})") from error
        for pattern, keys in ((_CLASS_ID, classes), (_IMAGE_ID, images)):
            if wrong := [key for key in keys if not pattern.fullmatch(key)]:
                raise InputError(f"{wrong[0][:80]!r} is no id")
        return cls(about, classes, images, group, undoes)


def _row(kind: type[Any], row: Any, *types: Any) -> Any:
    if row is None:
        return None
    made = kind(**row)
    for value, expected in zip(vars(made).values(), types, strict=True):
        if not isinstance(value, expected):
            raise TypeError(f"{value!r} in {kind.__name__}")
    return made


@dataclass(frozen=True)
class State:
    """The two tables, by id. `next_class` was never the id of a class."""

    classes: dict[str, ClassRow] = field(default_factory=dict)
    images: dict[str, ImageRow] = field(default_factory=dict)
    next_class: int = 1

    def after(self, changes: Iterable[Change]) -> State:
        """The state once these changes are applied, in order."""
        classes, images, following = dict(self.classes), dict(self.images), self.next_class
        for change in changes:
            _put(classes, change.classes)
            _put(images, change.images)
            following = max([following, *(int(key) + 1 for key in change.classes)])
        return State(classes, images, following)

    def inverse(self, change: Change) -> Change:
        """What undoes this change, if it is applied to this state."""
        return Change(
            change.about,
            {key: self.classes.get(key) for key in change.classes},
            {key: self.images.get(key) for key in change.images},
            change.group,
            undoes=True,
        )

    def members(self, label: str | None) -> list[str]:
        """The pictures of a class."""
        return [key for key, row in self.images.items() if row.label == label]

    def ordered_classes(self) -> list[str]:
        """The ids of the classes, oldest first."""
        return sorted(self.classes, key=int)


def _put(table: dict[str, Any], rows: dict[str, Any]) -> None:
    for key, row in rows.items():
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row
