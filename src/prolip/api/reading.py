"""Images and labels as users hand them over, and their features."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prolip.core import InputError, UsageError
from prolip.core.files import cache_dir
from prolip.data import ImageSet, list_images, read_images
from prolip.encoders import Encoder
from prolip.encoders.embeddings import read_embeddings
from prolip.features import Extraction, FeatureStore, extract

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Reading:
    """How images are read: where their features are kept, whether those that cannot be read are passed over,
    and whether large ones are decoded in full (see `extract`).
    """

    store: FeatureStore | None = None
    skip_bad: bool = False
    exact_decode: bool = False

    def features(
        self, encoder: Encoder, images: Any, views: Sequence[int] = (0,), progress: Progress | None = None
    ) -> Extraction:
        """Pre-projection features of images, whatever they come as."""
        listed = as_images(images) if encoder.takes_pictures else images
        return extract(
            encoder,
            listed,
            views=views,
            store=self.store,
            skip_bad=self.skip_bad,
            progress=progress,
            exact_decode=self.exact_decode,
        )


def shared_store(named: str | Path | bool | None) -> FeatureStore | None:
    """The store in a folder, the user's own for None and True, none for False; opened once for a process."""
    if named is False:
        return None
    return _opened(None if named in (None, True) else str(named), cache_dir())


@lru_cache(maxsize=8)
def _opened(named: str | None, user: Path) -> FeatureStore:
    return FeatureStore(named)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Images, a label number each, and the classes that the numbers point to."""

    images: Any
    y: list[int]
    classes: list[Any]
    text: Any = None  # class rows [K, D] that came along with embeddings

    def names(self) -> list[Any]:
        """The label of each image."""
        return [self.classes[k] for k in self.y]


def as_images(images: Any) -> list[Any]:
    """Images to answer for: several, a single one, or a folder."""
    if isinstance(images, (str, os.PathLike)):
        return list(list_images(images))
    if isinstance(images, Image.Image):
        return [images]
    if isinstance(images, np.ndarray) and (
        images.ndim == 2 or (images.ndim == 3 and images.shape[2] in (3, 4))
    ):
        return [images]
    try:
        return list(images)
    except TypeError as error:
        raise UsageError(f"images are a list, a folder or one image, not {type(images).__name__}") from error


def read_labelled(
    encoder: Encoder,
    images: Any,
    labels: Any,
    split: str,
    classes: Sequence[Any] | None = None,
    *,
    text: Any = None,
) -> Labelled:
    """Labelled images of a folder (of its part `split` where it has parts), of lists, or embeddings.

    `classes` are those of a fitted model, which come first and in this order; others may follow them. `text`
    are class rows beside embeddings.
    """
    if not encoder.takes_pictures:
        return _labelled_embeddings(images, labels, classes, text)
    if isinstance(images, (str, Path)):
        images = read_images(images, split=split, min_classes=1 if classes else 2)
    if isinstance(images, ImageSet):
        source: list[Any] = list(images.paths)
        given: list[Any] = [images.classes[k] for k in images.labels]
    elif labels is None:
        raise UsageError("labels are needed with a list of images; a folder per class brings its own")
    else:
        source, given = list(images), np.asarray(labels).tolist()
    if len(source) != len(given) or not source:
        raise InputError(f"{len(source)} images and {len(given)} labels: one label for each image is needed")
    return _numbered(source, given, classes)


def require_known(labelled: Labelled, classes: Sequence[Any]) -> None:
    """Refuse labels that are not among the classes of a model."""
    if len(labelled.classes) > len(classes):
        unknown = labelled.classes[len(classes)]
        raise InputError(f"label {unknown!r} is not among the {len(classes)} classes of this model")


def _numbered(source: Any, given: list[Any], classes: Sequence[Any] | None) -> Labelled:
    try:
        known = list(classes or ())
        known += sorted(set(given) - set(known))
    except TypeError as error:
        raise InputError("labels must be all names or all numbers, none of them missing") from error
    if len(known) < 2:
        raise InputError(f"at least two classes are needed, got one: {known[0]!r}")
    position = {name: k for k, name in enumerate(known)}
    return Labelled(source, [position[label] for label in given], known)


def _labelled_embeddings(images: Any, labels: Any, classes: Sequence[Any] | None, text: Any) -> Labelled:
    """Embeddings and their labels; without names of their own, labels are numbers of the classes."""
    brought = read_embeddings(images, labels, text)
    if brought.y is None:
        raise InputError("embeddings need labels: an array in the file, or an argument")
    y: list[int] = brought.y.tolist()
    count = max(y) + 1 if brought.text is None else len(brought.text)
    named = list(brought.classes or classes or range(count))
    if max(y) >= len(named):
        raise InputError(f"label {max(y)} is not among the {len(named)} classes of this model")
    if classes is None:
        return Labelled(brought.x, y, named, brought.text)
    theirs = {
        str(name): name for name in classes
    }  # names in a file are text, those of a model may be numbers
    return _numbered(brought.x, [theirs.get(str(named[k]), named[k]) for k in y], classes)
