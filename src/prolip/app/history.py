"""The state after a sequence of changes, and how to undo the last of them.

Changes are applied in place, so that replaying ten thousand of them takes no longer than reading them. A
history can be written as one JSON object, a snapshot, and read back from it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from prolip.app.state import Change, ClassRow, ImageRow, State, put, read_rows, write_rows
from prolip.core import InputError

# Limits of undo: changes, and rows in all of them together. The last change can always be undone.
UNDO_CHANGES = 500
UNDO_ROWS = 100_000


class History:
    """The tables of a project at a revision, and what undoes its last changes, the newest last."""

    def __init__(self) -> None:
        self.revision = 0  # goes up with every change
        # The rows that each change, or group of changes, replaced; None for a row that was new.
        self.undo: deque[Change] = deque()
        self._state = State()
        self._undo_rows = 0
        self._dropped: set[str] = set()  # images of changes that were undone, or can no longer be undone

    def state(self) -> State:
        """Return a copy of the tables."""
        state = self._state
        return State(dict(state.classes), dict(state.images), state.next_class)

    def apply(self, change: Change) -> None:
        """Apply a change, and remember the rows that it replaces."""
        state = self._state
        if change.undoes:
            self._drop(self.undo.pop() if self.undo else None)
        else:
            last = self.undo[-1] if self.undo else None
            if last is None or not change.group or last.group != change.group:
                last = Change(change.about, group=change.group, undoes=True)
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

    def _drop(self, undo: Change | None) -> None:
        if undo is not None:
            self._undo_rows -= len(undo)
            self._dropped.update(undo.images)

    def unused_images(self) -> set[str]:
        """Return images that were removed, and that undo cannot restore."""
        found = self._dropped.difference(self._state.images)
        for undo in self.undo:
            found.difference_update(key for key, row in undo.images.items() if row is not None)
        return found

    def forget_images(self, images: set[str]) -> None:
        """Forget unused images whose files have been deleted."""
        self._dropped -= images

    def as_json(self) -> dict[str, Any]:
        """Return the history as JSON."""
        return {
            "revision": self.revision,
            "next_class": self._state.next_class,
            "classes": write_rows(self._state.classes),
            "images": write_rows(self._state.images),
            "undo": [undo.as_json() for undo in self.undo],
        }

    @classmethod
    def from_json(cls, value: Any) -> History:
        """Parse untrusted JSON that `as_json` wrote."""
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
            made.undo.append(replace(each, undoes=True))
            made._undo_rows += len(each)
        return made
