"""A few-shot problem on cached features: all that a method needs to fit, and the texts of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from prolip.core.arrays import (
    Array,
    as_features,
    as_groups,
    as_labels,
    group_weights,
    read_only,
    require_directions,
    unit_rows,
)
from prolip.core.errors import InputError
from prolip.core.head import Head

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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


@dataclass(frozen=True, eq=False)
class Task:
    """Support features, labels, class texts, and the head between them.

    Parameters
    ----------
    x
        Pre-projection features, [n, Do], or [V, n, Do] for V augmented views of the same n images.
    y
        Labels [n], each a row of `text`.
    text
        Class rows [K, D], or a `Text`.
    head
        The encoder's last linear map. None is the black box: x is already the embedding.
    scale
        What cosines are multiplied by before the softmax: 1 / temperature.
    groups
        The group [n] of each image, any integers. Images of a group are alike, such as near-copies, or photos
        of one animal: they stay in one fold, and count as one image in figures. None: each is its own group.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> task = Task(rng.normal(size=(6, 4)), [0, 0, 1, 1, 2, 2], rng.normal(size=(3, 4)))
    >>> task.n, task.classes, task.views, task.shots
    (6, 3, 1, 2.0)
    """

    x: Array
    y: Array
    text: Text
    head: Head | None = None
    scale: float = 100.0
    groups: Array = None  # type: ignore[assignment]  # in a task it is always an array

    if TYPE_CHECKING:  # what the constructor takes is wider than what the fields are

        def __init__(
            self,
            x: ArrayLike,
            y: ArrayLike,
            text: Text | ArrayLike,
            head: Head | None = None,
            scale: float = 100.0,
            groups: ArrayLike | None = None,
        ) -> None: ...

    def __repr__(self) -> str:
        size = f"{self.n} images of {self.classes} classes, {self.views} views"
        if self.independent < self.n:
            size += f", {self.independent} groups"
        return f"Task({size}, {self.x.shape[-1]} features)"

    def __post_init__(self) -> None:
        x = as_features(self.x, "features")
        if x.ndim == 2:
            x = x[None]
        if x.ndim != 3 or 0 in x.shape:
            raise InputError(f"features must be [n, Do] or [views, n, Do], not empty, got {list(x.shape)}")
        require_directions(x, "features")
        text = self.text if isinstance(self.text, Text) else Text(self.text)
        if self.head is not None and self.head.width != x.shape[2]:
            raise InputError(f"features have {x.shape[2]} columns, the head expects {self.head.width}")
        dim = x.shape[2] if self.head is None else self.head.dim
        if dim != text.rows.shape[1]:
            raise InputError(f"images embed into {dim} dimensions, text has {text.rows.shape[1]}")
        if len(text) < 2:
            raise InputError("a task needs at least two classes, got one")
        y = as_labels(self.y, len(text))
        if len(y) != x.shape[1]:
            raise InputError(f"{x.shape[1]} images but {len(y)} labels")
        if not (self.scale > 0 and self.scale < float("inf")):
            raise InputError(f"scale must be a positive number, got {self.scale}")
        groups = as_groups(self.groups, len(y))
        x, y, groups = read_only(x), read_only(y), read_only(groups)
        values = {"x": x, "y": y, "text": text, "scale": float(self.scale), "groups": groups}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def black_box(self) -> bool:
        """Whether no head was given."""
        return self.head is None

    @cached_property
    def linear(self) -> Head:
        """The head, or the identity of a black box."""
        return self.head if self.head is not None else Head.identity(self.x.shape[2])

    @property
    def views(self) -> int:
        """How many views of each image there are."""
        return int(self.x.shape[0])

    @property
    def n(self) -> int:
        """Images in the support set (not counting views)."""
        return int(self.x.shape[1])

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.text)

    @property
    def shots(self) -> float:
        """N, images per class: the mean over classes that have any."""
        return self.n / len(np.unique(self.y))

    @cached_property
    def weights(self) -> Array:
        """What each image counts [n], so that the images of a group and class count as one together."""
        return read_only(group_weights(self.groups, self.y))

    @property
    def independent(self) -> int:
        """How many images there are if each group of each class counts as one."""
        return round(float(self.weights.sum()))

    def rows(self) -> tuple[Array, Array]:
        """All views as rows: features [V * n, Do] and their labels [V * n]."""
        return self.x.reshape(-1, self.x.shape[2]), np.tile(self.y, self.views)

    def embeddings(self) -> Array:
        """Embeddings of every view, [V, n, D], through the pretrained head, not normalised."""
        return self.linear(self.x)

    def with_features(self, x: Array, head: Head | None) -> Task:
        """The same labels and text on other features."""
        return replace(self, x=x, head=head)

    def subset(self, images: Array) -> Task:
        """Only these images, all their views."""
        return replace(self, x=self.x[:, images], y=self.y[images], groups=self.groups[images])

    def select_classes(self, classes: Array) -> Task:
        """Only these classes [k], in this order, and their images."""
        place = np.full(self.classes, -1)
        place[classes] = np.arange(len(classes))
        images = np.flatnonzero(place[self.y] >= 0)
        task = self.subset(images)
        return replace(task, y=place[task.y], text=self.text.subset(classes))
