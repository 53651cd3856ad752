"""A dataset on cached features: all that a protocol needs.

A split ("train", "val", "test") has the labels of every image, because sampling draws from all of them, and
the features of the images that some run needs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from prolip import encoders
from prolip.core import Fitted, Head, InputError, Text
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.features import extract
from prolip.features.images import LazyImages


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """Labels of a split, and features of some of its images."""

    labels: list[int]  # of every image, in the split's order
    x: Array  # features [V, m, width] of m of the images
    indices: Array  # their indices in the split [m], increasing

    @classmethod
    def whole(cls, x: Array, labels: Sequence[int]) -> EncodedSplit:
        """Return a split with features of every image; x is [n, width] or [V, n, width]."""
        return cls(list(labels), x if x.ndim == 3 else x[None], np.arange(len(labels)))

    def take(self, chosen: Sequence[int], views: int = 1) -> tuple[Array, Array]:
        """Return features [views, k, width] and labels [k] of images by their indices in the split."""
        rows = self.rows(chosen)
        if views > len(self.x):
            raise InputError(f"the run needs {views} views, {len(self.x)} are encoded")
        x = self.x[:views, rows]
        x = x.astype(np.float32) if x.dtype == np.float16 else x  # as files have them
        return x, np.array([self.labels[i] for i in chosen])

    def rows(self, chosen: Sequence[int]) -> Array:
        """Return the rows of `x` that hold these images of the split."""
        wanted = np.asarray(chosen, np.int64)
        rows = np.searchsorted(self.indices, wanted).clip(max=max(0, len(self.indices) - 1))
        if not len(self.indices) or not np.array_equal(self.indices[rows], wanted):
            raise InputError(
                "some of the drawn images have no features: those of other shots, seeds or protocols"
            )
        return rows

    def all(self) -> tuple[Array, Array]:
        """Return the first view [n, width] and the labels [n] of the whole split."""
        x, y = self.take(range(len(self.labels)))
        return x[0], y


@dataclass(frozen=True, eq=False)
class EncodedDataset:
    """A dataset, encoded by one encoder."""

    name: str
    classes: tuple[str, ...]  # as prompts have them
    head: Head | None  # of the encoder
    scale: float
    texts: dict[str, Text]  # class rows by template set: "own" (the dataset's), "photo" ("a photo of a {}.")
    splits: dict[str, EncodedSplit]  # "train", "val" and "test", those that exist
    # Training and validation shots of a class are one draw of 2N images, as the authors do on ImageNet.
    paired: bool = False
    # For ImageNet's variants: the label of each class among ImageNet's 1,000.
    imagenet_labels: tuple[int, ...] | None = None
    # For methods that train through a tower:
    encoder: str = ""  # the encoder's name
    templates: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the prompts behind `texts`
    paths: dict[str, list[str]] = field(default_factory=dict)  # the images behind the features, by split
    device: str = "auto"  # of the encoder

    @property
    def sizes(self) -> dict[str, int]:
        """The number of images of each split."""
        return {name: len(split.labels) for name, split in self.splits.items()}

    def text(self, template: str = "own") -> Text:
        """Return the class rows [K, D] of a set of templates."""
        if template not in self.texts:
            raise InputError(f"{self.name} has templates {', '.join(self.texts)}, not {template!r}")
        return self.texts[template]

    def load_encoder(self) -> Encoder:
        """Load the encoder, once in a process."""
        if not self.encoder:
            raise InputError(f"{self.name} has features only, and this run needs the encoder")
        return _load(self.encoder, self.device)

    def images(self, split: str, chosen: Sequence[int]) -> Sequence[object]:
        """Return images by their indices in a split; they are loaded on access."""
        if not self.encoder:
            raise InputError(f"{self.name} has features only, and this run needs the images")
        return LazyImages([self.paths[split][row] for row in self.splits[split].rows(chosen).tolist()])

    def test_split(self, fitted: Fitted) -> tuple[Array, Array]:
        """Return the test features [n, width] for a fitted model, and the labels [n].

        Where training changed the image tower, the images are encoded again.
        """
        x, y = self.splits["test"].all()
        if not self.encoder or type(fitted).encoder_for is Fitted.encoder_for:
            return x, y
        base = self.load_encoder()
        reader = fitted.encoder_for(base)
        return (x if reader is base else extract(reader, self.paths["test"]).features[0]), y


@functools.lru_cache(maxsize=1)
def _load(encoder: str, device: str) -> Encoder:
    return encoders.load(encoder, device)
