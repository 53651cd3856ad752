"""The text side of a task: one unit row per class, and the prompt features behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, as_features, read_only, require_directions, unit_rows
from prolip.core.errors import InputError
from prolip.core.head import Head


@dataclass(frozen=True, eq=False)
class Text:
    """Class rows [K, D], of unit length.

    Parameters
    ----------
    rows
        One embedding per class; normalised here.
    classes
        Names, in the order of the rows.
    features
        Prompt features before the text projection, [templates, K, Dt]. Only methods that tune the text
        projection need them.
    projection
        The text projection that belongs to `features`.
    """

    rows: Array
    classes: tuple[str, ...] | None = None
    features: Array | None = None
    projection: Head | None = None

    def __repr__(self) -> str:
        classes, dim = self.rows.shape
        return f"Text({classes} classes, {dim} dimensions)"

    def __post_init__(self) -> None:
        rows = as_features(self.rows, "text")
        if rows.ndim != 2:
            raise InputError(f"text must be [classes, D], got shape {list(rows.shape)}")
        require_directions(rows, "text")
        object.__setattr__(self, "rows", read_only(unit_rows(rows)))
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
            if len(self.classes) != len(rows):
                raise InputError(f"{len(self.classes)} class names for {len(rows)} text rows")
        if self.features is not None:
            features = as_features(self.features, "text features")
            if features.ndim != 3 or features.shape[1] != len(rows):
                raise InputError(
                    f"text features must be [templates, {len(rows)}, Dt], got shape {list(features.shape)}"
                )
            object.__setattr__(self, "features", read_only(features))

    @classmethod
    def from_features(cls, features: Array, projection: Head, classes: Sequence[str]) -> Text:
        """The prompt ensemble: project and normalise each prompt, average over templates, normalise."""
        rows = unit_rows(projection(features)).mean(axis=0)
        return cls(rows, tuple(classes), features, projection)

    def subset(self, chosen: Sequence[int] | Array) -> Text:
        """The rows of some classes, in this order."""
        index = np.asarray(chosen, dtype=np.int64)
        names = None if self.classes is None else tuple(self.classes[int(k)] for k in index)
        features = None if self.features is None else self.features[:, index]
        return Text(self.rows[index], names, features, self.projection)

    def __len__(self) -> int:
        return len(self.rows)
