"""Edits of a project: functions from its state to a change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prolip.app.state import Change, ClassRow, ImageRow, State
from prolip.core import InputError, ProlipError
from prolip.data.imageset import class_names, normalize_name
from prolip.io.files import readable

NAME_LIMIT = 100  # characters; text towers read a few dozen words
TEXT_LIMIT = 300


class RemovedElsewhereError(ProlipError):
    """A class or an image is not there any more: another window removed it."""


def add_class(state: State, name: str, images: Sequence[str] = ()) -> Change:
    """Add a class, with images of the project that get its label; its name must differ from all others."""
    row = ClassRow(_class_name(name))
    key = str(state.revision + 1)
    _require_distinct(state, key, row)
    members = _changed(state, images, label=key, checked=True, machine=False)
    return Change(f"added the class {row.name}", {key: row}, members)


def edit_class(state: State, key: str, name: str | None = None, text: str | None = None) -> Change:
    """Change the name of a class, or the text that the model reads in its place."""
    row = require_class(state, key)
    new = row
    if name is not None:
        new = replace(new, name=_class_name(name))
    if text is not None:
        new = replace(new, text=_line(text)[:TEXT_LIMIT])
    if new == row:
        return Change("")
    _require_distinct(state, key, new)
    about = f"renamed {row.name} to {new.name}" if new.name != row.name else f"described {new.name}"
    return Change(about, {key: new})


def remove_class(state: State, key: str) -> Change:
    """Remove a class; its images stay, without a label."""
    row = require_class(state, key)
    freed = _changed(state, state.members(key), label=None, checked=False, test=False, machine=False)
    return Change(f"removed the class {row.name}", {key: None}, freed)


def add_image(
    state: State, image: str, name: str, label: str | None = None, group: str = "", test: bool = False
) -> Change:
    """Add an uploaded image; one that is there already gets the new label."""
    if label is not None:
        require_class(state, label)
    known = state.images.get(image)
    if known is not None and (label is None or (known.label, known.test) == (label, test)):
        return Change("")
    row = ImageRow(_line(name)[:NAME_LIMIT] or "image", label, test=test and label is not None)
    return Change("added images", images={image: row}, group=group)


def label_images(state: State, images: Sequence[str], label: str | None = None, group: str = "") -> Change:
    """Label images with a class, or with none."""
    target = "no class" if label is None else require_class(state, label).name
    test = {} if label is not None else {"test": False}
    rows = _changed(state, images, label=label, checked=label is not None, machine=False, **test)
    changed = {image: row for image, row in rows.items() if state.images[image] != row}
    return Change(f"labelled {_count(len(changed))} {target}", images=changed, group=group)


def accept_predictions(state: State, images: Sequence[str], label: str, group: str = "") -> Change:
    """Label images with the class that the model predicts; they stay marked as labelled by it."""
    require_class(state, label)
    rows = _changed(state, images, label=label, checked=False, machine=True)
    return Change("accepted predictions", images=rows, group=group)


def remove_images(state: State, images: Sequence[str]) -> Change:
    """Remove images from the project."""
    rows = _changed(state, images)
    return Change(f"removed {_count(len(rows))}", images=dict.fromkeys(rows))


def require_class(state: State, key: str) -> ClassRow:
    """Return the class of an id, or raise an error if another window removed it."""
    if key not in state.classes:
        raise RemovedElsewhereError("this class was removed in another window")
    return state.classes[key]


def _changed(state: State, images: Sequence[str], **fields: Any) -> dict[str, ImageRow | None]:
    """Return the rows of images with other values in some fields."""
    if missing := [image for image in images if image not in state.images]:
        raise RemovedElsewhereError(f"{_count(len(missing))} were removed in another window")
    return {image: replace(state.images[image], **fields) for image in images}


def _require_distinct(state: State, key: str, row: ClassRow) -> None:
    class_names([*(other.name for k, other in state.classes.items() if k != key), row.name])


def _count(number: int) -> str:
    return f"{number} image{'' if number == 1 else 's'}"


def _class_name(text: str) -> str:
    name = normalize_name(_line(text))
    if len(name) > NAME_LIMIT:
        raise InputError(f"a class name can have {NAME_LIMIT} characters at most, got {len(name)}")
    return name


def _line(text: str) -> str:
    """Make text one line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in readable(text)).split())
