"""Embeddings that the user supplies, without a tower: the paper's black box. The model's name is `arrays`.

An .npz holds everything, under the names below; an .npy holds the image embeddings alone, and the rest is
given separately. Nothing is ever unpickled.

    image embeddings [n, D]    images, features, embeddings or x
    labels [n]                 labels, targets or y: numbers, or names of classes
    text rows [K, D]           texts or text; [prompts, K, D] is an ensemble, averaged after each prompt's
                               rows are scaled to unit length
    class names [K]            classes, class_names or names

Only the first is always needed: a file to predict on has no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arguments import as_path
from prolip.core.arrays import Array, as_features, as_labels, require_directions, to_numpy, unit_rows
from prolip.core.errors import InputError, UsageError
from prolip.core.head import Head
from prolip.core.names import normalize_name
from prolip.core.text import Text
from prolip.encoders.base import Encoder
from prolip.io.reading import read_array, read_arrays, read_rows, read_text

_IMAGES = ("images", "features", "embeddings", "x")
_LABELS = ("labels", "targets", "y")
_TEXT = ("texts", "text")
_CLASSES = ("classes", "class_names", "names")


def load(rest: str, device: str) -> PrecomputedEmbeddings:
    """Return the stand-in for an encoder of the name `arrays`."""
    if rest:
        raise UsageError(f"'arrays' takes nothing after it, got 'arrays:{rest}'")
    return PrecomputedEmbeddings()


class PrecomputedEmbeddings(Encoder):
    """Stands in for an encoder when the user supplies embeddings of images and text rows of classes.

    `text` are the known text rows; before a fit there are none.
    """

    name = "arrays"
    fingerprint = ""
    scale = 100.0  # CLIP's
    device = "cpu"
    black_box_reason = "embeddings have no model behind them"

    def __init__(self, text: Text | None = None) -> None:
        self.known = text
        if text is not None:
            self.head = self.text_head = Head.identity(text.rows.shape[1])

    def encode(self, pixels: Array) -> Array:
        """Raise an error: there is no tower."""
        raise UsageError("'arrays' reads embeddings, and cannot encode images: name another model")

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Raise an error: there is no tower."""
        raise UsageError("embeddings have no text tower: fit again with rows for the new classes")

    def text(self, classes: Sequence[str], templates: Sequence[str]) -> Text:
        """Return the rows of these classes, which must be known."""
        names = () if self.known is None else self.known.classes or ()
        if not set(classes) <= set(names):
            return super().text(classes, templates)
        assert self.known is not None
        return self.known.subset(np.array([names.index(name) for name in classes]))

    def read(self, images: Any) -> Array:
        """Read embeddings [n, D] from a file, an array or a list of rows."""
        x: Array = read_embeddings(images).x
        if self.known is not None and x.shape[1] != self.head.width:
            raise InputError(
                f"embeddings have {x.shape[1]} dimensions, those of this model {self.head.width}"
            )
        return x


class NeedsImagesError(UsageError):
    """Embeddings were given where images are needed."""


def require_images(encoder: Encoder, purpose: str) -> None:
    """Reject embeddings where an encoder is needed; `purpose` says what needs images."""
    if isinstance(encoder, PrecomputedEmbeddings):
        raise NeedsImagesError(f"{purpose} needs images and an encoder: embeddings are not enough")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Image embeddings, with labels, text rows and class names if given.

    Examples
    --------
    >>> import numpy as np
    >>> pets = Embeddings(np.eye(4), ["cat", "dog", "dog", "cat"], np.eye(4)[:2], ("cat", "dog"))
    >>> pets.y.tolist()
    [0, 1, 1, 0]
    """

    x: Array  # image embeddings [n, D]
    y: Array | None = None  # labels [n], numbers or names of `classes`
    text: Array | None = None  # class rows [K, D], or [prompts, K, D]; stored as unit rows [K, D]
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        x = as_features(self.x, "image embeddings")
        if x.ndim != 2 or 0 in x.shape:
            raise InputError(f"image embeddings must be [n, D], not empty, got shape {list(x.shape)}")
        require_directions(x, "image embeddings")
        if np.ndim(self.classes if self.classes is not None else ()) != 1:
            raise InputError("class names must be a list")
        classes = None if self.classes is None else tuple(normalize_name(str(name)) for name in self.classes)
        if classes is not None and len(set(classes)) < len(classes):
            twice = next(name for name in classes if classes.count(name) > 1)
            raise InputError(f"two classes are called {twice!r}: names must differ")
        text = None if self.text is None else _class_rows(self.text)
        if text is not None and text.shape[1] != x.shape[1]:
            raise InputError(f"images embed into {x.shape[1]} dimensions, text has {text.shape[1]}")
        if text is not None and classes is not None and len(classes) != len(text):
            raise InputError(f"{len(classes)} class names for {len(text)} text rows")
        y = None if self.y is None else _label_numbers(self.y, classes, text)
        if y is not None and len(y) != len(x):
            raise InputError(f"{len(x)} images but {len(y)} labels")
        for field, value in (("x", x), ("y", y), ("text", text), ("classes", classes)):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.x)


def read_embeddings(images: Any, labels: Any = None, text: Any = None, classes: Any = None) -> Embeddings:
    """Read embeddings from files or arrays.

    `images` are an .npz with everything, an .npy, or an array [n, D]. The other arguments override the
    content of an .npz: `labels`, an .npy, .txt or .csv, or an array [n]; `text`, an .npy or an array, [K, D]
    or [prompts, K, D]; `classes`, names, or a .txt with one on each line.
    """
    found: dict[str, Any] = {}
    if isinstance(images, (str, Path)):
        path = as_path(images, "images")
        images = _read(path)
        if isinstance(images, dict):
            found = _by_meaning(images, path)
            images = found["images"]
    return Embeddings(
        images,
        found.get("labels") if labels is None else _read(labels),
        found.get("text") if text is None else _read(text),
        found.get("classes") if classes is None else _read(classes),
    )


def _by_meaning(stored: dict[str, Array], path: Path) -> dict[str, Array | None]:
    """Return the arrays of an .npz by their meaning, under any of the known names."""
    meanings = {"images": _IMAGES, "labels": _LABELS, "text": _TEXT, "classes": _CLASSES}
    found = {
        meaning: next((stored[name] for name in names if name in stored), None)
        for meaning, names in meanings.items()
    }
    if found["images"] is None:
        has = ", ".join(stored) or "no arrays"
        raise InputError(f"{path} has no image embeddings ({', '.join(_IMAGES)}); it has {has}")
    return found


def _read(source: Any) -> Any:
    """Read a file (an .npz as a dictionary of arrays); return anything but a path as it is."""
    if not isinstance(source, (str, Path)):
        return source
    path = as_path(source, "a file of arrays")
    readers: dict[str, Callable[[Path], Any]] = {
        ".npz": read_arrays,
        ".npy": read_array,
        ".txt": _read_lines,
        ".csv": _read_column,
    }
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} is not a file of arrays: expected {', '.join(readers)}")
    return readers[path.suffix.lower()](path)


def _read_lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def _read_column(path: Path) -> list[str]:
    """Read the column of a .csv with a header like "label", or its only one."""
    rows = read_rows(path)
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    column = next((header.index(name) for name in ("label", "class", *_LABELS) if name in header), None)
    if column is None and any(len(row) != 1 for row in rows):
        raise InputError(f"{path} has several columns, none headed 'label': {', '.join(header)}")
    if column is None:
        return [row[0].strip() for row in rows]
    if short := next((place for place, row in enumerate(rows, 1) if len(row) <= column), None):
        raise InputError(f"{path}, row {short} has no column {header[column]!r}")
    return [row[column].strip() for row in rows[1:]]


def _class_rows(text: Any) -> Array:
    rows = as_features(text, "text")
    if rows.ndim not in (2, 3) or 0 in rows.shape:
        raise InputError(f"text must be [classes, D] or [prompts, classes, D], got shape {list(rows.shape)}")
    require_directions(rows, "text")
    return unit_rows(rows if rows.ndim == 2 else unit_rows(rows).mean(axis=0))


def _label_numbers(labels: Any, classes: tuple[str, ...] | None, text: Array | None) -> Array:
    values = to_numpy(labels)
    if values.dtype.kind in "USO":
        names = [normalize_name(str(name)) for name in values.astype(str).reshape(-1)]
        if classes is not None and set(names) <= set(classes):
            numbers = {name: number for number, name in enumerate(classes)}
            return np.array([numbers[name] for name in names], np.int64)
        if not all(name.isdecimal() for name in names):
            if classes is None:
                raise InputError(
                    f"labels are names, like {names[0]!r}: give the classes, in the text's order"
                )
            unknown = sorted(set(names) - set(classes))
            raise InputError(f"labels that are not among the classes: {', '.join(unknown[:5])}")
        values = np.array([int(name) if len(name) < 10 else -1 for name in names], np.int64)
    if values.dtype.kind == "f" and not (np.abs(values) < 2**31).all():
        raise InputError("labels must be integers, and some are infinite, NaN or far too large")
    known = len(text) if text is not None else len(classes or ())
    return as_labels(values, known or int(np.nan_to_num(values).max(initial=0)) + 1)
