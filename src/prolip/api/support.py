"""From labelled images to the support set that a model is fitted on.

    images = read_labelled("photos/train", split="train")
    support = read_support(encoder, images, Recipe(shots=16))        # sampled, encoded, without copies

`make_task` is the only builder of a `Task` for an adapted model.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.inputs import as_images
from prolip.api.model import Support
from prolip.api.recipe import Recipe
from prolip.core import InputError, Task, Text
from prolip.core.arguments import as_path
from prolip.core.arrays import Array
from prolip.data import ImageSet, LazyImage, class_names, sample_few_shot, warn_of_short_classes
from prolip.encoders import Encoder
from prolip.evaluate.near_copies import SIGNATURE_SIDE, merge, near_copy_groups, open_signature
from prolip.features import Extraction, FeatureStore, extract
from prolip.io.files import cache_dir, readable
from prolip.io.progress import Progress, counted

SHOWN_CONFLICTS = 5


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
    fresh = new_images(extraction.hashes, sample, {})
    if copies := len(sample) - len(fresh):
        warnings.warn(f"ignored as copies of other images: {counted(copies)}", DuplicateWarning, stacklevel=4)
    sample = sample.subset(fresh)
    if empty := sorted(set(range(len(names))) - set(sample.labels)):
        bad = extraction.bad
        why = f"{len(bad)} are unreadable" if bad else "all are in another class too"
        raise InputError(f"class {sample.classes[empty[0]]!r} has no image left: {why}")
    x, text = extraction.features[:, fresh], encoder.text(names, recipe.prompts)
    groups = group_images(x[0], sample.labels, sample.images, sample.group_numbers())
    task = make_task(encoder, x, sample.labels, text, groups)
    hashes = tuple(extraction.hashes[i] for i in fresh)
    return Support(hashes, task, tuple(extraction.bad))


def require_all_classes(images: ImageSet, extraction: Extraction) -> None:
    """Refuse labelled images of which every image of a class is unreadable."""
    if lost := sorted(set(images.labels) - {images.labels[i] for i in extraction.kept}):
        raise InputError(f"class {images.classes[lost[0]]!r} has no image left: all are unreadable")


def group_images(x: Array, y: Any, images: Sequence[Any], groups: Any) -> Array:
    """Number the groups [n] of near-copies, joined with `groups` [n] if there are any.

    x [n, width] are features, `images` the last of the n images, which can be opened; those of a saved model
    cannot.
    """
    unknown, old = np.zeros((SIGNATURE_SIDE, SIGNATURE_SIDE), np.float32), len(x) - len(images)
    near = near_copy_groups(x, np.array(y), lambda i: unknown if i < old else open_signature(images[i - old]))
    return near if groups is None else merge(near, np.array(groups))


def image_name(source: Any, place: int) -> str:
    """Return the path of an image, its name in an archive or a table, or its number from 1 on."""
    named = isinstance(source, (str, os.PathLike, LazyImage))
    return readable(str(source)) if named else f"image {place + 1}"


def new_images(hashes: Sequence[bytes], images: ImageSet, seen: Mapping[bytes, int]) -> list[int]:
    """Return which images are not copies of others, byte for byte; warn of those in two classes.

    `seen` has the class of each image of the model by its hash.
    """
    fresh: list[int] = []
    known = {key: (label, "an image of the model") for key, label in seen.items()}
    conflicts = []
    for i, (key, label) in enumerate(zip(hashes, images.labels, strict=True)):
        name = image_name(images.images[i], i)
        if key not in known:
            fresh.append(i)
            known[key] = label, name
        elif known[key][0] != label:
            first, other = known[key]
            conflicts.append(f"{name} ({images.classes[label]}) is {other} ({images.classes[first]})")
    if conflicts:
        more = f"; and {len(conflicts) - SHOWN_CONFLICTS} more" * (len(conflicts) > SHOWN_CONFLICTS)
        warnings.warn(
            f"in two classes, and counted for the class named last: {counted(len(conflicts))}: "
            f"{'; '.join(conflicts[:SHOWN_CONFLICTS])}{more}. Delete the wrong one of each",
            DuplicateWarning,
            stacklevel=5,
        )
    return fresh
