"""From labelled images, or embeddings, to the support set that a model is fitted on.

    source = ImageSource.of(encoder, options)                # an EmbeddingSource if there is no encoder
    labelled = source.labelled("photos/train", None, "train")
    support = source.read(labelled, Recipe(shots=16))        # sampled, encoded, without copies

This is the only builder of a `Task` for an adapted model.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.inputs import (
    EmptyClassError,
    Labelled,
    LabelledEmbeddings,
    UnknownLabelError,
    as_images,
    match_names,
    number_labels,
    split_labels,
)
from prolip.api.model import Recipe, Support
from prolip.api.texts import check_descriptions, class_texts
from prolip.core import InputError, Task, Text, UsageError
from prolip.core.arguments import as_path
from prolip.core.arrays import Array, to_python_scalar
from prolip.core.names import normalize_label
from prolip.data import (
    ImageSet,
    class_names,
    list_images,
    read_images,
    sample_few_shot,
    warn_of_short_classes,
)
from prolip.data.inputs import is_source
from prolip.encoders import Encoder
from prolip.encoders.precomputed import PrecomputedEmbeddings, read_embeddings
from prolip.features import Extraction, FeatureStore, LazyImages, extract
from prolip.io.files import cache_dir, readable
from prolip.io.progress import Progress, counted


class NeedsLabelsError(UsageError):
    """Images to fit on have no labels."""


class DuplicateWarning(UserWarning):
    """Images occur more than once, in one class or in two."""


@dataclass(frozen=True)
class ReadOptions:
    """How images are read and where their features are stored; see `extract`."""

    store: FeatureStore | None = None
    skip_bad: bool | float = False


def require_all_classes(labelled: Labelled, found: Extraction) -> None:
    """Refuse labelled images of which every image of a class is unreadable."""
    if lost := sorted(set(labelled.y) - {labelled.y[i] for i in found.kept}):
        raise EmptyClassError(labelled.classes[lost[0]], "all are unreadable")


def open_store(folder: str | Path | bool | None) -> FeatureStore | None:
    """Open the store in a folder, that of the user for None and True, none for False; once per process."""
    if folder is False:
        return None
    return _opened(None if folder in (None, True) else str(as_path(folder, "store")), cache_dir())


@lru_cache(maxsize=8)
def _opened(folder: str | None, user: Path) -> FeatureStore:
    return FeatureStore(folder)


@dataclass(frozen=True)
class ImageSource:
    """Images: how they are listed, encoded and made a task of."""

    encoder: Any
    options: ReadOptions = ReadOptions()

    @staticmethod
    def of(encoder: Encoder, options: ReadOptions = ReadOptions()) -> ImageSource:  # noqa: B008  (it is frozen)
        """Return the source for an encoder."""
        precomputed = isinstance(encoder, PrecomputedEmbeddings)
        return EmbeddingSource(encoder, options) if precomputed else ImageSource(encoder, options)

    def labelled(
        self, images: Any, labels: Any, split: str, classes: Sequence[Any] | None = None, text: Any = None
    ) -> Labelled:
        """Read labelled images: a folder, a table, an archive or a dataset; images and a list of labels; a
        mapping of labels to images; or (image, label) pairs.

        `split` is taken where there are several. `classes` are those of a fitted model: they come first, and
        others may follow. `text` are class rows, which only embeddings have.
        """
        if text is not None:
            raise UsageError(
                f"text is for embeddings (model='arrays'): {self.encoder.name} encodes the class names"
            )
        images, labels = split_labels(images, labels)
        if labels is None and not isinstance(images, ImageSet):
            if not isinstance(images, (str, os.PathLike)) and not is_source(images):
                raise NeedsLabelsError(
                    "a list of images needs labels: as a second list, as [(image, label), ...], or as "
                    "{label: images}; a folder per class has its own"
                )
            images = read_images(images, split=split, min_classes=1 if classes else 2)
        if labels is None:
            names = [images.classes[k] for k in images.labels]
            return number_labels(list(images.images), match_names(names, classes), classes)
        listed = as_images(images)
        values = [normalize_label(to_python_scalar(each)) for each in labels]
        if len(listed) != len(values) or not listed:
            raise InputError(f"{len(listed)} images and {len(values)} labels: each image needs one label")
        return number_labels(listed, values, classes)

    def named(self, sources: Sequence[str], **tables: Any) -> tuple[Iterable[tuple[str, Any]], int]:
        """List unlabelled images as (name, image), and count them; `tables` are options of `list_images`."""
        listed = list_images(list(sources), **tables)
        return ((readable(str(image)), image) for image in listed), len(listed)

    def features(
        self, images: Any, views: Sequence[int] = (0,), progress: Progress | None = None
    ) -> Extraction:
        """Compute the features of images before the projection; encode what the store does not have."""
        return extract(self.encoder, as_images(images), views=views, progress=progress, **vars(self.options))

    def prompt_names(self, recipe: Recipe, classes: Sequence[Any]) -> list[str]:
        """Return what the prompts call each class; refuse names that prompts cannot tell apart."""
        return list(class_names(recipe.prompt_names_of(classes)))

    def text(self, recipe: Recipe, classes: Sequence[Any], x: Array | None = None, y: Any = ()) -> Text:
        """Return the text rows of classes; features [n, width] and labels [n] weight their descriptions."""
        return class_texts(self.encoder, recipe, self.prompt_names(recipe, classes), x, y)

    def task(self, x: Array, y: Any, text: Text) -> Task:
        """Build the task of features [V, n, width] and labels [n]."""
        return Task(x, y, text, self.encoder.head, self.encoder.scale)

    def with_text(self, text: Text | None) -> ImageSource:
        """Return the source with these class rows, where it does not compute them itself."""
        return self

    def read(self, labelled: Labelled, recipe: Recipe, progress: Progress | None = None) -> Support:
        """Sample images, encode them, drop copies, and add the texts of their classes."""
        names = self.prompt_names(recipe, labelled.classes)
        check_descriptions(recipe, names)
        warn_of_short_classes(labelled.y, recipe.shots)
        chosen = sample_few_shot(labelled.y, recipe.shots, recipe.seed)
        found = self.features([labelled.images[i] for i in chosen], range(recipe.views), progress)
        y = [labelled.y[chosen[i]] for i in found.kept]
        fresh = new_images(found.hashes, y, labelled.classes, {})
        if copies := len(y) - len(fresh):
            warnings.warn(
                f"ignored as copies of other images: {counted(copies)}", DuplicateWarning, stacklevel=4
            )
        y, images = [y[i] for i in fresh], labelled.openable(chosen[found.kept[i]] for i in fresh)
        if images is not None and (empty := sorted(set(range(len(names))) - set(y))):
            why = f"{len(found.bad)} are unreadable" if found.bad else "all are in another class too"
            raise EmptyClassError(labelled.classes[empty[0]], why)
        text = class_texts(self.encoder, recipe, names, found.features[0, fresh], y)
        return Support(
            tuple(found.hashes[i] for i in fresh),
            self.task(found.features[:, fresh], y, text),
            tuple(found.bad),
            () if images is None else LazyImages(images),
        )


class EmbeddingSource(ImageSource):
    """Embeddings and text rows that the user has instead of images: the paper's black box."""

    def labelled(
        self, images: Any, labels: Any, split: str, classes: Sequence[Any] | None = None, text: Any = None
    ) -> Labelled:
        """Read embeddings and labels; without class names, labels are numbers of the classes."""
        found = read_embeddings(images, labels, text)
        if found.y is None:
            raise NeedsLabelsError("embeddings need labels: an array in the file, or an argument")
        if classes is None and found.text is None:
            raise InputError("embeddings need class rows (text): an array in the file, or an argument of fit")
        y: list[int] = found.y.tolist()
        rows = found.text if found.text is not None else np.zeros((0, 1))
        names = list(found.classes or classes or range(len(rows)))
        if max(y) >= len(names):
            raise UnknownLabelError(max(y), names)
        if classes is None:
            return LabelledEmbeddings(found.x, y, names, Text(rows, tuple(map(str, names))))
        numbered = number_labels(found.x, match_names((names[k] for k in y), classes), classes)
        return LabelledEmbeddings(**vars(numbered))

    def named(self, sources: Sequence[str], **tables: Any) -> tuple[Iterable[tuple[str, Any]], int]:
        """List the rows of files."""
        rows = [
            (f"{readable(source)}:{i}", row)
            for source in sources
            for i, row in enumerate(self.encoder.read(source))
        ]
        return rows, len(rows)

    def features(
        self, images: Any, views: Sequence[int] = (0,), progress: Progress | None = None
    ) -> Extraction:
        """Return embeddings as features; the content of each is its row."""
        if list(views) != [0]:
            raise UsageError(f"embeddings have one view, not {len(list(views))}")
        x = self.encoder.read(images).astype(np.float32)
        hashes = [hashlib.sha256(row.tobytes()).digest() for row in x]
        return Extraction(x[None], list(range(len(x))), hashes, [], 0, 0.0)

    def prompt_names(self, recipe: Recipe, classes: Sequence[Any]) -> list[str]:
        """Return the names, which are in no prompt; there can be no descriptions either."""
        if recipe.descriptions:
            raise UsageError("descriptions need a text encoder, and embeddings have none")
        recipe.prompt_names_of(classes)
        return list(map(str, classes))

    def task(self, x: Array, y: Any, text: Text) -> Task:
        """Build a task without a head."""
        return Task(x, y, text, scale=self.encoder.scale)

    def with_text(self, text: Text | None) -> EmbeddingSource:
        """Return a source that knows these class rows."""
        return EmbeddingSource(PrecomputedEmbeddings(text), self.options)


def new_images(
    hashes: Sequence[bytes], y: Sequence[int], classes: Sequence[Any], seen: dict[bytes, int]
) -> list[int]:
    """Return which images are not copies: held out, a copy would be known from the other.

    `seen` has the class of each image of the model by its hash; the new images are added to it.
    """
    fresh, conflicts = [], []
    for i, (key, label) in enumerate(zip(hashes, y, strict=True)):
        if key not in seen:
            fresh.append(i)
            seen[key] = label
        elif seen[key] != label:
            conflicts.append((seen[key], label))
    if conflicts:
        first, second = (classes[label] for label in conflicts[0])
        warnings.warn(
            f"in two classes, and counted for the first: {counted(len(conflicts))}, such as one in {first!r} "
            f"and {second!r}",
            DuplicateWarning,
            stacklevel=5,
        )
    return fresh
