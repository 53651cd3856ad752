"""A dataset of features of one's own: arrays, or an .npz file with these.

x        [n, Do], or [V, n, Do] for V views of each image, the plain one first
y        [n], labels 0 .. K - 1, or the names of the classes
text     [K, D], a row for each class; or [templates, K, D], a row for each prompt
classes  [K], the names of the classes; an encoder makes the text of them where there is none
split    [n], "train", "val" or "test"; without it, every second image of each class tests
weight   [Do, D], the matrix that x is multiplied by (`bias` [D], where there is one); without it x is
         the embedding already
scale    what cosines are multiplied by; 100, as CLIP's, where it is not given
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from prolip.core import Head, InputError, Text
from prolip.core.arrays import Array, as_features, as_labels, require_directions, row_lengths
from prolip.io.reading import read_arrays

_SPLITS = ("train", "val", "test")
_ARRAYS = ("x", "y", "text", "classes", "split", "weight", "bias", "scale")
_UNIT = 1e-2  # texts whose lengths differ from 1 by less are of unit length


@dataclass(frozen=True, eq=False)
class FeatureDataset:
    """Features, labels and class texts, ready for every protocol that needs no images.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> FeatureDataset("mine", rng.normal(size=(8, 4)), [0, 0, 0, 0, 1, 1, 1, 1], rng.normal(size=(2, 4)))
    FeatureDataset('mine': 8 images of 2 classes, 4 to train, 4 to test)
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    text: ArrayLike | None = None
    classes: Sequence[str] | None = None
    split: ArrayLike | None = None
    head: Head | None = None
    scale: float = 100.0
    images: dict[str, Array] = field(init=False)  # the rows of each split

    def __post_init__(self) -> None:
        x = as_features(self.x, f"x of {self.name}")
        x = x[None] if x.ndim == 2 else x
        if x.ndim != 3 or 0 in x.shape:
            raise InputError(f"{self.name}: x must be [n, Do] or [views, n, Do], got {list(x.shape)}")
        require_directions(x, f"x of {self.name}")
        text = None if self.text is None else as_features(self.text, f"text of {self.name}")
        classes, y = self._labels(text)
        if len(y) != x.shape[1]:
            raise InputError(f"{self.name}: x has {x.shape[1]} images, y {len(y)} labels")
        dim = x.shape[2] if self.head is None else self.head.dim
        if self.head is not None and self.head.width != x.shape[2]:
            raise InputError(f"{self.name}: x has {x.shape[2]} columns, weight {self.head.width} rows")
        if text is not None and (text.ndim not in (2, 3) or text.shape[-2:] != (len(classes), dim)):
            raise InputError(
                f"{self.name}: text must be [{len(classes)}, {dim}] or [templates, {len(classes)}, {dim}], "
                f"got {list(text.shape)}"
            )
        checked = {"x": x, "y": y, "text": text, "classes": classes, "scale": float(self.scale)}
        for name, value in {**checked, "images": self._splits(y)}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(rows)} to {split}" for split, rows in self.images.items() if len(rows))
        return f"FeatureDataset({self.name!r}: {len(self.y)} images of {len(self.classes)} classes, {counts})"  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: str | Path) -> FeatureDataset:
        """Read an .npz file; its name becomes the dataset's."""
        path = Path(path)
        arrays = _from_embed(read_arrays(path))
        if unknown := [name for name in arrays if name not in _ARRAYS]:
            raise InputError(f"{path} has {', '.join(unknown)}: the arrays are called {', '.join(_ARRAYS)}")
        if missing := [name for name in ("x", "y") if name not in arrays]:
            raise InputError(f"{path} has no array {missing[0]}")
        head = Head(arrays["weight"], arrays.get("bias")) if "weight" in arrays else None
        given: dict[str, Any] = {name: arrays.get(name) for name in ("x", "y", "text", "classes", "split")}
        return cls(path.stem, **given, head=head, scale=float(arrays.get("scale", 100.0)))

    def as_text(self) -> Text | None:
        """Return the class rows. Where prompts are longer than 1, methods that need lengths find them."""
        if self.text is None:
            return None
        rows = np.asarray(self.text)
        prompts = rows if rows.ndim == 3 else rows[None]
        if np.abs(row_lengths(prompts) - 1).max() < _UNIT and rows.ndim == 2:
            return Text(rows, tuple(self.classes))  # type: ignore[arg-type]
        identity = Head.identity(prompts.shape[2])
        return Text.from_features(prompts, identity, tuple(self.classes))  # type: ignore[arg-type]

    def _labels(self, text: Array | None) -> tuple[tuple[str, ...], Array]:
        """Return the names of the classes, and the labels as numbers."""
        y = np.asarray(self.y)
        words = y.dtype.kind in "UO"
        classes = None if self.classes is None else tuple(map(str, self.classes))
        if classes is None and words:
            classes = tuple(sorted({str(label) for label in y}))
        if classes is None:
            if text is None:
                raise InputError(f"{self.name} has neither text nor the names of its classes")
            classes = tuple(f"class {k}" for k in range(text.shape[-2]))
        if words:
            place = {name: k for k, name in enumerate(classes)}
            if unknown := {str(label) for label in y} - place.keys():
                raise InputError(f"{self.name}: {min(unknown)!r} in y is none of its classes")
            y = np.array([place[str(label)] for label in y])
        return classes, as_labels(y, len(classes))

    def _splits(self, y: Array) -> dict[str, Array]:
        if self.split is None:
            turn = np.empty(len(y), int)
            for label in np.unique(y):
                images = np.flatnonzero(y == label)
                turn[images] = np.arange(len(images)) % 2
            found = {"train": np.flatnonzero(turn == 0), "test": np.flatnonzero(turn == 1)}
        else:
            words = np.asarray(self.split).astype(str)
            if words.shape != y.shape or {*words.tolist()} - {*_SPLITS}:
                raise InputError(f"{self.name}: split must name one of {', '.join(_SPLITS)} for each image")
            found = {name: np.flatnonzero(words == name) for name in _SPLITS if (words == name).any()}
        for name in ("train", "test"):
            if not len(found.get(name, ())):
                raise InputError(f"{self.name} has no {name} images")
        return found


def _from_embed(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays of a file of `prolip embed` by the names that they have here."""
    if not {"embeddings", "paths"} <= arrays.keys() or "x" in arrays:
        return arrays
    places = [PurePath(str(path)).parts for path in arrays["paths"]]
    classes = np.array([parts[-2] if len(parts) > 1 else "" for parts in places])
    splits = np.array([parts[-3] if len(parts) > 2 else "" for parts in places])
    found = {"x": arrays["embeddings"], "y": classes}
    return {**found, "split": splits} if {*splits.tolist()} <= {*_SPLITS} else found
