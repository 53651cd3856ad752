"""From labelled images to the support set that a model is fitted on.

    source = ImageSource(encoder, options)
    labelled = source.labelled("photos/train", None, "train")
    support = source.read(labelled, Recipe(shots=16))        # sampled, encoded, without copies

This is the only builder of a `Task` for an adapted model.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prolip.api.inputs import (
    Labelled,
    as_images,
    match_names,
    number_labels,
    split_labels,
)
from prolip.api.model import Recipe, Support
from prolip.core import InputError, Task, Text, UsageError
from prolip.core.arguments import as_path
from prolip.core.arrays import Array, to_python_scalar
from prolip.core.names import normalize_label
from prolip.data import (
    ImageSet,
    class_names,
    read_images,
    sample_few_shot,
    warn_of_short_classes,
)
from prolip.data.inputs import is_source
from prolip.encoders import Encoder
from prolip.features import Extraction, FeatureStore, LazyImages, extract
from prolip.io.files import cache_dir
from prolip.io.progress import Progress, counted


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
        raise InputError(f"class {labelled.classes[lost[0]]!r} has no image left: all are unreadable")


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

    encoder: Encoder
    options: ReadOptions = ReadOptions()

    def labelled(
        self,
        images: Any,
        labels: Any,
        split: str,
        classes: Sequence[Any] | None = None,
        **columns: str | None,
    ) -> Labelled:
        """Read labelled images: a folder, a table, an archive or a dataset; images and a list of labels; a
        mapping of labels to images; or (image, label) pairs.

        `split` is taken where there are several. `classes` are those of a fitted model: they come first, and
        others may follow. `columns` are `image_column` and `label_column` of `read_images`.
        """
        images, labels = split_labels(images, labels)
        if labels is None and not isinstance(images, ImageSet):
            if not isinstance(images, (str, os.PathLike)) and not is_source(images):
                raise UsageError(
                    "a list of images needs labels: as a second list, as [(image, label), ...], or as "
                    "{label: images}; a folder per class has its own"
                )
            images = read_images(images, split, min_classes=1 if classes else 2, **columns)
        if labels is None:
            names = [images.classes[k] for k in images.labels]
            return number_labels(list(images.images), match_names(names, classes), classes)
        if any(columns.values()):
            raise UsageError("image_column and label_column are of a table: leave labels out")
        listed = as_images(images)
        values = [normalize_label(to_python_scalar(each)) for each in labels]
        if len(listed) != len(values) or not listed:
            raise InputError(f"{len(listed)} images and {len(values)} labels: each image needs one label")
        return number_labels(listed, values, classes)

    def features(
        self, images: Any, views: Sequence[int] = (0,), progress: Progress | None = None
    ) -> Extraction:
        """Compute the features of images before the projection; encode what the store does not have."""
        return extract(self.encoder, as_images(images), views=views, progress=progress, **vars(self.options))

    def prompt_names(self, recipe: Recipe, classes: Sequence[Any]) -> list[str]:
        """Return what the prompts call each class; refuse names that prompts cannot tell apart."""
        return list(class_names(recipe.prompt_names_of(classes)))

    def text(self, recipe: Recipe, classes: Sequence[Any]) -> Text:
        """Return the text rows of classes."""
        return self.encoder.text(self.prompt_names(recipe, classes), recipe.templates)

    def task(self, x: Array, y: Any, text: Text) -> Task:
        """Build the task of features [V, n, width] and labels [n]."""
        return Task(x, y, text, self.encoder.head, self.encoder.scale)

    def read(self, labelled: Labelled, recipe: Recipe, progress: Progress | None = None) -> Support:
        """Sample images, encode them, drop copies, and add the texts of their classes."""
        names = self.prompt_names(recipe, labelled.classes)
        warn_of_short_classes(labelled.y, recipe.shots)
        chosen = sample_few_shot(labelled.y, recipe.shots, recipe.seed)
        found = self.features([labelled.images[i] for i in chosen], range(recipe.views), progress)
        y = [labelled.y[chosen[i]] for i in found.kept]
        fresh = new_images(found.hashes, y, labelled.classes, {})
        if copies := len(y) - len(fresh):
            warnings.warn(
                f"ignored as copies of other images: {counted(copies)}", DuplicateWarning, stacklevel=4
            )
        y, images = [y[i] for i in fresh], [labelled.images[chosen[found.kept[i]]] for i in fresh]
        if empty := sorted(set(range(len(names))) - set(y)):
            why = f"{len(found.bad)} are unreadable" if found.bad else "all are in another class too"
            raise InputError(f"class {labelled.classes[empty[0]]!r} has no image left: {why}")
        text = self.encoder.text(names, recipe.templates)
        return Support(
            tuple(found.hashes[i] for i in fresh),
            self.task(found.features[:, fresh], y, text),
            tuple(found.bad),
            LazyImages(images),
        )


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
