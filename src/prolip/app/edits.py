"""What a user does to a project, as functions from a state to a change."""

from collections.abc import Sequence
from dataclasses import replace

from prolip.app.state import Change, ClassRow, ImageRow, State
from prolip.core import InputError, ProlipError
from prolip.core.names import normalize_name
from prolip.data import class_names
from prolip.io.files import readable

NAME_LIMIT = 100  # characters; a longer one is no name, and text towers read a few dozen words
TEXT_LIMIT = 300
CLASS_LIMIT = 200
IMAGE_LIMIT = 20_000


class Gone(ProlipError):  # noqa: N818 - reads as what it is where it is caught
    """What a page speaks of is not there any more: another page removed it."""


def add_class(state: State, name: str) -> Change:
    """Add a class, with a name that no other has."""
    if len(state.classes) >= CLASS_LIMIT:
        raise InputError(f"a project holds {CLASS_LIMIT} classes at most")
    row = ClassRow(_class_name(name))
    key = str(state.next_class)
    _require_distinct(state, key, row)
    return Change(f"added the class {row.name}", {key: row})


def edit_class(state: State, key: str, name: str | None = None, text: str | None = None) -> Change:
    """Another name, or another text for the model to read."""
    row = require_class(state, key)
    new = row
    if name is not None:
        new = replace(new, name=_class_name(name))
    if text is not None:
        new = replace(new, text=_text(text, TEXT_LIMIT, "a description") if text.strip() else "")
    if new == row:
        return Change("")
    _require_distinct(state, key, new)
    about = f"renamed {row.name} to {new.name}" if new.name != row.name else f"described {new.name}"
    return Change(about, {key: new})


def remove_class(state: State, key: str) -> Change:
    """Take a class away; its pictures stay, without a label."""
    row = require_class(state, key)
    freed: dict[str, ImageRow | None] = {
        image: replace(state.images[image], label=None, checked=False) for image in state.members(key)
    }
    return Change(f"removed the class {row.name}", {key: None}, freed)


def merge_classes(state: State, key: str, into: str) -> Change:
    """Move all pictures of a class into another, and take the class away."""
    row, target = require_class(state, key), require_class(state, into)
    if key == into:
        raise InputError(f"{row.name!r} cannot be merged into itself")
    moved: dict[str, ImageRow | None] = {
        image: replace(state.images[image], label=into) for image in state.members(key)
    }
    return Change(f"merged {row.name} into {target.name}", {key: None}, moved)


def add_image(state: State, image: str, name: str, label: str | None, group: str = "") -> Change:
    """A picture that was uploaded; one that is there already gets the label it was dropped on."""
    if label is not None:
        require_class(state, label)
    known = state.images.get(image)
    if known is not None and (label is None or known.label == label):
        return Change("")
    if known is None and len(state.images) >= IMAGE_LIMIT:
        raise InputError(f"a project holds {IMAGE_LIMIT} pictures at most")
    row = ImageRow(_text(name, NAME_LIMIT, "a file name", cut=True) if name.strip() else "picture", label)
    return Change("added pictures", images={image: row}, group=_text(group, 64, "a group", cut=True))


def label_images(state: State, images: Sequence[str], label: str | None) -> Change:
    """Give pictures a class, or none."""
    target = "no class" if label is None else require_class(state, label).name
    rows: dict[str, ImageRow | None] = {
        image: replace(row, label=label, checked=label is not None)
        for image, row in _require_images(state, images).items()
    }
    changed = {image: row for image, row in rows.items() if state.images[image] != row}
    return Change(f"labelled {_count(len(changed))} {target}", images=changed)


def remove_images(state: State, images: Sequence[str]) -> Change:
    """Take pictures out of the project."""
    rows = _require_images(state, images)
    return Change(f"removed {_count(len(rows))}", images=dict.fromkeys(rows))


def require_class(state: State, key: str) -> ClassRow:
    """The class of an id, or an error if another page removed it."""
    if key not in state.classes:
        raise Gone("this class is no longer there: it was removed or merged in another window")
    return state.classes[key]


def _require_images(state: State, images: Sequence[str]) -> dict[str, ImageRow]:
    if missing := [image for image in images if image not in state.images]:
        raise Gone(f"{_count(len(missing))} of these are no longer there: removed in another window")
    return {image: state.images[image] for image in images}


def _require_distinct(state: State, key: str, row: ClassRow) -> None:
    class_names([*(other.name for k, other in state.classes.items() if k != key), row.name])


def _count(number: int) -> str:
    return f"{number} picture{'' if number == 1 else 's'}"


def _class_name(given: str) -> str:
    name = normalize_name(readable(given))
    if len(name) > NAME_LIMIT:
        raise InputError(f"a class name has {NAME_LIMIT} characters at most, got {len(name)}")
    return name


def _text(given: str, limit: int, what: str, cut: bool = False) -> str:
    """Text of one line, without control characters, that can be written anywhere."""
    line = " ".join("".join(c if c.isprintable() else " " for c in readable(given)).split())
    if cut:
        return line[:limit]
    if not line:
        raise InputError(f"{what} needs at least one letter")
    if len(line) > limit:
        raise InputError(f"{what} has {limit} characters at most, got {len(line)}")
    return line
