"""A dataset on cached features: all that a protocol needs, and no images.

A split of a dataset ("train", "val", "test") knows the labels of every image in its pool, because sampling
draws from all of them, and the features of those images that some experiment asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from prolip.core import Head, InputError, Text
from prolip.core.arrays import Array


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """Labels of a pool, and features of some of its images."""

    labels: list[int]  # of every image of the pool, in its order
    x: Array  # features [V, m, width] of m of the images
    places: Array  # their places in the pool [m], rising

    @classmethod
    def whole(cls, x: Array, labels: Sequence[int]) -> EncodedSplit:
        """A pool whose every image is encoded; x is [n, width] or [V, n, width]."""
        return cls(list(labels), x if x.ndim == 3 else x[None], np.arange(len(labels)))

    def take(self, chosen: Sequence[int], views: int = 1) -> tuple[Array, Array]:
        """Features [views, k, width] and labels [k] of images by their places in the pool."""
        rows = self.rows(chosen)
        if views > len(self.x):
            raise InputError(f"{views} views are asked for, {len(self.x)} are encoded")
        return self.x[:views, rows], np.array([self.labels[i] for i in chosen])

    def rows(self, chosen: Sequence[int]) -> Array:
        """Rows of `x` that hold images of the pool, by their places."""
        wanted = np.asarray(chosen, np.int64)
        rows = np.searchsorted(self.places, wanted).clip(max=max(0, len(self.places) - 1))
        if not len(self.places) or not np.array_equal(self.places[rows], wanted):
            raise InputError("some of the images that were drawn have no features: prepare the dataset again")
        return rows

    def all(self) -> tuple[Array, Array]:
        """The first view [n, width] and the labels [n] of a whole pool."""
        x, y = self.take(range(len(self.labels)))
        return x[0], y


@dataclass(frozen=True, eq=False)
class EncodedDataset:
    """A dataset, seen through one encoder."""

    name: str
    classes: tuple[str, ...]  # as prompts say them
    head: Head | None  # of the encoder
    scale: float
    texts: dict[str, Text]  # class rows by template set: "own" (the dataset's), "photo" ("a photo of a {}.")
    splits: dict[str, EncodedSplit]  # "train", "val" and "test", as far as there are any
    # Training and validation shots of a class are one draw of 2N images, as the authors do on ImageNet.
    paired: bool = False
    # For ImageNet's variants: the label of each class among ImageNet's 1,000.
    imagenet_labels: tuple[int, ...] | None = None
    # For methods that train through a tower:
    model: str = ""  # the encoder's name
    templates: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the prompts behind `texts`
    paths: dict[str, list[str]] = field(default_factory=dict)  # the images behind the features, by split
    device: str = "auto"  # where towers run

    def text(self, template: str = "own") -> Text:
        """Class rows [K, D] of a set of templates."""
        if template not in self.texts:
            raise InputError(
                f"{self.name} was prepared with templates {', '.join(self.texts)}, not {template!r}"
            )
        return self.texts[template]
