"""The state that a sequence of changes leads to, and what takes the last of them back.

Changes are applied in place, so that replaying ten thousand of them takes no longer than reading them. The
history can be written as one JSON object, a snapshot, and be read back from it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from prolip.app.state import Change, ClassRow, ImageRow, State, put, read_rows, write_rows
from prolip.core import InputError

# What can be undone: so many changes, and so many rows in all of them together. The last change always can.
UNDO_CHANGES = 500
UNDO_ROWS = 100_000


@dataclass(eq=False)
class Undo:
    """The rows that a change, or a group of changes, replaced: None where there was none."""

    about: str
    group: str = ""
    classes: dict[str, ClassRow | None] = field(default_factory=dict)
    images: dict[str, ImageRow | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.classes) + len(self.images)

    def change(self) -> Change:
        """The change that puts the rows back."""
        return Change(self.about, dict(self.classes), dict(self.images), self.group, undoes=True)


class History:
    """The two tables of a project at a revision, and its last changes, newest last."""

    def __init__(self) -> None:
        self.revision = 0  # goes up with every change
        self.undo: deque[Undo] = deque()
        self._state = State()
        self._undo_rows = 0
        self._left: set[str] = (
            set()
        )  # pictures of changes that were undone, or that cannot be undone any more

    def state(self) -> State:
        """The tables as they are now, as a value of their own."""
        return self._state.after([])

    def apply(self, change: Change) -> None:
        """Make a change, and remember the rows that it replaces."""
        state = self._state
        if change.undoes:
            self._drop(self.undo.pop() if self.undo else None)
        else:
            last = self.undo[-1] if self.undo else None
            if last is None or not change.group or last.group != change.group:
                last = Undo(change.about, change.group)
                self.undo.append(last)
            before = len(last)
            for key in change.classes:
                last.classes.setdefault(key, state.classes.get(key))
            for key in change.images:
                last.images.setdefault(key, state.images.get(key))
            self._undo_rows += len(last) - before
        put(state.classes, change.classes)
        put(state.images, change.images)
        following = max([state.next_class, *(int(key) + 1 for key in change.classes)])
        self._state = State(state.classes, state.images, following)
        self.revision += 1
        while len(self.undo) > UNDO_CHANGES or (self._undo_rows > UNDO_ROWS and len(self.undo) > 1):
            self._drop(self.undo.popleft())

    def _drop(self, undo: Undo | None) -> None:
        if undo is not None:
            self._undo_rows -= len(undo)
            self._left.update(undo.images)

    def unused_images(self) -> set[str]:
        """Pictures that were in the project, are not there now, and cannot be brought back by undo."""
        found = self._left.difference(self._state.images)
        for undo in self.undo:
            found.difference_update(key for key, row in undo.images.items() if row is not None)
        return found

    def forget_images(self, images: set[str]) -> None:
        """Do not name these pictures as unused any more: their files are deleted."""
        self._left -= images

    def as_json(self) -> dict[str, Any]:
        """The whole as JSON has it."""
        return {
            "revision": self.revision,
            "next_class": self._state.next_class,
            "classes": write_rows(self._state.classes),
            "images": write_rows(self._state.images),
            "undo": [undo.change().as_json() for undo in self.undo],
        }

    @classmethod
    def from_json(cls, value: Any) -> History:
        """The inverse of `as_json`; anything else is an error, as a project may come from someone else."""
        made = cls()
        try:
            classes, images = read_rows(value, ClassRow), read_rows(value, ImageRow)
            changes = [Change.from_json(each) for each in value["undo"]]
            revision, following = value["revision"], value["next_class"]
            if None in (*classes.values(), *images.values()):
                raise TypeError("a row is missing")
            if type(revision) is not int or type(following) is not int or revision < 0:
                raise TypeError("revision and next_class must be counts")
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"not a snapshot of a project ({type(error).__name__}: {error})") from error
        following = max([1, following, *(int(key) + 1 for key in classes)])
        made.revision, made._state = revision, State(classes, images, following)
        for each in changes[-UNDO_CHANGES:]:
            made.undo.append(Undo(each.about, each.group, dict(each.classes), dict(each.images)))
            made._undo_rows += len(made.undo[-1])
        return made
