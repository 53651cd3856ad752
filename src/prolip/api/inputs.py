"""Images and labels in every form that users have them in, as one `ImageSet`; and their features."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.core import InputError, UsageError
from prolip.core.arrays import to_python_scalar
from prolip.core.errors import as_path
from prolip.data.folders import refuse_url
from prolip.data.imageset import ImageSet, LazyImage, is_negative, normalize_label
from prolip.data.inputs import images_in, list_images, read_images
from prolip.data.objects import object_tables
from prolip.encoders import Encoder
from prolip.features import Extraction, FeatureStore, extract
from prolip.features.extract import none_readable
from prolip.features.images import is_single_image
from prolip.io.files import cache_dir, readable
from prolip.io.progress import Progress


@dataclass(frozen=True)
class ReadOptions:
    """How images are read and where their features are stored; see `extract`."""

    store: FeatureStore | None = None
    skip_bad: bool | float = False


def open_store(folder: str | Path | bool | None) -> FeatureStore | None:
    """Open the store in a folder, that of the user for None and True, none for False; once per process."""
    if folder is False:
        return None
    return _opened(None if folder in (None, True) else str(as_path(folder, "store")), cache_dir())


@lru_cache(maxsize=8)
def _opened(folder: str | None, user: Path) -> FeatureStore:
    return FeatureStore(folder)


def encode(
    encoder: Encoder,
    images: Any,
    reading: ReadOptions,
    views: Sequence[int] = (0,),
    progress: Progress | None = None,
) -> Extraction:
    """Compute the features of images before the projection; encode what the store does not have."""
    extraction = extract(encoder, as_images(images), views=views, progress=progress, **vars(reading))
    if not extraction.kept:
        raise none_readable(extraction.bad)
    return extraction


def image_name(source: Any, place: int) -> str:
    """Return the path of an image, its name in an archive or a table, or its number from 1 on."""
    named = isinstance(source, (str, os.PathLike, LazyImage))
    return readable(str(source)) if named else f"image {place + 1}"


def read_labelled(
    images: Any,
    labels: Any = None,
    groups: Any = None,
    *,
    split: str,
    classes: Sequence[Any] = (),
    **columns: str | None,
) -> ImageSet:
    """Read labelled images: a folder, a table, an archive or a dataset; images and a list of labels; a
    mapping of labels to images; or (image, label) pairs, as of `zip(images, labels)`.

    `split` is taken where there are several. `classes` are those of a fitted model: they come first, and
    others may follow. `groups` has the group of each image; `columns` are those of `read_images`. Images
    whose label is one of NEGATIVES are no class: they become `negatives`.
    """
    if isinstance(images, Mapping) and not object_tables(images):
        images, labels = _split_mapping(images, labels)
    elif labels is None and isinstance(images, (list, zip)):
        images = list(images)
        if images and all(isinstance(pair, tuple) and len(pair) == 2 for pair in images):
            images, labels = zip(*images, strict=True)
    if labels is None and not isinstance(images, ImageSet):
        if not isinstance(images, (str, os.PathLike)) and not object_tables(images):
            raise UsageError(
                "a list of images needs labels: as a second list, as (image, label) pairs, or as "
                "{label: images}; a folder per class has its own"
            )
        images = read_images(images, split, min_classes=1 if classes else 2, **columns)
    if labels is None:
        known = {str(name): name for name in classes}  # a folder's names are text, a model's may be numbers
        names = [known.get(str(name), name) for name in images.classes]
        labels, own = [names[k] for k in images.labels], images.groups
        images, images_split = list(images.images), images.split
    else:
        images, own, images_split = as_images(images), None, None
        labels = [normalize_label(to_python_scalar(label)) for label in labels]
        if len(images) != len(labels) or not images:
            raise InputError(f"{len(images)} images and {len(labels)} labels: each image needs one label")
    own = own if groups is None else tuple(str(to_python_scalar(group)) for group in groups)
    if own is not None and len(own) != len(images):
        raise InputError(f"{len(images)} images but {len(own)} groups")
    of_class = [label in classes or not is_negative(label) for label in labels]
    y, known_classes = number_labels(list(itertools.compress(labels, of_class)), classes)
    return ImageSet(
        list(itertools.compress(images, of_class)),
        y,
        known_classes,
        split=images_split,
        groups=None if own is None else tuple(itertools.compress(own, of_class)),
        negatives=tuple(image for image, kept in zip(images, of_class, strict=True) if not kept),
    )


def _split_mapping(images: Mapping[Any, Any], labels: Any) -> tuple[list[Any], list[Any]]:
    """Return images and labels of {label: images}."""
    if labels is not None:
        raise UsageError("labels are the keys of a mapping of images: leave labels out")
    listed = {label: as_images(each) for label, each in images.items()}
    if empty := [label for label, each in listed.items() if not each]:
        raise InputError(f"class {empty[0]!r} has no image left: its list is empty")
    labels = [label for label, each in listed.items() for _ in each]
    return [image for each in listed.values() for image in each], labels


def as_images(images: Any) -> list[Any]:
    """List images without labels; see `prolip.data.inputs`.

    They come as one or several paths, bytes, open files, PIL images, arrays or tensors of pixels; as a
    folder, a table or an archive by its path; or as a frame or a dataset in memory.
    """
    if isinstance(images, (str, os.PathLike)):
        return list(list_images(images))
    if isinstance(images, (bytes, bytearray, Image.Image, LazyImage, io.IOBase)):
        return [_single(images)]
    if isinstance(images, ImageSet):
        return list(images.images)
    if not isinstance(images, (list, tuple)) and (members := images_in(images)) is not None:
        return members
    if hasattr(images, "ndim") and hasattr(images, "shape") and is_single_image(images):
        return [images]
    try:
        return [_single(image) for image in images]
    except TypeError as error:
        raise UsageError(f"images are a list, a folder or one image, not {type(images).__name__}") from error


def _single(image: Any) -> Any:
    """Return one of several images; read it if it is an open file, refuse a URL."""
    if isinstance(image, io.IOBase):
        image.seek(0)
        return image.read()
    if isinstance(image, str):
        refuse_url(str(as_path(image, "an image")) and image)
    return image


def number_labels(labels: list[Any], classes: Iterable[Any]) -> tuple[list[int], list[Any]]:
    """Number labels by the classes of a model, then by other classes in order; return these too."""
    known = list(classes)
    try:
        known += sorted(set(labels) - set(known))
    except TypeError as error:
        raise InputError("labels must be all names or all numbers, and none may be missing") from error
    if others := [name for name in known if not isinstance(name, (str, int, float)) or name != name]:
        raise InputError(f"labels must be names or numbers, and none may be missing: got {others[0]!r}")
    if len(known) < 2:
        raise InputError(f"at least two classes are needed, got {known}")
    position = {name: k for k, name in enumerate(known)}
    return [position[label] for label in labels], known


def require_known(images: ImageSet, classes: Sequence[Any]) -> None:
    """Refuse labels that are not among the classes of a model."""
    if len(images.classes) > len(classes):
        label = images.classes[len(classes)]
        raise InputError(f"label {label!r} is not among the {len(classes)} classes of this model")


def require_every_class(images: ImageSet, labels: Iterable[int]) -> None:
    """Refuse images of a class that is not among the `labels` of those that are left."""
    if lost := sorted(set(images.labels) - set(labels)):
        raise InputError(
            f"class {images.classes[lost[0]]!r} has no image left: all are unreadable, or in another class"
        )
