"""The values of a project: classes, images, and changes from one state to the next.

A state is two tables. A change puts rows into them (None removes a row), so that it can be written as one
line, applied in one step by the server and by every open page, and undone by the rows that were there before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prolip.core import InputError
from prolip.io.files import readable

_IMAGE_ID = re.compile(r"[0-9a-f]{64}")  # the SHA-256 of its content
_CLASS_ID = re.compile(r"[1-9][0-9]{0,8}")


def is_text(value: Any) -> bool:
    """Whether this is a string that can be encoded; JSON may have lone surrogates."""
    return isinstance(value, str) and readable(value) == value


def _require_types(row: Any, valid: bool) -> None:
    if not valid:
        raise TypeError(f"wrong types in {str(row)[:200]!r}")


@dataclass(frozen=True)
class ClassRow:
    """A class: its name, and optionally a text that prompts use in its place."""

    name: str
    text: str = ""

    def __post_init__(self) -> None:
        _require_types(self, is_text(self.name) and is_text(self.text))

    @property
    def prompt_name(self) -> str:
        """What prompts call the class."""
        return self.text or self.name


@dataclass(frozen=True)
class ImageRow:
    """An image: its file name, its class (None: not labelled yet), and whether the user confirmed that."""

    name: str
    label: str | None = None
    checked: bool = False

    def __post_init__(self) -> None:
        named = is_text(self.name) and (self.label is None or is_text(self.label))
        _require_types(self, named and isinstance(self.checked, bool))


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

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            "about": self.about,
            "classes": write_rows(self.classes),
            "images": write_rows(self.images),
            "group": self.group,
            "undoes": self.undoes,
        }

    @classmethod
    def from_json(cls, value: Any) -> Change:
        """Parse untrusted JSON that `as_json` wrote."""
        try:
            classes, images = read_rows(value, ClassRow), read_rows(value, ImageRow)
            about, group = value["about"], value["group"]
            _require_types(value, is_text(about) and is_text(group))
            undoes = bool(value["undoes"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"not a change of a project ({type(error).__name__}: {error})") from error
        return cls(about, classes, images, group, undoes)


def write_rows(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows by id as JSON."""
    return {key: row and dict(vars(row)) for key, row in rows.items()}


def read_rows(value: Any, kind: type[Any]) -> dict[str, Any]:
    """Parse what `write_rows` wrote, for the rows of one kind in a JSON object."""
    pattern, table = (_CLASS_ID, "classes") if kind is ClassRow else (_IMAGE_ID, "images")
    rows = {}
    for key, row in value[table].items():
        if not pattern.fullmatch(key):
            raise InputError(f"{key[:80]!r} cannot be an id in {table}")
        rows[key] = None if row is None else kind(**row)
    return rows


@dataclass(frozen=True)
class State:
    """The two tables, by id. `next_class` has never been the id of a class."""

    classes: dict[str, ClassRow] = field(default_factory=dict)
    images: dict[str, ImageRow] = field(default_factory=dict)
    next_class: int = 1

    def members(self, label: str | None) -> list[str]:
        """List the images of a class."""
        return [key for key, row in self.images.items() if row.label == label]

    def ordered_classes(self) -> list[str]:
        """List the ids of the classes, oldest first."""
        return sorted(self.classes, key=int)


def put(table: dict[str, Any], rows: dict[str, Any]) -> None:
    """Put rows into a table, and remove those that are None."""
    for key, row in rows.items():
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row
