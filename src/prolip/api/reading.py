"""Images and labels as users hand them over, and their features."""

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.core import InputError, UsageError
from prolip.core.arguments import as_path
from prolip.core.arrays import to_python_scalar
from prolip.core.names import normalize_label
from prolip.data import ImageSet, LazyImage, list_images, read_images
from prolip.data.files import refuse_url
from prolip.data.inputs import images_in, is_source
from prolip.encoders import Encoder
from prolip.encoders.precomputed import read_embeddings
from prolip.features import Extraction, FeatureStore, extract
from prolip.features.decoder_limits import FILE_LIMIT
from prolip.features.extract import Progress
from prolip.features.pixels import is_single_image
from prolip.io.files import cache_dir


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
        listed = as_images(images) if encoder.encodes_images else images
        return extract(encoder, listed, views=views, progress=progress, **vars(self))


def shared_store(named: str | Path | bool | None) -> FeatureStore | None:
    """The store in a folder, the user's own for None and True, none for False; opened once for a process."""
    if named is False:
        return None
    return _opened(None if named in (None, True) else str(as_path(named, "store")), cache_dir())


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
    """Images without labels, whatever they come as: see `prolip.data.inputs`.

    Several, or a single one: paths, bytes, open files, PIL images, arrays or tensors of pixels; a folder, a
    table or an archive by its path; a frame or a dataset in memory.
    """
    if isinstance(images, (str, os.PathLike)):
        return list(list_images(images))
    if isinstance(images, (bytes, bytearray, Image.Image, LazyImage, io.IOBase)):
        return [_single(images)]
    if isinstance(images, ImageSet):
        return list(images.images)
    if (found := images_in(images)) is not None:
        return found
    if hasattr(images, "ndim") and hasattr(images, "shape"):
        one = is_single_image(images)
        if one is None:
            raise UsageError(
                f"an array of shape {list(images.shape)} is one picture, channels first, or several grey "
                "ones: put it into a list if it is one; add an axis at its end if it is several"
            )
        if one:
            return [images]
    try:
        return [_single(image) for image in images]
    except TypeError as error:
        raise UsageError(f"images are a list, a folder or one image, not {type(images).__name__}") from error


def _single(image: Any) -> Any:
    """One image of several: files that are open are read here, and a URL is refused."""
    if isinstance(image, io.IOBase):
        if image.seekable():
            image.seek(0)
        content = image.read(FILE_LIMIT + 1)
        if not isinstance(content, bytes):
            raise UsageError("a file of an image must be opened in binary mode ('rb')")
        return content
    if isinstance(image, str):
        refuse_url(str(as_path(image, "an image")) and image)
    return image


def read_labelled(
    encoder: Encoder,
    images: Any,
    labels: Any,
    split: str,
    classes: Sequence[Any] | None = None,
    *,
    text: Any = None,
) -> Labelled:
    """Labelled images of a folder, a table, an archive or a dataset (of its part `split` where it has parts);
    images and a list of labels; or embeddings.

    `classes` are those of a fitted model, which come first and in this order; others may follow them. `text`
    are class rows beside embeddings.
    """
    if not encoder.encodes_images:
        return _labelled_embeddings(images, labels, classes, text)
    if text is not None:
        raise UsageError(f"text is for embeddings (model='arrays'): {encoder.name} reads the class names")
    if labels is None and not isinstance(images, ImageSet):
        if not isinstance(images, (str, os.PathLike)) and not is_source(images):
            raise UsageError("labels are needed with a list of images; a folder per class brings its own")
        images = read_images(images, split=split, min_classes=1 if classes else 2)
    if isinstance(images, ImageSet) and labels is None:
        return _numbered(
            list(images.images), _as_known([images.classes[k] for k in images.labels], classes), classes
        )
    source, given = as_images(images), [normalize_label(to_python_scalar(each)) for each in labels]
    if len(source) != len(given) or not source:
        raise InputError(f"{len(source)} images and {len(given)} labels: one label for each image is needed")
    return _numbered(source, given, classes)


def _as_known(names: Iterable[Any], classes: Sequence[Any] | None) -> list[Any]:
    """Names as a model has them: those of a folder or a table are text, those of a model may be numbers."""
    theirs = {str(name): name for name in classes or ()}
    return [theirs.get(str(name), name) for name in names]


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
    if other := next((name for name in known if not isinstance(name, (str, int, float))), None):
        raise InputError(f"labels must be names or numbers, got {other!r}")
    if len(known) < 2:
        raise InputError(f"at least two classes are needed, got one: {known[0]!r}")
    position = {name: k for k, name in enumerate(known)}
    return Labelled(source, [position[label] for label in given], known)


def _labelled_embeddings(images: Any, labels: Any, classes: Sequence[Any] | None, text: Any) -> Labelled:
    """Embeddings and their labels; without names of their own, labels are numbers of the classes."""
    brought = read_embeddings(images, labels, text)
    if brought.y is None:
        raise InputError("embeddings need labels: an array in the file, or an argument")
    if classes is None and brought.text is None:
        raise InputError(
            "embeddings need class text rows (text): an array in the file, or an argument of fit"
        )
    y: list[int] = brought.y.tolist()
    named = list(brought.classes or classes or range(len(brought.text)))
    if max(y) >= len(named):
        raise InputError(f"label {max(y)} is not among the {len(named)} classes of this model")
    if classes is None:
        return Labelled(brought.x, y, named, brought.text)
    return _numbered(brought.x, _as_known((named[k] for k in y), classes), classes)
