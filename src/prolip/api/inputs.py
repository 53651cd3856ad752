"""Images and labels as users hand them over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prolip.core import InputError, UsageError
from prolip.data import ImageSet, list_images, read_images


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


def images_and_labels(
    images: Any, labels: Any, split: str, classes: list[Any] | None = None, *, grow: bool = False
) -> tuple[list[Any], list[int], list[Any]]:
    """Images, a label number each, and the classes that the numbers point to.

    `classes` are those of a fitted model: then the labels must be among them, and one class will do. With
    `grow` other labels become further classes, after those.
    """
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
    try:
        known = list(classes) if classes is not None else sorted(set(given))
        if grow:
            known += sorted(set(given) - set(known))
    except TypeError as error:
        raise InputError("labels must be all names or all numbers, none of them missing") from error
    if len(known) < 2:
        raise InputError(f"at least two classes are needed, got one: {known[0]!r}")
    position = {name: k for k, name in enumerate(known)}
    if unknown := [label for label in given if label not in position]:
        raise InputError(f"label {unknown[0]!r} is not among the {len(known)} classes of this model")
    return source, [position[label] for label in given], known
