"""From labelled images to the support set that a model is fitted on.

    images = read_labelled("photos/train", split="train")
    support = read_support(encoder, images, Recipe(shots=16))        # sampled, encoded, without copies

`make_task` is the only builder of a `Task` for an adapted model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prolip.api.inputs import as_images
from prolip.api.model import Support
from prolip.api.recipe import Recipe
from prolip.core import InputError, Task, Text
from prolip.core.arguments import as_path
from prolip.core.arrays import Array
from prolip.data import ImageSet, class_names, sample_few_shot, warn_of_short_classes
from prolip.encoders import Encoder
from prolip.features import Extraction, FeatureStore, extract
from prolip.io.files import cache_dir
from prolip.io.progress import Progress, counted


class DuplicateWarning(UserWarning):
    """Images occur more than once, in one class or in two."""


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
    reading: ReadOptions = ReadOptions(),  # noqa: B008  (it is frozen)
    views: Sequence[int] = (0,),
    progress: Progress | None = None,
) -> Extraction:
    """Compute the features of images before the projection; encode what the store does not have."""
    return extract(encoder, as_images(images), views=views, progress=progress, **vars(reading))


def prompt_names(recipe: Recipe, classes: Sequence[Any]) -> list[str]:
    """Return what the prompts call each class; refuse names that prompts cannot tell apart."""
    return list(class_names(recipe.prompt_names_of(classes)))


def class_text(encoder: Encoder, recipe: Recipe, classes: Sequence[Any]) -> Text:
    """Return the text rows of classes."""
    return encoder.text(prompt_names(recipe, classes), recipe.prompts)


def make_task(encoder: Encoder, x: Array, y: Any, text: Text, groups: Any = None) -> Task:
    """Build the task of features [V, n, width], labels [n] and groups [n]."""
    return Task(x, y, text, encoder.head, encoder.scale, groups)


def read_support(
    encoder: Encoder,
    images: ImageSet,
    recipe: Recipe,
    reading: ReadOptions = ReadOptions(),  # noqa: B008  (it is frozen)
    progress: Progress | None = None,
) -> Support:
    """Sample images, encode them, drop copies, and add the texts of their classes."""
    names = prompt_names(recipe, images.classes)
    warn_of_short_classes(images.labels, recipe.shots)
    sample = images.subset(sample_few_shot(images.labels, recipe.shots, recipe.seed))
    extraction = encode(encoder, sample.images, reading, range(recipe.views), progress)
    sample = sample.subset(extraction.kept)
    fresh = new_images(extraction.hashes, sample.labels, sample.classes, {})
    if copies := len(sample) - len(fresh):
        warnings.warn(f"ignored as copies of other images: {counted(copies)}", DuplicateWarning, stacklevel=4)
    sample = sample.subset(fresh)
    if empty := sorted(set(range(len(names))) - set(sample.labels)):
        bad = extraction.bad
        why = f"{len(bad)} are unreadable" if bad else "all are in another class too"
        raise InputError(f"class {sample.classes[empty[0]]!r} has no image left: {why}")
    x, text = extraction.features[:, fresh], encoder.text(names, recipe.prompts)
    task = make_task(encoder, x, sample.labels, text, sample.group_numbers())
    hashes = tuple(extraction.hashes[i] for i in fresh)
    return Support(hashes, task, tuple(extraction.bad))


def require_all_classes(images: ImageSet, extraction: Extraction) -> None:
    """Refuse labelled images of which every image of a class is unreadable."""
    if lost := sorted(set(images.labels) - {images.labels[i] for i in extraction.kept}):
        raise InputError(f"class {images.classes[lost[0]]!r} has no image left: all are unreadable")


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
